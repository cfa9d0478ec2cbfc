#include "plan/codec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "plan/codec_name.hpp"
#include "plan/codecs/format.hpp"

namespace rackrail::plan {
namespace {

const CodecTraits& traits_of(const Codec& codec) { return codec_format(codec.kind).traits(); }

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

template <typename Number>
std::string limits(const CodecParameter& parameter, Number Codec::* /*field*/) {
  if constexpr (std::numeric_limits<Number>::is_integer) {
    return fmt::format("<{:.0f}..{:.0f}>", parameter.above + 1, parameter.most);
  } else {
    return fmt::format("<above {}, up to {}>", parameter.above, parameter.most);
  }
}

/// "fp32, none, fp16, int8[:block=<1..1048576>], …"
std::string all_spellings() {
  std::vector<std::string> spellings{std::string(kUncompressedName)};
  for (const Codec& codec : all_codecs()) {
    const CodecTraits& traits = traits_of(codec);
    std::string& spelling = spellings.emplace_back(traits.name);
    for (std::size_t i = 0; i < traits.parameters.size(); ++i) {
      const CodecParameter& parameter = traits.parameters[i];
      spelling += fmt::format(
          "[{}{}={}]", i == 0 ? ':' : ',', parameter.name,
          std::visit([&](auto field) { return limits(parameter, field); }, parameter.field));
    }
  }
  const std::string last = std::move(spellings.back());
  spellings.pop_back();
  return fmt::format("{} or {}", fmt::join(spellings, ", "), last);
}

[[noreturn]] void reject(std::string_view text) {
  throw ConfigError(ErrorContext{.file = {},
                                 .where = "codec",
                                 .found = fmt::format("'{}'", text),
                                 .expected = all_spellings()});
}

/// Reads "128" into the parameter; false when it is no number within the limits.
bool set_parameter(Codec& codec, const CodecParameter& parameter, std::string_view text) {
  return std::visit(
      [&]<typename Number>(Number Codec::*field) {
        const auto value = parse_number<Number>(text);
        codec.*field = value.value_or(Number{});
        return value.has_value() && is_within_limits(parameter, codec);
      },
      parameter.field);
}

}  // namespace

bool is_within_limits(const CodecParameter& parameter, const Codec& codec) {
  const double value =
      std::visit([&](auto field) { return static_cast<double>(codec.*field); }, parameter.field);
  return value > parameter.above && value <= parameter.most;
}

bool Codec::operator==(const Codec& other) const {
  if (kind != other.kind) {
    return false;
  }
  const auto& parameters = traits_of(*this).parameters;
  return std::all_of(parameters.begin(), parameters.end(), [&](const CodecParameter& parameter) {
    return std::visit([&](auto field) { return this->*field == other.*field; }, parameter.field);
  });
}

bool Codec::is_elementwise() const { return traits_of(*this).is_elementwise; }

bool Codec::has_error_feedback() const { return traits_of(*this).has_error_feedback; }

bool Codec::is_sparse() const {
  return std::ranges::any_of(traits_of(*this).parameters, [](const CodecParameter& parameter) {
    const auto* field = std::get_if<double Codec::*>(&parameter.field);
    return field != nullptr && *field == &Codec::density;
  });
}

bool Codec::survives_many_hops() const { return traits_of(*this).survives_many_hops; }

std::int64_t kept_elements(const Codec& codec, std::int64_t elements) {
  if (elements <= 0) {
    return 0;
  }
  const double exact = codec.density * static_cast<double>(elements);
  // 0.07 · 100 is a little above 7 in binary; nobody who writes 0.07 means 8 of 100.
  const double nearest = std::round(exact);
  const double kept =
      std::abs(exact - nearest) <= 1e-9 * std::max(1.0, exact) ? nearest : std::ceil(exact);
  return std::clamp(static_cast<std::int64_t>(kept), std::int64_t{1}, elements);
}

Bytes encoded_size(const Codec& codec, std::int64_t elements) {
  return elements <= 0 ? Bytes(0) : codec_format(codec.kind).encoded_size(codec, elements);
}

double relative_error(const Codec& codec) { return codec_format(codec.kind).relative_error(codec); }

std::string to_string(const Codec& codec) {
  const Codec defaults;
  std::string text(traits_of(codec).name);
  char separator = ':';
  for (const CodecParameter& parameter : traits_of(codec).parameters) {
    std::visit(
        [&](auto field) {
          if (codec.*field != defaults.*field) {
            text += fmt::format("{}{}={}", separator, parameter.name, codec.*field);
            separator = ',';
          }
        },
        parameter.field);
  }
  return text;
}

Codec parse_codec(std::string_view text) {
  if (text == kUncompressedName) {
    return {};
  }
  const std::size_t colon = text.find(':');
  for (const Codec& known : all_codecs()) {
    if (traits_of(known).name != text.substr(0, colon)) {
      continue;
    }
    Codec codec = known;
    // Parameters come in the order in which to_string writes them, each at most once.
    std::string_view rest = text.substr(std::min(colon, text.size()));
    for (const CodecParameter& parameter : traits_of(known).parameters) {
      const std::string start =
          fmt::format("{}{}=", colon == text.size() - rest.size() ? ':' : ',', parameter.name);
      if (rest.starts_with(start)) {
        rest.remove_prefix(start.size());
        const std::string_view number = rest.substr(0, rest.find(','));
        if (!set_parameter(codec, parameter, number)) {
          reject(text);
        }
        rest.remove_prefix(number.size());
      }
    }
    if (!rest.empty()) {
      reject(text);
    }
    return codec;
  }
  reject(text);
}

std::span<const Codec> known_codecs() {
  static const std::vector<Codec> kCodecs = [] {
    std::vector<Codec> found;
    std::copy_if(all_codecs().begin(), all_codecs().end(), std::back_inserter(found),
                 [](const Codec& codec) { return traits_of(codec).is_default; });
    return found;
  }();
  return kCodecs;
}

std::span<const Codec> all_codecs() {
  static const std::vector<Codec> kCodecs = [] {
    std::vector<Codec> found;
    for (std::size_t i = 0; i < kCodecKinds; ++i) {
      found.push_back(Codec{.kind = static_cast<CodecKind>(i)});
    }
    return found;
  }();
  return kCodecs;
}

}  // namespace rackrail::plan

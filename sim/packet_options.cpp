#include "sim/packet_options.hpp"

#include <fmt/format.h>

#include <array>
#include <functional>

#include "base/error.hpp"
#include "base/parse_units.hpp"

namespace rackrail::sim {

namespace {

constexpr std::int64_t kLargestPacket = 1 << 20;
constexpr std::int64_t kMostPackets = 1'000'000;

using Set = void (*)(PacketOptions&, const ConfigValue&);
struct Key {
  std::string_view name;
  Set set;
};

bool is_first(const ConfigValue& value, const char* yes, const char* no) {
  if (value.text() != yes && value.text() != no) {
    value.fail(fmt::format("{} or {}", yes, no));
  }
  return value.text() == yes;
}

Bytes packet_bytes(const ConfigValue& value) {
  const Bytes bytes = value.bytes();
  if (bytes.count() > kLargestPacket) {
    value.fail("1 B to 1 MiB");
  }
  return bytes;
}

Duration above_zero(const ConfigValue& value) {
  const Duration duration = value.duration();
  if (duration == Duration()) {
    value.fail("a time above 0");
  }
  return duration;
}

constexpr double kLeastShare = 1e-9;

// Each checks what it sets; what two of them may not be together is require_valid()'s.
constexpr std::array kKeys{
    Key{"payload", [](PacketOptions& o, const ConfigValue& v) { o.payload = packet_bytes(v); }},
    Key{"header", [](PacketOptions& o, const ConfigValue& v) { o.header = packet_bytes(v); }},
    Key{"queue_capacity",
        [](PacketOptions& o, const ConfigValue& v) { o.queue_capacity = v.bytes(); }},
    Key{"round_trip", [](PacketOptions& o, const ConfigValue& v) { o.round_trip = above_zero(v); }},
    Key{"mark_from", [](PacketOptions& o, const ConfigValue& v) { o.mark_from = v.duration(); }},
    Key{"mark_all", [](PacketOptions& o, const ConfigValue& v) { o.mark_all = above_zero(v); }},
    Key{"mark_probability",
        [](PacketOptions& o, const ConfigValue& v) { o.mark_probability = v.share(); }},
    Key{"seed",
        [](PacketOptions& o, const ConfigValue& v) {
          o.seed = static_cast<std::uint64_t>(v.count(0, INT64_MAX));
        }},
    Key{"pause_above",
        [](PacketOptions& o, const ConfigValue& v) { o.pause_above = above_zero(v); }},
    Key{"pause_share",
        [](PacketOptions& o, const ConfigValue& v) { o.pause_share = v.ratio(kLeastShare, 1); }},
    Key{"resume_share",
        [](PacketOptions& o, const ConfigValue& v) { o.resume_share = v.ratio(kLeastShare, 1); }},
    Key{"overload",
        [](PacketOptions& o, const ConfigValue& v) {
          o.overload = is_first(v, "trim", "pause") ? Overload::kTrim : Overload::kPause;
        }},
    Key{"rate_control",
        [](PacketOptions& o, const ConfigValue& v) {
          o.rate_control = is_first(v, "dcqcn", "none") ? RateControl::kDcqcn : RateControl::kNone;
        }},
    Key{"trim.queue_packets",
        [](PacketOptions& o, const ConfigValue& v) {
          o.trim.queue_packets = v.count(1, kMostPackets);
        }},
    Key{"trim.window",
        [](PacketOptions& o, const ConfigValue& v) { o.trim.window = v.count(1, kMostPackets); }},
    Key{"trim.trimmed",
        [](PacketOptions& o, const ConfigValue& v) { o.trim.trimmed = packet_bytes(v); }},
    Key{"dcqcn.gain",
        [](PacketOptions& o, const ConfigValue& v) {
          o.dcqcn.gain = v.ratio(kLeastShare, 1 - kLeastShare);
        }},
    Key{"dcqcn.notification_interval",
        [](PacketOptions& o, const ConfigValue& v) {
          o.dcqcn.notification_interval = above_zero(v);
        }},
    Key{"dcqcn.alpha_interval",
        [](PacketOptions& o, const ConfigValue& v) { o.dcqcn.alpha_interval = above_zero(v); }},
    Key{"dcqcn.increase_interval",
        [](PacketOptions& o, const ConfigValue& v) { o.dcqcn.increase_interval = above_zero(v); }},
    Key{"dcqcn.increase_bytes",
        [](PacketOptions& o, const ConfigValue& v) { o.dcqcn.increase_bytes = v.bytes(); }},
    Key{"dcqcn.fast_recovery_steps",
        [](PacketOptions& o, const ConfigValue& v) {
          o.dcqcn.fast_recovery_steps = static_cast<std::uint32_t>(v.count(0, kMostPackets));
        }},
    Key{"dcqcn.additive_increase",
        [](PacketOptions& o, const ConfigValue& v) {
          o.dcqcn.additive_increase = v.ratio(kLeastShare, 1);
        }},
    Key{"dcqcn.hyper_increase",
        [](PacketOptions& o, const ConfigValue& v) {
          o.dcqcn.hyper_increase = v.ratio(kLeastShare, 1);
        }},
    Key{"dcqcn.least_rate",
        [](PacketOptions& o, const ConfigValue& v) {
          o.dcqcn.least_rate = v.ratio(kLeastShare, 1);
        }},
};

void require(bool is_right, const char* option, const std::string& found, const char* expected) {
  if (!is_right) {
    throw ConfigError(ErrorContext{"", fmt::format("packet option '{}'", option), found, expected});
  }
}

}  // namespace

void set_packet_option(PacketOptions& options, const std::string& name, const ConfigValue& value) {
  for (const Key& key : kKeys) {
    if (key.name == name) {
      key.set(options, value);
      return;
    }
  }
  value.fail("packet option '" + name + "'", "one of " + packet_option_names());
}

std::string packet_option_names() {
  std::string names;
  for (const Key& key : kKeys) {
    names += (names.empty() ? "" : ", ") + std::string(key.name);
  }
  return names;
}

void read_packet_options(PacketOptions& options, const ConfigValue& value) {
  for (const auto& [name, member] : value.members()) {
    if (name != "trim" && name != "dcqcn") {
      set_packet_option(options, name, member);
      continue;
    }
    for (const auto& [inner, inner_value] : member.members()) {
      set_packet_option(options, fmt::format("{}.{}", name, inner), inner_value);
    }
  }
}

void require_valid(const PacketOptions& options) {
  const std::int64_t payload = options.payload.count();
  const std::int64_t header = options.header.count();
  require(payload > 0 && payload <= kLargestPacket, "payload", fmt::format("{} B", payload),
          "1 B to 1 MiB");
  require(header >= 0 && header <= kLargestPacket, "header", fmt::format("{} B", header),
          "0 B to 1 MiB");
  const std::string marks =
      fmt::format("{} to {}", to_string(options.mark_from), to_string(options.mark_all));
  require(options.round_trip > Duration(), "round_trip", to_string(options.round_trip), "above 0");
  require(options.mark_from >= Duration() && options.mark_all > options.mark_from, "mark_all",
          marks, "more than mark_from, which is not negative");
  require(options.queue_capacity > Bytes(), "queue_capacity",
          fmt::format("{} B", options.queue_capacity.count()), "above 0");
  require(options.pause_above > Duration(), "pause_above", to_string(options.pause_above),
          "above 0");
  require(options.pause_share > 0 && options.pause_share <= 1 && options.resume_share > 0 &&
              options.resume_share <= 1,
          "pause_share and resume_share",
          fmt::format("{} and {}", options.pause_share, options.resume_share),
          "above 0, at most 1");
  require(options.mark_probability >= 0 && options.mark_probability <= 1, "mark_probability",
          fmt::format("{}", options.mark_probability), "0 to 1");
  const TrimOptions& trim = options.trim;
  require(trim.queue_packets > 0 && trim.window.value_or(1) > 0 && trim.trimmed > Bytes() &&
              trim.trimmed.count() <= kLargestPacket,
          "trim", "a value out of range", "packets above 0, a trimmed size of 1 B to 1 MiB");
  const DcqcnOptions& dcqcn = options.dcqcn;
  require(dcqcn.gain > 0 && dcqcn.gain < 1, "gain", fmt::format("{}", dcqcn.gain),
          "between 0 and 1");
  require(dcqcn.notification_interval > Duration() && dcqcn.alpha_interval > Duration() &&
              dcqcn.increase_interval > Duration() && dcqcn.increase_bytes > Bytes(),
          "dcqcn intervals", "one that is not above 0", "all above 0");
  require(dcqcn.least_rate > 0 && dcqcn.least_rate <= 1, "least_rate",
          fmt::format("{}", dcqcn.least_rate), "above 0, at most 1");
  require(dcqcn.additive_increase > 0 && dcqcn.hyper_increase > 0, "dcqcn increases",
          "one that is not above 0", "both above 0");
}

}  // namespace rackrail::sim

#include "explore/axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/random.hpp"

namespace rackrail::explore {
namespace {

constexpr std::int64_t kMostAxisSteps = 100'000;
constexpr int kDigitsOfEnds = 12;
constexpr int kDigits = 6;
constexpr double kLargestPlainNumber = 1e12;  // of so many digits
constexpr double kLargestRounded = 1e6;

/// A number and what follows it.
struct Quantity {
  double number = 0;
  std::string unit;
};

Quantity read_quantity(const ConfigValue& value) {
  const std::string& text = value.text();
  Quantity quantity;
  const char* end = text.data() + text.size();
  const auto [read, error] = std::from_chars(text.data(), end, quantity.number);
  if (error != std::errc{} || !std::isfinite(quantity.number)) {
    value.fail("a number, with its unit where the field has one");
  }
  quantity.unit = std::string(read, end);
  return quantity;
}

Range read_range(const ConfigValue& value) {
  const Quantity from = read_quantity(value.require("from"));
  const Quantity to = read_quantity(value.require("to"));
  if (from.unit != to.unit) {
    value.require("to").fail(fmt::format("a number in '{}', as 'from' is", from.unit));
  }
  Range range{.from = from.number, .to = to.number, .unit = from.unit};
  if (!(range.from < range.to)) {
    value.require("to").fail("more than 'from'");
  }
  if (const auto* scale = value.find("scale")) {
    if (scale->text() != "log" && scale->text() != "linear") {
      scale->fail("linear or log");
    }
    range.log = scale->text() == "log";
  }
  if (range.log && range.from <= 0) {
    value.require("from").fail("a number above 0, for a logarithmic scale");
  }
  if (const auto* whole = value.find("whole")) {
    range.whole = whole->flag();
  }
  return range;
}

std::vector<std::string> read_values(const ConfigValue& list) {
  std::vector<std::string> values;
  for (const ConfigValue& element : list.elements()) {
    const std::string& text = element.text();
    if (std::find(values.begin(), values.end(), text) != values.end()) {
      element.fail(fmt::format("'{}' a second time", text), "each value once");
    }
    values.push_back(text);
  }
  if (values.empty()) {
    list.fail("no values", "at least one");
  }
  return values;
}

std::uint64_t key_of(std::uint64_t seed, const std::string& path) {
  std::uint64_t key = mix64(seed);
  for (const char c : path) {
    key = mix64(key ^ static_cast<unsigned char>(c));
  }
  return key;
}

}  // namespace

std::string Range::at(double place) const {
  double value = log ? from * std::pow(to / from, place) : from + (to - from) * place;
  value = std::clamp(value, from, to);
  if (whole) {
    value = std::round(value);
  }
  // The ends as they were given; between them, no more digits than anybody reads. Readers of
  // quantities know no exponents.
  const bool is_exact = whole || value == from || value == to;
  const std::string number =
      std::abs(value) >= kLargestPlainNumber || (!is_exact && std::abs(value) >= kLargestRounded)
          ? fmt::format("{:.0f}", value)
          : fmt::format("{:.{}g}", value, is_exact ? kDigitsOfEnds : kDigits);
  return number + unit;
}

std::string Axis::draw(std::uint64_t seed, std::uint64_t number) const {
  const double place = random_unit(key_of(seed, path), number);
  if (range) {
    return range->at(place);
  }
  return values[static_cast<std::size_t>(place * static_cast<double>(values.size()))];
}

Axis read_axis(const std::string& path, const ConfigValue& value, bool for_random) {
  Axis axis{.path = path, .values = {}, .range = std::nullopt};
  if (value.is_list()) {
    axis.values = read_values(value);
    return axis;
  }
  if (!value.is_map()) {
    value.fail("a list of values, {values: […]} or {from: …, to: …, steps: …}");
  }
  if (const auto* values = value.find("values")) {
    value.allow_only({"values"});
    axis.values = read_values(*values);
    return axis;
  }
  value.allow_only({"values", "from", "to", "steps", "scale", "whole"});
  const Range range = read_range(value);
  const auto* steps = value.find("steps");
  if (steps == nullptr && for_random) {
    axis.range = range;
    return axis;
  }
  const std::int64_t count = value.require("steps").count(2, kMostAxisSteps);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string text = range.at(static_cast<double>(i) / static_cast<double>(count - 1));
    // Rounding may make neighbours equal.
    if (axis.values.empty() || axis.values.back() != text) {
      axis.values.push_back(text);
    }
  }
  return axis;
}

}  // namespace rackrail::explore

#include "base/parse_units.hpp"
#include "base/text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "base/error.hpp"

namespace rackrail {

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kByteUnits = {Unit{"B", 1},
                                   Unit{"kB", 1e3},
                                   Unit{"KB", 1e3},
                                   Unit{"MB", 1e6},
                                   Unit{"GB", 1e9},
                                   Unit{"TB", 1e12},
                                   Unit{"KiB", 1024},
                                   Unit{"MiB", 1048576},
                                   Unit{"GiB", 1073741824.0},
                                   Unit{"TiB", 1099511627776.0}};

constexpr std::array kBandwidthUnits = {
    Unit{"bps", 0.125},    Unit{"kbps", 125},      Unit{"Mbps", 125e3},
    Unit{"Gbps", 125e6},   Unit{"Tbps", 125e9},    Unit{"bit/s", 0.125},
    Unit{"kbit/s", 125},   Unit{"Mbit/s", 125e3},  Unit{"Gbit/s", 125e6},
    Unit{"Tbit/s", 125e9}, Unit{"Gb/s", 125e6},    Unit{"Mb/s", 125e3},
    Unit{"B/s", 1},        Unit{"kB/s", 1e3},      Unit{"KB/s", 1e3},
    Unit{"MB/s", 1e6},     Unit{"GB/s", 1e9},      Unit{"TB/s", 1e12},
    Unit{"KiB/s", 1024},   Unit{"MiB/s", 1048576}, Unit{"GiB/s", 1073741824.0}};

constexpr std::array kDurationUnits = {Unit{"ps", 1},     Unit{"ns", 1e3},  Unit{"us", 1e6},
                                       Unit{"µs", 1e6},   Unit{"ms", 1e9},  Unit{"s", 1e12},
                                       Unit{"min", 6e13}, Unit{"h", 3.6e15}};

std::int64_t parse_quantity(std::string_view text, std::span<const Unit> units,
                            const char* expected, const char* range) {
  const std::string_view input = trimmed(text);
  const auto fail = [&]() -> std::int64_t {
    throw ConfigError(ErrorContext{"", "", fmt::format("'{}'", text), expected});
  };
  const auto fail_by_range = [&]() -> std::int64_t {
    throw QuantityRangeError(ErrorContext{"", "", fmt::format("'{}'", text), range});
  };
  const char* const last = input.data() + input.size();
  double number = 0;
  const auto [end, status] = std::from_chars(input.data(), last, number);
  if (status == std::errc::invalid_argument || std::isnan(number)) {
    return fail();
  }
  const std::string_view unit =
      trimmed({end, static_cast<std::size_t>(input.data() + input.size() - end)});
  for (const Unit& u : units) {
    if (u.name == unit) {
      if (status != std::errc{} || !std::isfinite(number) || number < 0) {
        return fail_by_range();
      }
      // Whole numbers of whole units stay exact where a double would round.
      std::int64_t whole = 0;
      const auto [whole_end, whole_status] = std::from_chars(input.data(), last, whole);
      if (whole_status == std::errc{} && whole_end == end && u.factor >= 1) {
        std::int64_t product = 0;
        return __builtin_mul_overflow(whole, static_cast<std::int64_t>(u.factor), &product)
                   ? fail_by_range()
                   : product;
      }
      const double value = number * u.factor;
      if (value >= 9.2e18) {
        return fail_by_range();
      }
      return std::llround(value);
    }
  }
  return fail();
}

std::string scaled_text(double value, std::span<const Unit> units) {
  const double size = std::fabs(value);
  const Unit* chosen = &units.front();
  for (const Unit& u : units) {
    // The next prefix from where rounding reaches it, so that 999.9 MB/s is 1.00 GB/s.
    if (std::round(size / chosen->factor) * chosen->factor >= u.factor) {
      chosen = &u;
    }
  }
  const double v = size / chosen->factor;
  const int decimals = v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value / chosen->factor, decimals, chosen->name);
}

}  // namespace

Bytes parse_bytes(std::string_view text) {
  return Bytes(parse_quantity(text, kByteUnits, "a size with a unit, such as '64 MiB' or '25 MB'",
                              "a size from 0 to 9200000 TB"));
}

Bandwidth parse_bandwidth(std::string_view text) {
  return Bandwidth(parse_quantity(text, kBandwidthUnits,
                                  "a rate with a unit, such as '400 Gbit/s' or '25 GB/s'",
                                  "a rate from 0 to 9200000 TB/s"));
}

Duration parse_duration(std::string_view text) {
  return Duration(parse_quantity(text, kDurationUnits,
                                 "a time with a unit, such as '2 us' or '1.5 ms'",
                                 "a time from 0 to 2500 h"));
}

namespace {

constexpr double kPercent = 0.01;

/// `expected`: what a text that is no share should have been.
double read_share(std::string_view text, bool may_be_zero, const std::string& expected) {
  constexpr double kMostWithoutSign = 0.5;
  const std::string_view input = trimmed(text);
  double number = 0;
  const auto [end, status] = std::from_chars(input.data(), input.data() + input.size(), number);
  const std::string_view unit =
      trimmed({end, static_cast<std::size_t>(input.data() + input.size() - end)});
  if (status != std::errc{} || !std::isfinite(number) || number < 0 ||
      (number == 0 && !may_be_zero) || (unit != "%" && !unit.empty())) {
    throw ConfigError(ErrorContext{"", "", fmt::format("'{}'", text), expected});
  }
  if (unit.empty() && number > kMostWithoutSign) {
    throw ConfigError(
        ErrorContext{"", "", fmt::format("'{}', which is {:g} %", text, number / kPercent),
                     fmt::format("{:g}% or {:g}%, with its sign, or a share up to {:g}, as {:g}",
                                 number, number / kPercent, kMostWithoutSign, kPercent)});
  }
  return unit == "%" ? number * kPercent : number;
}

}  // namespace

double parse_share(std::string_view text) {
  return read_share(text, false, "a share above 0, as 10% or 0.1");
}

double parse_share_up_to(std::string_view text, double most) {
  const std::string expected =
      fmt::format("a share from 0 to {:g}%, as 10% or 0.1", most / kPercent);
  const double share = read_share(text, true, expected);
  if (share > most) {
    throw ConfigError(ErrorContext{"", "", fmt::format("'{}'", text), expected});
  }
  return share;
}

std::string to_string(Bytes size) {
  constexpr std::array kShown = {Unit{"B", 1}, Unit{"KiB", 1024}, Unit{"MiB", 1048576},
                                 Unit{"GiB", 1073741824.0}, Unit{"TiB", 1099511627776.0}};
  if (std::llabs(size.count()) < 1024) {
    return fmt::format("{} B", size.count());
  }
  return scaled_text(static_cast<double>(size.count()), kShown);
}

std::string to_string(Bandwidth rate) {
  constexpr std::array kShown = {Unit{"B/s", 1}, Unit{"kB/s", 1e3}, Unit{"MB/s", 1e6},
                                 Unit{"GB/s", 1e9}, Unit{"TB/s", 1e12}};
  if (rate.bytes_per_second() == 0) {
    return "0 B/s";
  }
  return scaled_text(static_cast<double>(rate.bytes_per_second()), kShown);
}

std::string to_string(Duration time) {
  constexpr std::array kShown = {Unit{"ps", 1}, Unit{"ns", 1e3}, Unit{"us", 1e6}, Unit{"ms", 1e9},
                                 Unit{"s", 1e12}};
  if (time.picoseconds() == 0) {
    return "0 s";
  }
  return scaled_text(static_cast<double>(time.picoseconds()), kShown);
}

std::string to_exact_string(Bytes size) { return fmt::format("{} B", size.count()); }
std::string to_exact_string(Bandwidth rate) {
  return fmt::format("{} B/s", rate.bytes_per_second());
}
std::string to_exact_string(Duration time) { return fmt::format("{} ps", time.picoseconds()); }

}  // namespace rackrail

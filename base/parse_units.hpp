// Text ↔ quantities. Every number in a configuration carries its unit; these functions are the
// only place where bits, prefixes and unit names exist.
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/units.hpp"

namespace rackrail {

/// A number and a unit that are right, of a quantity below 0 or beyond what its type holds.
class QuantityRangeError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// "64 MiB", "25MB", "4096 B", "1 GiB": decimal (kB, MB, GB, TB) and binary (KiB, MiB, GiB, TiB)
/// prefixes. A number alone is an error. Throws ConfigError whose context has `found` and
/// `expected`; the caller adds file and place with `at()`. That is a QuantityRangeError where only
/// the range is wrong.
Bytes parse_bytes(std::string_view text);

/// "400 Gbps", "400 Gbit/s", "25 GB/s", "100 Mbit/s": bits as `bps`/`bit/s`, bytes as `B/s`.
Bandwidth parse_bandwidth(std::string_view text);

/// "2 us", "1.5 ms", "0.0005ms", "3 s", "12 ns", "7 ps", "2 min".
Duration parse_duration(std::string_view text);

/// "10 %", "0.5%", or the number itself, "0.1": above 0, and then up to 0.5 (by 1 most mean 1 %).
double parse_share(std::string_view text);
/// As parse_share(), or 0, and at most `most`.
double parse_share_up_to(std::string_view text, double most);

/// Shortest useful text, three significant digits: "1.07 GB/s", "68.7 ms", "64.0 MiB".
std::string to_string(Bytes size);
std::string to_string(Bandwidth rate);
std::string to_string(Duration time);

/// Text that parses back to exactly the same quantity, for files that rackrail writes.
std::string to_exact_string(Bytes size);
std::string to_exact_string(Bandwidth rate);
std::string to_exact_string(Duration time);

}  // namespace rackrail

// Quantities as types: Bytes, Bandwidth (bytes per second), Duration (picoseconds).
//
// All three hold 64-bit integers, so that the same input gives the same result on every machine.
// Only operators that mean something exist; arithmetic that would leave the range throws
// OverflowError. Bits exist only where text is read or printed (base/parse_units.hpp).
#pragma once

#include <compare>
#include <cstdint>

namespace rackrail {

namespace detail {
[[noreturn]] void throw_overflow(const char* operation);
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_add_overflow(a, b, &r)) {
    throw_overflow("addition");
  }
  return r;
}
inline std::int64_t checked_sub(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_sub_overflow(a, b, &r)) {
    throw_overflow("subtraction");
  }
  return r;
}
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t r = 0;
  if (__builtin_mul_overflow(a, b, &r)) {
    throw_overflow("multiplication");
  }
  return r;
}
std::int64_t checked_round(double value, const char* operation);
}  // namespace detail

/// A number of bytes.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::int64_t count) : count_(count) {}
  constexpr std::int64_t count() const { return count_; }
  constexpr auto operator<=>(const Bytes&) const = default;
  Bytes& operator+=(Bytes o) { return *this = Bytes(detail::checked_add(count_, o.count_)); }

 private:
  std::int64_t count_ = 0;
};
inline Bytes operator+(Bytes a, Bytes b) {
  return Bytes(detail::checked_add(a.count(), b.count()));
}
inline Bytes operator-(Bytes a, Bytes b) {
  return Bytes(detail::checked_sub(a.count(), b.count()));
}
inline Bytes operator*(Bytes a, std::int64_t k) { return Bytes(detail::checked_mul(a.count(), k)); }
inline Bytes operator*(std::int64_t k, Bytes a) { return a * k; }
/// The ratio of two sizes.
inline double operator/(Bytes a, Bytes b) {
  return static_cast<double>(a.count()) / static_cast<double>(b.count());
}

/// A span of time in picoseconds; the range is ±106 days.
class Duration {
 public:
  constexpr Duration() = default;
  constexpr explicit Duration(std::int64_t picoseconds) : picoseconds_(picoseconds) {}
  /// Rounds to the nearest picosecond; throws OverflowError when out of range or not a number.
  static Duration from_seconds(double seconds) {
    return Duration(detail::checked_round(seconds * 1e12, "seconds to duration"));
  }
  constexpr std::int64_t picoseconds() const { return picoseconds_; }
  constexpr double seconds() const { return static_cast<double>(picoseconds_) * 1e-12; }
  constexpr auto operator<=>(const Duration&) const = default;
  Duration& operator+=(Duration o) {
    return *this = Duration(detail::checked_add(picoseconds_, o.picoseconds_));
  }
  Duration& operator-=(Duration o) {
    return *this = Duration(detail::checked_sub(picoseconds_, o.picoseconds_));
  }

 private:
  std::int64_t picoseconds_ = 0;
};
inline Duration operator+(Duration a, Duration b) { return a += b; }
inline Duration operator-(Duration a, Duration b) { return a -= b; }
inline Duration operator*(Duration a, std::int64_t k) {
  return Duration(detail::checked_mul(a.picoseconds(), k));
}
inline Duration operator*(std::int64_t k, Duration a) { return a * k; }
/// Scaled and rounded to the nearest picosecond.
inline Duration scaled(Duration a, double factor) {
  return Duration(
      detail::checked_round(static_cast<double>(a.picoseconds()) * factor, "scaling a duration"));
}
inline double operator/(Duration a, Duration b) {
  return static_cast<double>(a.picoseconds()) / static_cast<double>(b.picoseconds());
}

/// A rate in bytes per second.
class Bandwidth {
 public:
  constexpr Bandwidth() = default;
  constexpr explicit Bandwidth(std::int64_t bytes_per_second)
      : bytes_per_second_(bytes_per_second) {}
  constexpr std::int64_t bytes_per_second() const { return bytes_per_second_; }
  constexpr auto operator<=>(const Bandwidth&) const = default;

 private:
  std::int64_t bytes_per_second_ = 0;
};
inline Bandwidth operator+(Bandwidth a, Bandwidth b) {
  return Bandwidth(detail::checked_add(a.bytes_per_second(), b.bytes_per_second()));
}
inline Bandwidth operator*(Bandwidth a, std::int64_t k) {
  return Bandwidth(detail::checked_mul(a.bytes_per_second(), k));
}
inline Bandwidth scaled(Bandwidth a, double factor) {
  return Bandwidth(detail::checked_round(static_cast<double>(a.bytes_per_second()) * factor,
                                         "scaling a bandwidth"));
}
inline double operator/(Bandwidth a, Bandwidth b) {
  return static_cast<double>(a.bytes_per_second()) / static_cast<double>(b.bytes_per_second());
}
/// Time to move `size` at `rate`, rounded up to a picosecond. `rate` must be positive; throws
/// OverflowError otherwise and when the result leaves the range.
Duration operator/(Bytes size, Bandwidth rate);
/// Bytes that pass in `time`, rounded down.
Bytes operator*(Bandwidth rate, Duration time);

inline namespace literals {
constexpr Bytes operator""_B(unsigned long long v) { return Bytes(static_cast<std::int64_t>(v)); }
constexpr Bytes operator""_KiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v << 10U));
}
constexpr Bytes operator""_MiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v << 20U));
}
constexpr Bytes operator""_GiB(unsigned long long v) {
  return Bytes(static_cast<std::int64_t>(v << 30U));
}
constexpr Bandwidth operator""_Gbps(unsigned long long v) {
  return Bandwidth(static_cast<std::int64_t>(v) * 125'000'000);
}
constexpr Bandwidth operator""_Mbps(unsigned long long v) {
  return Bandwidth(static_cast<std::int64_t>(v) * 125'000);
}
constexpr Bandwidth operator""_GBps(unsigned long long v) {
  return Bandwidth(static_cast<std::int64_t>(v) * 1'000'000'000);
}
constexpr Duration operator""_ps(unsigned long long v) {
  return Duration(static_cast<std::int64_t>(v));
}
constexpr Duration operator""_ns(unsigned long long v) {
  return Duration(static_cast<std::int64_t>(v) * 1'000);
}
constexpr Duration operator""_us(unsigned long long v) {
  return Duration(static_cast<std::int64_t>(v) * 1'000'000);
}
constexpr Duration operator""_ms(unsigned long long v) {
  return Duration(static_cast<std::int64_t>(v) * 1'000'000'000);
}
constexpr Duration operator""_s(unsigned long long v) {
  return Duration(static_cast<std::int64_t>(v) * 1'000'000'000'000);
}
}  // namespace literals

}  // namespace rackrail

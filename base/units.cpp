#include "base/units.hpp"

#include <cmath>
#include <string>

#include "base/error.hpp"

namespace rackrail {

namespace {
// GCC's 128-bit integer, needed for exact size/rate arithmetic; not ISO C++, hence the extension.
__extension__ using Int128 = __int128;
constexpr std::int64_t kPicosecondsPerSecond = 1'000'000'000'000;

std::int64_t narrow(Int128 value, const char* operation) {
  if (value > INT64_MAX || value < INT64_MIN) {
    detail::throw_overflow(operation);
  }
  return static_cast<std::int64_t>(value);
}
}  // namespace

namespace detail {

void throw_overflow(const char* operation) {
  throw OverflowError(std::string("a quantity left its range in: ") + operation);
}

std::int64_t checked_round(double value, const char* operation) {
  // 2^63 is the first double beyond the range; the comparison is false for NaN as well.
  if (!(std::fabs(value) < 9223372036854775808.0)) {
    throw_overflow(operation);
  }
  return std::llround(value);
}

}  // namespace detail

Duration operator/(Bytes size, Bandwidth rate) {
  if (rate.bytes_per_second() <= 0) {
    detail::throw_overflow("size / bandwidth of zero or less");
  }
  const Int128 numerator = static_cast<Int128>(size.count()) * kPicosecondsPerSecond;
  const Int128 r = rate.bytes_per_second();
  return Duration(narrow((numerator + r - 1) / r, "size / bandwidth"));
}

Bytes operator*(Bandwidth rate, Duration time) {
  const Int128 product = static_cast<Int128>(rate.bytes_per_second()) * time.picoseconds();
  return Bytes(narrow(product / kPicosecondsPerSecond, "bandwidth * time"));
}

}  // namespace rackrail

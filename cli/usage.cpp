#include "cli/usage.hpp"

#include <sys/resource.h>

namespace rackrail::cli {

namespace {

constexpr std::int64_t kBytesPerKibibyte = 1024;

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * kBytesPerKibibyte;
}

}  // namespace rackrail::cli

// What this process has used so far.
#pragma once

#include <chrono>
#include <cstdint>

namespace rackrail::cli {

double seconds_since(std::chrono::steady_clock::time_point start);
std::int64_t peak_rss_bytes();

}  // namespace rackrail::cli

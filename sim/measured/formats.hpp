// What the readers of measurements share, and each one's entry.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "sim/measured/measurements.hpp"

namespace rackrail::sim::measured {

inline constexpr std::int64_t kMostBytes = std::int64_t{1} << 50U;
inline constexpr std::int64_t kMostRanks = 1 << 20;
inline constexpr double kNano = 1e-9;
inline constexpr double kMicro = 1e-6;
inline constexpr double kMilli = 1e-3;

/// Where a row is, for complaints.
struct Place {
  std::string file;
  std::size_t line = 0;

  [[noreturn]] void fail(const std::string& found, const std::string& expected) const;
};

/// Throw ConfigError for all but a whole number from 1 to `most`; for all but a time above 0.
std::int64_t whole(std::string_view text, std::int64_t most, const Place& place);
double positive(std::string_view text, const Place& place);

/// The machine of a row. Throws ConfigError for fewer than two GPUs, or not as many on each node.
void set_machine(nccl::Measured& one, std::int64_t ranks, std::int64_t nodes, const Place& place);

/// Names the row ("all-reduce, 2 x 8 GPUs") and keeps it.
void add_row(Measurements& result, Row row);

bool is_csv(std::string_view content);
bool is_nccl_tests_log(std::string_view content);
bool is_json_lines(std::string_view content);

Measurements read_csv(const std::filesystem::path& path, const std::string& content);
Measurements read_json_lines(const std::filesystem::path& path, const std::string& content);
Measurements read_nccl_tests_log(const std::filesystem::path& path, const std::string& content);

}  // namespace rackrail::sim::measured

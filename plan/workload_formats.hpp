// The texts that a workload can come from; used by workload.cpp only.
#pragma once

#include <string>
#include <string_view>

#include "plan/workload.hpp"

namespace rackrail::plan {

// Limits that no model comes near and no sum of which can overflow: the longest time is that of one
// line of a file, 10⁶ of which fit into a Duration.
inline constexpr std::int64_t kLargestTensor = std::int64_t{1} << 40U;
inline constexpr std::size_t kMostTensors = 1'000'000;
inline constexpr Duration kLongestTime = 8_s;

/// The headers of the two CSV formats.
inline constexpr std::string_view kProfileHeader = "tensor,elements,ready_gap_us";
inline constexpr std::string_view kLayerHeader =
    "name,parameters,bytes_per_parameter,forward_us,backward_us";

/// Whether the first line that is no comment is the header of one of them.
bool looks_like_workload_csv(std::string_view content);

/// `file` is for messages, `name` becomes the workload's. Throw ConfigError with file and line.
Workload parse_workload_csv(std::string_view content, const std::string& file,
                            const std::string& name);
Workload parse_workload_yaml(const std::string& content, const std::string& file);

}  // namespace rackrail::plan

// The factories of the readers of workloads, one per format, and what they share.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "plan/workloads/reader.hpp"

namespace rackrail::plan {

#define RACKRAIL_REGISTER(format) std::unique_ptr<WorkloadReader> make_##format##_reader();
#include "plan/workloads/formats.def"
#undef RACKRAIL_REGISTER

// Limits that no model comes near. Sums of them may still overflow, which the registry finds.
inline constexpr std::int64_t kLargestTensor = std::int64_t{1} << 40U;
inline constexpr std::size_t kMostTensors = 1'000'000;
inline constexpr Duration kLongestTime = Duration(3'600'000'000'000'000);  // an hour

inline constexpr std::string_view kYamlFormat = "YAML";
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

/// A gradient moves as FP32 here: the elements of FP32 that have the size of `count` of `width`
/// bytes.
constexpr std::int64_t elements_of_width(std::int64_t count, std::int64_t width) {
  return (count * width + 3) / 4;
}
/// What to say of `bytes` of gradients of other widths than FP32.
std::string width_note(const std::string& file, Bytes bytes);

/// Throws ConfigError with the file where the times are above kLongestTime.
Duration duration_of_nanoseconds(double nanoseconds, const std::string& file,
                                 const std::string& where);

/// "trace" of "a/trace.json.gz".
std::string stem_of(const std::filesystem::path& path);

/// Whether the text is a JSON object (or list) with this key among its first 64 KiB.
bool is_json_with(std::string_view content, std::string_view key);

}  // namespace rackrail::plan

// Readers: files that describe what a model sends → Workload. One reader per format, one
// registration each; they are told by content.
//
// To add a format: write plan/workloads/<format>.cpp with a class derived from WorkloadReader and
// its factory make_<format>_reader(), add the line RACKRAIL_REGISTER(<format>) to
// plan/workloads/formats.def, and put a test beside the others in tests/unit/plan/workloads/.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "plan/workload.hpp"

namespace rackrail::plan {

class WorkloadReader {
 public:
  virtual ~WorkloadReader() = default;
  WorkloadReader() = default;
  WorkloadReader(const WorkloadReader&) = delete;
  WorkloadReader& operator=(const WorkloadReader&) = delete;
  /// What the kind of file is called: "CSV of gradients or layers".
  virtual std::string_view format() const = 0;
  /// False: the content is not UTF-8.
  virtual bool is_text() const { return true; }
  /// Whether the options say something that such a file leaves open.
  virtual bool takes_options() const { return false; }
  virtual bool accepts(const std::filesystem::path& path, std::string_view content) const = 0;
  /// Throws ConfigError (file, place, found, expected).
  virtual Workload read(const std::filesystem::path& path, const std::string& content,
                        const WorkloadOptions& options) const = 0;
};

/// All readers, in the order in which `accepts` is asked.
std::span<const std::unique_ptr<WorkloadReader>> workload_readers();

}  // namespace rackrail::plan

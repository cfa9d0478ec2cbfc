// The list of readers and the choice among them. A new format is one more line in formats.def.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/gzip.hpp"
#include "base/text.hpp"
#include "plan/workloads/formats.hpp"

namespace rackrail::plan {
namespace {

std::string format_names() {
  std::string names;
  for (const std::unique_ptr<WorkloadReader>& reader : workload_readers()) {
    names += (names.empty() ? "" : ", ") + std::string(reader->format());
  }
  return names;
}

void refuse_archive(const std::string& content, const std::string& file) {
  constexpr std::size_t kMagicPlace = 257;
  if (content.size() > kMagicPlace && std::string_view(content).substr(kMagicPlace, 5) == "ustar") {
    throw ConfigError(ErrorContext{file, "", "a tar archive", "one of the files in it"});
  }
}

const WorkloadReader& reader_for(const std::filesystem::path& path, const std::string& content) {
  const bool is_text = !first_line_not_utf8(content);
  for (const std::unique_ptr<WorkloadReader>& reader : workload_readers()) {
    if ((is_text || !reader->is_text()) && reader->accepts(path, content)) {
      return *reader;
    }
  }
  require_utf8(content, path.string());
  throw ConfigError(ErrorContext{path.string(), "", "a file of no known kind",
                                 "a workload file: " + format_names()});
}

void refuse_options(const WorkloadReader& reader, const WorkloadOptions& options,
                    const std::string& file) {
  if (reader.takes_options() || (!options.sequence && options.dtype.empty())) {
    return;
  }
  throw ConfigError(
      ErrorContext{"<command line>", options.sequence ? "--sequence" : "--dtype",
                   fmt::format("'{}' of the kind {}", file, reader.format()),
                   "the config.json of a transformer: other kinds say what is sent themselves"});
}

}  // namespace

std::span<const std::unique_ptr<WorkloadReader>> workload_readers() {
  static const std::array kAll = {
#define RACKRAIL_REGISTER(format) make_##format##_reader(),
#include "plan/workloads/formats.def"
#undef RACKRAIL_REGISTER
  };
  return kAll;
}

Duration duration_of_nanoseconds(double nanoseconds, const std::string& file,
                                 const std::string& where) {
  const double most = static_cast<double>(kLongestTime.picoseconds()) / 1e3;
  if (!(nanoseconds >= 0 && nanoseconds <= most)) {
    throw ConfigError(
        ErrorContext{file, where, fmt::format("{:g} ns", nanoseconds), "a time from 0 to an hour"});
  }
  return Duration(std::llround(nanoseconds * 1e3));
}

std::string stem_of(const std::filesystem::path& path) {
  const std::filesystem::path stem = path.stem();
  return (path.extension() == ".gz" ? stem.stem() : stem).string();
}

bool is_json_with(std::string_view content, std::string_view key) {
  constexpr std::size_t kLooked = std::size_t{64} * 1024;
  content = content.substr(0, kLooked);
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (content[first] == '{' || content[first] == '[') &&
         content.find(fmt::format("\"{}\"", key)) != std::string_view::npos;
}

Workload read_workload_text(const std::string& content, const std::filesystem::path& path,
                            const WorkloadOptions& options) {
  if (is_gzip(content)) {
    const std::string inside = gunzip(content, path.string());
    if (is_gzip(inside)) {
      throw ConfigError(ErrorContext{path.string(), "", "gzip within gzip", "it packed once"});
    }
    return read_workload_text(inside, path, options);
  }
  refuse_archive(content, path.string());
  const WorkloadReader& reader = reader_for(path, content);
  refuse_options(reader, options, path.string());
  try {
    Workload workload = reader.read(path, content, options);
    // These throw where sums leave their range.
    workload.elements();
    workload.backward();
    return workload;
  } catch (const OverflowError& error) {
    throw ConfigError(
        ErrorContext{path.string(), "", error.what(), "sizes and times that can be added up"});
  }
}

bool is_workload_yaml(const std::string& content, const std::filesystem::path& path) {
  return !is_gzip(content) && reader_for(path, content).format() == kYamlFormat;
}

Workload read_workload(const std::string& name_or_path, const std::filesystem::path& configs,
                       const WorkloadOptions& options) {
  const std::filesystem::path path = workload_path(name_or_path, configs);
  return read_workload_text(read_file(path), path, options);
}

}  // namespace rackrail::plan

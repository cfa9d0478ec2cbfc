#include "topology/configs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/error.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology {

namespace fs = std::filesystem;

namespace {

std::optional<fs::path> named_folder() {
  const char* named = std::getenv("RACKRAIL_CONFIGS");
  if (named == nullptr || *named == '\0') return std::nullopt;
  std::error_code status;
  if (fs::is_directory(named, status)) return named;
  throw ConfigError(
      ErrorContext{"<environment>", "RACKRAIL_CONFIGS", fmt::format("'{}'", named), "a folder"});
}

fs::path shipped_folder() {
  std::error_code status;
  const fs::path executable = fs::read_symlink("/proc/self/exe", status);
  fs::path installed = executable.parent_path().parent_path() / "share" / "rackrail" / "configs";
  if (!status && fs::is_directory(installed, status)) return installed;
  fs::path source = fs::path(RACKRAIL_SOURCE_DIR) / "configs";
  if (fs::is_directory(source, status)) return source;
  throw ConfigError(
      ErrorContext{"", "the shipped configurations",
                   fmt::format("neither {} nor {}", installed.string(), source.string()),
                   "one of them, or the environment variable RACKRAIL_CONFIGS"});
}

}  // namespace

fs::path configs_folder() {
  const std::optional<fs::path> named = named_folder();
  return named ? *named : shipped_folder();
}

std::vector<fs::path> configs_folders() {
  const std::optional<fs::path> named = named_folder();
  if (!named) return {shipped_folder()};
  try {
    return {shipped_folder(), *named};
  } catch (const ConfigError&) {
    return {*named};  // nothing is shipped where only this program was copied
  }
}

std::vector<std::string> shipped_clusters() {
  std::vector<std::string> names;
  std::error_code status;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(configs_folder() / "clusters", status)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path cluster_path(const std::string& name_or_path) {
  std::error_code status;
  fs::path path = name_or_path;
  if (!name_or_path.empty() && fs::exists(path, status)) return path;
  const std::vector<std::string> names = shipped_clusters();
  if (std::find(names.begin(), names.end(), name_or_path) != names.end()) {
    return configs_folder() / "clusters" / (name_or_path + ".yaml");
  }
  throw ConfigError(ErrorContext{
      name_or_path.empty() ? "<command line>" : name_or_path, "cluster", "no such file",
      fmt::format("an existing file or a shipped cluster: {}", fmt::join(names, ", "))});
}

}  // namespace rackrail::topology

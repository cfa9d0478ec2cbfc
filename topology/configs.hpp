// Where the shipped configurations are (see configs_folder in reader.hpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rackrail::topology {

/// All folders of configurations, those that count more last: the shipped one, and
/// $RACKRAIL_CONFIGS. Throws ConfigError where configs_folder() does.
std::vector<std::filesystem::path> configs_folders();

/// The file that the user means: an existing one, or a shipped cluster's. Throws ConfigError with
/// the names of the shipped clusters.
std::filesystem::path cluster_path(const std::string& name_or_path);

}  // namespace rackrail::topology

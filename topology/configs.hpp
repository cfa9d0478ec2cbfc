// Where the shipped configurations are (see configs_folder in reader.hpp).
#pragma once

#include <filesystem>
#include <string>

namespace rackrail::topology {

/// The file that the user means: an existing one, or a shipped cluster's. Throws ConfigError with
/// the names of the shipped clusters.
std::filesystem::path cluster_path(const std::string& name_or_path);

}  // namespace rackrail::topology

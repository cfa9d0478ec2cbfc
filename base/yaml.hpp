// YAML files, as yaml-cpp reads them.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>

namespace rackrail {

/// The one document of a text; null where there is nothing. Throws ConfigError with file and line
/// for what is no YAML and for a second document, which would be ignored. `file` is for messages.
YAML::Node load_yaml(const std::string& text, const std::string& file);

}  // namespace rackrail

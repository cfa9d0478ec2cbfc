// YAML documents in which single fields are replaced: how a scenario varies a cluster or a workload
// without knowing what is in it. Keeps yaml-cpp out of the headers.
//
// A field is addressed by its path: keys joined by dots, elements of lists by number, as in
// "network.core.bandwidth" and "racks[0].hosts". Where the document has an alias of an anchor, both
// places are one field.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rackrail::explore {

/// A path and the text that the field there gets.
using FieldValue = std::pair<std::string, std::string>;

/// Paths of all texts and numbers in the document, in its order. Throws ConfigError for broken
/// YAML.
std::vector<std::string> field_paths(const std::string& text);

enum class FieldState : std::uint8_t {
  kThere,    ///< a text or a number
  kAddable,  ///< not there, but the map that it would be in is
  kAbsent,   ///< neither
  kBranch,   ///< a map or a list, which no single value can replace
};
FieldState find_field(const std::string& text, const std::string& path);

/// The document with these fields replaced or added; comments are lost. Without values the text
/// itself. Throws ConfigError for a path that is neither there nor addable.
std::string with_fields(const std::string& text, const std::vector<FieldValue>& values);

}  // namespace rackrail::explore

// JSON as people read it: lists of numbers and names in lines, not one value to a line.
#pragma once

#include <string>
#include <string_view>

namespace rackrail::plan {

/// Takes indented JSON and lays out each list without objects or lists inside in as few lines of up
/// to 100 columns as it needs. Nothing but blanks and line ends changes.
std::string with_compact_lists(std::string_view json);

}  // namespace rackrail::plan

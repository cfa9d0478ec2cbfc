// Slurm's lists of names: "node[01-04,7],gpu-a,rack[1-2]n[1-8]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rackrail::topology {

/// The names in their order. A range keeps the zeros that its first number begins with; several
/// brackets in a name give all combinations, the last fastest. Throws ConfigError with `found` and
/// `expected` for brackets that do not close, for ranges that are none, for names that are numbers
/// only (a list that lost its prefix), and for more names than `most`.
std::vector<std::string> expand_hostlist(std::string_view list, std::size_t most);

}  // namespace rackrail::topology

// Slurm's hostlists: "node[01-03,7],login", "r[1-2]n[1-4]".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rackrail::runtime {

/// The hosts in the order of the list, zero padding kept; the last bracket varies fastest.
/// At most `limit` hosts are made: the list may name far more than are needed. Throws ConfigError
/// (where, found, expected) when the text is no hostlist.
std::vector<std::string> expand_hostlist(std::string_view text, const std::string& where,
                                         std::size_t limit);

}  // namespace rackrail::runtime

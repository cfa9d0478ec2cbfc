// "Did you mean": the known names that are closest to one that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::explore {

/// Fewest insertions, deletions and substitutions of a byte that turn one text into the other
/// (Levenshtein's distance). O(|a|·|b|).
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Up to `most` of the known names: first those that contain the wanted one, then closest first;
/// equally close ones as they were given.
std::vector<std::string> nearest(std::string_view wanted, std::span<const std::string> known,
                                 std::size_t most = 3);

}  // namespace rackrail::explore

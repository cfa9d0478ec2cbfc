// How what enters a switch is divided over what leaves it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace rackrail::planner {

/// Part of the answer: units from input `row` to output `column`.
struct Share {
  std::size_t row = 0;
  std::size_t column = 0;
  std::int64_t units = 0;
};

/// Integers as even as possible, near to rates in proportion to the sums of row and column (Deming
/// and Stephan 1940), whose sums stay within `rows` and `columns`, and reach as much in
/// all as the allowed pairs let through. A max-flow rounds each real number up or down, a second
/// one fills what is left. Neighbouring rows favour neighbouring columns: the order of both decides
/// where single units go.
std::vector<Share> spread_evenly(const std::vector<std::int64_t>& rows,
                                 const std::vector<std::int64_t>& columns,
                                 const std::function<bool(std::size_t, std::size_t)>& is_allowed);

/// The same for rows and columns that are in groups (numbered from 0), evenly over pairs of groups
/// before evenly inside them.
std::vector<Share> spread_by_groups(
    const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
    const std::vector<std::size_t>& row_groups, const std::vector<std::size_t>& column_groups,
    const std::function<bool(std::size_t, std::size_t)>& is_allowed);

}  // namespace rackrail::planner

// Shares of the data that pairs of trees have, as whole numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace rackrail::planner {

/// Units in proportion to the shares, 65,536 or so in all; none for the thinnest pairs, which are
/// not worth their trees: two thousandths of the whole together.
std::vector<std::int64_t> units_of(std::vector<double> shares);

}  // namespace rackrail::planner

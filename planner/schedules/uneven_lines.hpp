// Trees over groups of ranks (hosts) of which some have slower links to the others on some lines:
// what uneven_rings.hpp makes an all-reduce of.
//
// Model. Members l of all groups form rail l (a line, as in group_rings.hpp), and each line has a
// share of the buffer. A tree is a path round the ring of groups along the line; from where it
// enters a group, the data goes to the rest of it. Such a tree broadcasts, and its mirror image
// reduces. A group in the middle of a path has each byte come twice and go twice, so a line is as
// slow as its slowest group. Where there are slow ones, they are leaves: paths leave them out, and
// the root exchanges with them itself, so that each byte comes once and goes once. With k groups,
// of which one has the rate b and the others have r, the line then reaches
//   min(b, ((k − 1)·r + b) / (2·(k − 1)))
// instead of b·k / (2·(k − 1)). Shares of lines are a linear program (part_loads.hpp), by which all
// of them take as long.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

struct GroupHop {
  std::size_t from = 0;
  std::size_t to = 0;
};

struct GroupTree {
  std::size_t root = 0;
  std::vector<std::size_t> leaves;  ///< of the root, beside the path
  std::vector<GroupHop> path;       ///< from the root on
};

/// Trees of one line, which have equal shares.
struct LineTrees {
  std::size_t line = 0;
  bool has_leaves = false;
  std::vector<GroupTree> trees;
  double share = 0;  ///< of the buffer, all together
};

struct UnevenLines {
  std::vector<topology::RankGroup> groups;  ///< in the order of their ring
  std::vector<LineTrees> lines;

  Rank member(std::size_t group, std::size_t line) const;
};

/// None where no group is slow on a line, where rings of equal shares take as little, within 2 %,
/// where ranks are more than 512, or in a build without a solver. Precondition: group rings are not
/// refused. Throws ConfigError where ranks do not reach each other.
std::optional<UnevenLines> uneven_lines(const topology::Topology& topology,
                                        topology::Router& router);

}  // namespace rackrail::planner

// Throughput-optimal trees of a topology: what all-gather, reduce-scatter and all-reduce run on.
//
// Model. From every rank the same number k of trees (Tree::units of one shape) spans all ranks;
// each carries 1/(n·k) of the data. Links carry U · bandwidth trees at most, so that M bytes take
// M·U/(n·k) seconds. The bound (topology::allgather_bound) is p/q · M/n with p/q the worst ratio of
// ranks behind a cut to its capacity; k trees per rank reach it if they fit for U = k·p/q, rounded
// down link by link. Zhao et al., "ForestColl: Throughput-Optimal Collective Communications on
// Heterogeneous Network Fabrics" (arXiv 2402.06787), choose k so that nothing is rounded; a smaller
// k reaches the bound too where the links that bind divide evenly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// An arc of a tree, from parent to child.
struct TreeArc {
  Rank from;
  Rank to;
  std::uint32_t route = 0;  ///< index into Forest::routes
  bool operator==(const TreeArc&) const = default;
};

struct Tree {
  Rank root;
  std::int64_t units = 0;     ///< so many trees are identical
  std::vector<TreeArc> arcs;  ///< parents before children, one for every rank but the root
  bool operator==(const Tree&) const = default;
};

struct Forest {
  std::vector<topology::Route> routes;  ///< from parent to child
  std::vector<Tree> trees;
  std::int64_t trees_per_rank = 0;  ///< k
  Bandwidth algbw;                  ///< of all-gather: bytes of the whole result per second
  double share_of_bound = 1;        ///< algbw over that of the bound
  bool operator==(const Forest&) const = default;
};

/// Between which pairs of ranks data goes through switches.
enum class Pairs : std::uint8_t {
  kEven,  ///< all pairs of a class, evenly
  /// As few as can be, each with more of its links to itself: pairs that meet at two links that
  /// bind, both with others, do not fill either in equal shares. Up to kMostRanksExactly ranks.
  kFew,
};

struct ForestOptions {
  /// Most trees per rank. More reach the bound where few cannot, at the cost of smaller pieces.
  std::int64_t most_trees_per_rank = 4;
  /// With at least this share of the bound, fewer and shallower trees are preferred to more.
  double good_enough = 0.98;
  Pairs pairs = Pairs::kEven;
};

/// Trees for all-gather; with `reversed`, trees along which reduce-scatter sums, their arcs still
/// from parent to child but routes and capacities those of child to parent. Where nothing better is
/// found, a star from every rank, or a path. Throws ConfigError where ranks do not reach each
/// other.
Forest make_forest(const topology::Topology& topology, const ForestOptions& options = {},
                   bool reversed = false);

/// What is wrong with it: trees that do not span, routes that do not lead where they should, links
/// that carry more than algbw allows. Empty when right.
std::vector<std::string> problems_of(const Forest& forest, const topology::Topology& topology,
                                     bool reversed = false);

/// Arcs on the longest path from a root.
std::size_t depth_of(const Tree& tree);
std::size_t depth_of(const Forest& forest);

/// The forest for the other direction: the same trees on the opposite links, where every link has
/// an opposite one that is as wide.
std::optional<Forest> mirrored(const Forest& forest, const topology::Topology& topology);

}  // namespace rackrail::planner

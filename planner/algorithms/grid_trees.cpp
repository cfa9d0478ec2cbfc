#include "planner/algorithms/grid_trees.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/work.hpp"
#include "plan/alpha_beta.hpp"
#include "planner/algorithms/grid_shares.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/pipeline/pipeline_writer.hpp"

namespace rackrail::planner {

namespace {

constexpr double kMeanWeightOfPieces = 1U << 12U;  // of the messages along later dimensions
// Messages along later dimensions are so many times smaller at most, and are no more of all than
// one for so many of the first dimension.
constexpr std::uint32_t kMostSmaller = 4;
constexpr std::uint32_t kFirstMessages = 6;
// At least so much of what links carry in one number of rounds they carry in others.
constexpr double kRoundedShares = 0.999;
constexpr std::size_t kFewestRoundsAllRound = 2;
// From one number of rounds to the next, the same where simulations take long.
constexpr std::size_t kMoreRounds = 2;
constexpr std::size_t kMoreRoundsOfMany = 8;
constexpr std::size_t kRoundsOfSomeBuckets[] = {1, 4, kRoundsOfBuckets};
constexpr std::uint32_t kFinerSlices = 2;
// Times the transfers that others may have: of deep trees pieces are what keeps links full.
constexpr std::uint64_t kTimesMoreTransfersOfTrees = 4;
// A tree's pieces in a round are few where trees are: so many times the hops of the longest way
// they may be at least, for which rounds grow, or links wait too long for the first.
constexpr double kRoundsByHops = 0.8;

/// An arc of a tree, away from its root.
struct GridArc {
  Rank from;
  Rank to;
  bool is_whole = false;  ///< takes a piece in one message; so do all behind it
};

/// Trees that are alike but for their roots.
struct GridPart {
  std::vector<std::uint32_t> order;  ///< of dimensions
  bool has_middle_roots = false;     ///< along the last of them, else at all places
  std::uint32_t smaller = 1;  ///< times, messages along later dimensions than along the first one
  std::size_t trees = 0;
  std::size_t pieces = 0;    ///< of a tree
  std::uint32_t weight = 0;  ///< of a message along a later dimension
};

std::size_t tree_count(const RankGrid& grid, const std::vector<std::uint32_t>& order,
                       bool has_middle_roots) {
  const std::size_t ranks = grid.coordinates.size();
  return has_middle_roots ? ranks / grid.dimensions[order.back()].size : ranks;
}

/// Pieces of all parts are about as large.
std::vector<GridPart> parts_of(const RankGrid& grid, const topology::Topology& topology,
                               const GridTreeOptions& options) {
  std::vector<GridPart> parts;
  std::vector<double> shares;  // of a tree
  std::size_t trees = 0;
  for (const TreeOrder& of : tree_orders(grid, topology, options.are_all_round)) {
    GridPart& part = parts.emplace_back();
    part.order = of.dimensions;
    part.has_middle_roots = !(options.are_all_round && grid.dimensions[part.order.back()].is_ring);
    part.trees = tree_count(grid, part.order, part.has_middle_roots);
    const std::uint32_t first = grid.dimensions[part.order.front()].size;
    part.smaller = std::clamp(first / kFirstMessages, 1U, kMostSmaller);
    shares.push_back(of.share / static_cast<double>(part.trees));
    trees += part.trees;
  }
  std::vector<double> sizes;  // of messages along later dimensions
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const double pieces = shares[p] * static_cast<double>(trees * options.rounds);
    parts[p].pieces = static_cast<std::size_t>(std::max<std::int64_t>(1, std::llround(pieces)));
    sizes.push_back(shares[p] / static_cast<double>(parts[p].pieces * parts[p].smaller));
  }
  const double mean =
      std::accumulate(sizes.begin(), sizes.end(), 0.0) / static_cast<double>(sizes.size());
  std::uint32_t common = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    parts[p].weight = static_cast<std::uint32_t>(
        std::max<std::int64_t>(1, std::llround(kMeanWeightOfPieces * sizes[p] / mean)));
    common = std::gcd(common, parts[p].weight);
  }
  for (GridPart& part : parts) {
    part.weight /= common;
  }
  return parts;
}

/// One tree's arcs after those that they follow.
class TreeArcs {
 public:
  explicit TreeArcs(const RankGrid& grid) : grid_(grid), places_(grid) {}

  std::vector<GridArc> from(Rank root, const std::vector<std::uint32_t>& order) const {
    std::vector<GridArc> arcs;
    std::vector<Rank> reached = {root};
    for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
      const bool is_first = dimension + 1 == order.rend();
      for (std::size_t i = 0, before = reached.size(); i < before; ++i) {
        add_line(reached[i], *dimension, is_first, arcs, reached);
      }
    }
    return arcs;
  }

 private:
  /// Both ways along a dimension, as far round a ring one way as the other.
  void add_line(Rank from, std::uint32_t dimension, bool is_first, std::vector<GridArc>& arcs,
                std::vector<Rank>& reached) const {
    const std::uint32_t size = grid_.dimensions[dimension].size;
    const bool is_ring = grid_.dimensions[dimension].is_ring;
    const std::uint32_t place = grid_.coordinates[from.index()][dimension];
    const auto walk = [&](std::uint32_t steps, std::uint32_t forwards) {
      Rank at = from;
      for (std::uint32_t step = 1; step <= steps; ++step) {
        const Rank next = places_.neighbour(from, dimension, (place + step * forwards) % size);
        arcs.push_back({.from = at, .to = next, .is_whole = is_first});
        reached.push_back(next);
        at = next;
      }
    };
    walk(is_ring ? size / 2 : size - 1 - place, 1);
    walk(is_ring ? (size - 1) / 2 : place, size - 1);
  }

  const RankGrid& grid_;
  GridPlaces places_;
};

/// Sums go to the root along the paths on which copies come back.
void add_tree(PipelineWriter& writer, const GridPart& part, Rank root,
              const std::vector<GridArc>& arcs) {
  writer.begin_part(root, static_cast<std::int64_t>(part.pieces) * part.weight,
                    std::vector<std::int64_t>(part.pieces, 1),
                    std::vector<std::uint32_t>(part.pieces * part.smaller, part.weight));
  const auto move = [&](plan::TransferOp op, Rank src, Rank dst, bool is_whole) {
    const std::uint32_t count = is_whole ? part.smaller : 1;
    for (std::uint32_t begin = 0; begin < part.smaller; begin += count) {
      writer.move(op, src, dst, {begin, count});
    }
  };
  for (auto arc = arcs.rbegin(); arc != arcs.rend(); ++arc) {
    move(plan::TransferOp::kReduce, arc->to, arc->from, arc->is_whole);
  }
  for (const GridArc& arc : arcs) {
    move(plan::TransferOp::kCopy, arc.from, arc.to, arc.is_whole);
  }
}

std::uint64_t transfers_of(const RankGrid& grid, const std::vector<GridPart>& parts) {
  const std::uint64_t ranks = grid.coordinates.size();
  std::uint64_t transfers = 0;
  for (const GridPart& part : parts) {
    const std::uint64_t later = ranks / grid.dimensions[part.order.front()].size - 1;  // arcs
    transfers += part.trees * part.pieces * 2 * (ranks - 1 - later + part.smaller * later);
  }
  return transfers;
}

/// What trees in more rounds are like, by those in one.
FormShape in_more_rounds(const FormShape& one, const std::vector<GridPart>& parts_of_one,
                         const std::vector<GridPart>& parts, std::uint64_t transfers) {
  double whole = 0;
  double largest = 0;
  std::size_t times = 1;  // pieces of a tree
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const GridPart& part = parts[p];
    const double piece = static_cast<double>(part.weight) * part.smaller;
    whole += piece * static_cast<double>(part.trees * part.pieces);
    largest = std::max(largest, piece);
    times = std::max(times, (part.pieces - 1) / parts_of_one[p].pieces + 1);
  }
  FormShape shape = one;
  shape.largest_share = largest / whole;
  shape.transfers = static_cast<std::int64_t>(transfers);
  // Chains of dependencies are as long, links carry as much. More pieces are rounded, and none is
  // empty once each unit of weight has an element.
  shape.bound->rounding = shape.bound->rounding * static_cast<std::int64_t>(times);
  shape.bound->seconds_per_element *= kRoundedShares;
  shape.bound->fewest_elements = static_cast<std::int64_t>(whole);
  return shape;
}

/// Hops of what goes up a tree from the farthest rank and down again.
std::size_t most_hops(const RankGrid& grid, const std::vector<GridPart>& parts) {
  std::size_t most = 0;
  for (const GridPart& part : parts) {
    std::size_t hops = 0;
    for (const std::uint32_t d : part.order) {
      const auto [size, is_ring] = grid.dimensions[d];
      const bool has_root_in_middle = part.has_middle_roots && d == part.order.back();
      hops += is_ring || has_root_in_middle ? size / 2 : size - 1;
    }
    most = std::max(most, 2 * hops);
  }
  return most;
}

/// The most rounds that there may be transfers for, up to the request's, or more where few trees go
/// a long way (kRoundsByHops); 0: none.
std::size_t most_rounds(const RankGrid& grid, const ScheduleRequest& request,
                        GridTreeOptions options) {
  const topology::Topology& topology = request.topology;
  const std::vector<GridPart> once = parts_of(grid, topology, options);
  const std::size_t trees =
      std::accumulate(once.begin(), once.end(), std::size_t{0},
                      [](std::size_t sum, const GridPart& part) { return sum + part.trees; });
  const double longer =
      kRoundsByHops * static_cast<double>(most_hops(grid, once)) / static_cast<double>(trees);
  const auto most =
      static_cast<std::size_t>(static_cast<double>(request.most_rounds) * std::max(1.0, longer));
  const std::uint64_t transfers = kTimesMoreTransfersOfTrees * request.most_pieces();
  const auto fits = [&](std::size_t rounds) {
    options.rounds = rounds;
    return grid_tree_transfers(grid, topology, options) <= transfers;
  };
  std::size_t fitting = 0;
  for (std::size_t beyond = most + 1; fitting + 1 < beyond;) {
    const std::size_t middle = fitting + (beyond - fitting) / 2;
    (fits(middle) ? fitting : beyond) = middle;
  }
  return fitting;
}

}  // namespace

bool has_long_path(const RankGrid& grid) {
  return std::ranges::any_of(grid.dimensions, [](const RankGrid::Dimension& dimension) {
    return !dimension.is_ring && dimension.size > 2;
  });
}

plan::TransferGraph make_grid_trees(const RankGrid& grid, const ScheduleRequest& request,
                                    const GridTreeOptions& options) {
  const TreeArcs arcs(grid);
  PipelineWriter trees("torus", request);
  for (const GridPart& part : parts_of(grid, request.topology, options)) {
    for (std::size_t r = 0; r < grid.coordinates.size(); ++r) {
      const RankGrid::Dimension& last = grid.dimensions[part.order.back()];
      const std::uint32_t place = grid.coordinates[r][part.order.back()];
      if (!part.has_middle_roots || place == last.size / 2) {
        add_tree(trees, part, Rank(r), arcs.from(Rank(r), part.order));
      }
    }
  }
  return with_mechanism(trees.take(Pace::kEvenTurns, options.slices),
                        "trees along dimensions, " + in_rounds_text(options.rounds));
}

std::uint64_t grid_tree_transfers(const RankGrid& grid, const topology::Topology& topology,
                                  const GridTreeOptions& options) {
  return transfers_of(grid, parts_of(grid, topology, options));
}

std::vector<plan::TransferGraph> grid_trees_of_buckets(const RankGrid& grid,
                                                       const ScheduleRequest& request) {
  std::vector<plan::TransferGraph> graphs;
  if (!has_long_path(grid)) {
    return graphs;
  }
  GridTreeOptions options;
  for (const std::size_t rounds : kRoundsOfSomeBuckets) {
    options.rounds = rounds;
    if (rounds <= request.most_rounds &&
        grid_tree_transfers(grid, request.topology, options) <= request.most_transfers) {
      Work::step();
      graphs.push_back(make_grid_trees(grid, request, options));
    }
  }
  return graphs;
}

std::vector<CollectiveForm> grid_tree_forms(const RankGrid& grid, const ScheduleRequest& request) {
  std::vector<CollectiveForm> forms;
  if (!has_long_path(grid)) {
    return forms;
  }
  const topology::Topology& topology = request.topology;
  GridTreeOptions options;
  std::size_t most = most_rounds(grid, request, options);
  if (most < kFewestRoundsAllRound) {
    options.are_all_round = false;
    most = most_rounds(grid, request, options);
  }
  if (most == 0) {
    return forms;
  }
  std::vector<std::size_t> rounds;
  for (std::size_t count = most; count > 0;
       count /= grid.coordinates.size() >= kVeryManyRanks ? kMoreRoundsOfMany : kMoreRounds) {
    rounds.insert(rounds.begin(), count);
  }
  options.rounds = 1;
  const std::vector<GridPart> parts_of_one = parts_of(grid, topology, options);
  const FormShape one = CollectiveForm(make_grid_trees(grid, request, options), topology).shape();
  const auto add = [&](std::size_t count, std::uint32_t slices) {
    options.rounds = count;
    options.slices = slices;
    const std::vector<GridPart> parts = parts_of(grid, topology, options);
    FormShape shape = in_more_rounds(one, parts_of_one, parts, transfers_of(grid, parts));
    shape.slices = slices;
    forms.emplace_back(
        shape, [grid, request, options] { return make_grid_trees(grid, request, options); });
  };
  for (const std::size_t count : rounds) {
    add(count, 1);
  }
  add(most, kFinerSlices);  // no more transfers than there may be, in more messages
  return forms;
}

}  // namespace rackrail::planner

#include "planner/algorithms/in_network_shards.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>

#include "planner/packing/switch_trees.hpp"
#include "planner/pipeline/builder.hpp"
#include "planner/pipeline/collective_form.hpp"

namespace rackrail::planner {

namespace {

using plan::TransferOp;

// Chunks of a shard with two roots in turn. Sizes are over that of the last one, how they grow and
// shrink from one to the next.
constexpr std::size_t kChunksInTurn = 31;
constexpr double kFirstInTurn = 2;
constexpr double kGrowth = 1.2;
constexpr double kLargestInTurn = 13;
constexpr double kShrinkage = 1.4;
constexpr double kWeightOfLast = 64;  // as an integer

/// Of the tree that switches make, by leaf; none where they make none.
using LeafRoutes = std::optional<std::vector<topology::Route>>;

/// What of a chunk has come to each rank since it was last read: additions, or one copy.
using Arrivals = std::vector<std::vector<TransferId>>;

class ShardBuilder {
 public:
  ShardBuilder(const ScheduleRequest& request, const ShardShape& shape, const ShardCut& cut)
      : topology_(request.topology),
        router_(request.router),
        shape_(shape),
        cut_(cut),
        chunks_(cut.weights.size()),
        whole_(std::accumulate(cut.weights.begin(), cut.weights.end(), 0.0) *
               static_cast<double>(shape.shards())),
        builder_("in-network", request, weights()),
        trees_(request.topology),
        arrived_(shape.shards() * chunks_, Arrivals(request.topology.rank_count())) {}

  plan::TransferGraph build() {
    const bool takes_turns = chunks_ >= shape_.groups.size() && !sums_across_in_network();
    for_each_chunk([&](std::size_t shard, std::uint32_t chunk) {
      for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
        const auto& group = shape_.groups[g];
        const std::uint32_t of = takes_turns ? turned(shard, chunk, g) : chunk;
        gather(group, holder(g, shard, of), of);
      }
    });
    for_each_chunk([&](std::size_t shard, std::uint32_t chunk) {
      gather(across(shard, chunk), root_of(shard, chunk), chunk);
    });
    for_each_chunk([&](std::size_t shard, std::uint32_t chunk) {
      spread(across(shard, chunk), root_of(shard, chunk), chunk);
    });
    for_each_chunk([&](std::size_t shard, std::uint32_t chunk) {
      for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
        spread(shape_.groups[g], holder(g, shard, chunk), chunk);
      }
    });
    return with_mechanism(builder_.take(),
                          fmt::format("{} groups, {} shards, {} chunks", shape_.groups.size(),
                                      shape_.shards(), chunks_));
  }

  /// Whether switches add what is summed across groups, at the first root.
  bool sums_across_in_network() const {
    const std::vector<Rank> ranks = across(0, 0);
    return ranks.size() > 2 &&
           SwitchTrees(topology_)
               .take(TransferOp::kReduce, ranks[0], std::span(ranks).subspan(1), share(0))
               .has_value();
  }

 private:
  template <typename Visit>
  void for_each_chunk(Visit visit) {
    for (std::size_t c = 0; c < chunks_; ++c) {
      for (std::size_t shard = 0; shard < shape_.shards(); ++shard) {
        visit(shard, static_cast<std::uint32_t>(shard * chunks_ + c));
      }
    }
  }

  std::vector<Rank> across(std::size_t shard, std::uint32_t chunk) const {
    std::vector<Rank> ranks;
    for (std::size_t g = 0; g < shape_.groups.size(); ++g) {
      ranks.push_back(holder(g, shard, chunk));
    }
    return ranks;
  }

  /// The member of a group that has the group's sum of a chunk.
  Rank holder(std::size_t group, std::size_t shard, std::uint32_t chunk) const {
    const std::vector<Rank>& members = shape_.groups[group];
    const bool takes_turns = cut_.in_one_group && group == 0;
    return members[(shard + (takes_turns ? turn(chunk) : 0)) % members.size()];
  }

  std::vector<std::uint32_t> weights() const {
    std::vector<std::uint32_t> weights;
    for (std::size_t shard = 0; shard < shape_.shards(); ++shard) {
      weights.insert(weights.end(), cut_.weights.begin(), cut_.weights.end());
    }
    return weights;
  }
  /// Of the buffer.
  double share(std::uint32_t chunk) const { return cut_.weights[chunk % chunks_] / whole_; }

  /// Which of the roots it is that a chunk has.
  std::size_t turn(std::uint32_t chunk) const { return chunk % chunks_ % cut_.roots; }

  Rank root_of(std::size_t shard, std::uint32_t chunk) const {
    const std::size_t groups = shape_.groups.size();
    const std::size_t group =
        cut_.in_one_group ? 0 : (turn(chunk) * groups / cut_.roots + shard) % groups;
    return holder(group, shard, chunk);
  }

  /// Instead of a chunk, the one of its round whose root is as far from the group as the chunk's
  /// from group 0: so groups do not all send to the same root. chunks_ is a multiple of the groups.
  std::uint32_t turned(std::size_t shard, std::uint32_t chunk, std::size_t group) const {
    const std::size_t groups = shape_.groups.size();
    const std::size_t first = shard * chunks_;
    const std::size_t turn = chunk - first;
    return static_cast<std::uint32_t>(first + turn / groups * groups + (turn + group + 1) % groups);
  }

  /// Sums the chunk of all `ranks` at the root.
  void gather(const std::vector<Rank>& ranks, Rank root, std::uint32_t chunk) {
    Arrivals& arrived = arrived_[chunk];
    std::vector<TransferId> sums;
    move(TransferOp::kReduce, ranks, root, chunk, [&](Rank leaf, const topology::Route& route) {
      sums.push_back(
          builder_.add(TransferOp::kReduce, leaf, root, {chunk, 1}, arrived[leaf.index()], route));
    });
    auto& at_root = arrived[root.index()];
    at_root.insert(at_root.end(), sums.begin(), sums.end());
    group(sums);
  }

  /// Copies the chunk from the root to all other `ranks`.
  void spread(const std::vector<Rank>& ranks, Rank root, std::uint32_t chunk) {
    Arrivals& arrived = arrived_[chunk];
    std::vector<TransferId> copies;
    move(TransferOp::kCopy, ranks, root, chunk, [&](Rank leaf, const topology::Route& route) {
      copies.push_back(
          builder_.add(TransferOp::kCopy, root, leaf, {chunk, 1}, arrived[root.index()], route));
      arrived[leaf.index()] = {copies.back()};
    });
    group(copies);
  }

  /// Calls `add` with every rank but the root and its route; is_tree_ says what they make.
  template <typename Add>
  void move(TransferOp op, const std::vector<Rank>& ranks, Rank root, std::uint32_t chunk,
            Add add) {
    std::vector<Rank> leaves;
    std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(leaves),
                 [&](Rank rank) { return rank != root; });
    const LeafRoutes routes =
        leaves.size() < 2 ? std::nullopt : tree(op, root, leaves, share(chunk));
    is_tree_ = routes.has_value();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (is_tree_) {
        add(leaves[i], (*routes)[i]);
        continue;
      }
      const bool copies = op == TransferOp::kCopy;
      const topology::Route& route =
          copies ? router_.route(root, leaves[i]) : router_.route(leaves[i], root);
      trees_.add_load(route, share(chunk));
      add(leaves[i], route);
    }
  }

  /// Roots in turn have the same trees every time: by loads alone, which rounding makes unequal,
  /// some would go another way, and what is alike in all groups no longer be.
  LeafRoutes tree(TransferOp op, Rank root, const std::vector<Rank>& leaves, double share) {
    if (!cut_.in_one_group) {
      return trees_.take(op, root, leaves, share);
    }
    const auto [known, is_new] = known_trees_.try_emplace({op, root, leaves});
    if (is_new) {
      known->second = trees_.take(op, root, leaves, share);
    }
    return known->second;
  }

  void group(const std::vector<TransferId>& members) {
    if (is_tree_) {
      builder_.group(members.front(), static_cast<std::uint32_t>(members.size()));
    }
  }

  const topology::Topology& topology_;
  topology::Router& router_;
  const ShardShape& shape_;
  const ShardCut& cut_;
  std::size_t chunks_;  ///< per shard
  double whole_;        ///< weights of all shards
  GraphBuilder builder_;
  SwitchTrees trees_;
  std::map<std::tuple<TransferOp, Rank, std::vector<Rank>>, LeafRoutes> known_trees_;
  std::vector<Arrivals> arrived_;  ///< by chunk, rank
  bool is_tree_ = false;
};

}  // namespace

ShardCut even_cut(const ShardShape& shape, std::size_t chunks) {
  return {std::vector<std::uint32_t>(chunks, 1), std::min(chunks, shape.groups.size())};
}

ShardCut cut_in_turn() {
  ShardCut cut{{}, 2, true};
  for (std::size_t c = 0; c < kChunksInTurn; ++c) {
    const double size = std::min({kFirstInTurn * std::pow(kGrowth, c), kLargestInTurn,
                                  std::pow(kShrinkage, kChunksInTurn - 1 - c)});
    cut.weights.push_back(static_cast<std::uint32_t>(std::lround(kWeightOfLast * size)));
  }
  return cut;
}

plan::TransferGraph make_shards(const ScheduleRequest& request, const ShardShape& shape,
                                const ShardCut& cut) {
  return ShardBuilder(request, shape, cut).build();
}

bool sums_across_in_network(const ScheduleRequest& request, const ShardShape& shape,
                            const ShardCut& cut) {
  return ShardBuilder(request, shape, cut).sums_across_in_network();
}

}  // namespace rackrail::planner

// k-nomial trees within the tiers: the few messages that small buffers want.
//
// Inside each group of topology::nested_groups (a part of a machine, a machine, a rack ...) the
// members' first ranks are taken k at a time, and the first of each k sums what the other k − 1
// have, round after round until one is left; that one stands for the group among others of the next
// tier. The sums return the same way, the deepest branch first. That is 2(n − 1) messages of the
// whole buffer, the fewest of any all-reduce, where halving and doubling takes 2n·log₂ n; and with
// k = 16 two rounds each way for 64 ranks on 8 hosts, where a binary tree takes six. Few ranks also
// have one star across the tiers. A parent's k − 1 messages follow one another, so k, 4 or 16,
// trades their overheads against latencies (Kandalla, Subramoni, Vishnu, Panda, "Designing
// topology-aware collective communication algorithms for large scale InfiniBand clusters", CAC
// 2010, do so by tiers; k-nomial trees are in MPICH and UCC).
//
// In one tree the links of those with children carry the whole buffer several times. Where few
// ranks have buffers for which that already counts, there are two trees of k = 2, each for half of
// the buffer: in the second one every group begins with its second member, so who has children in
// the one has fewer in the other. That is twice as many messages, 4(n − 1), each of half the
// buffer.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/move_writer.hpp"
#include "topology/tiers.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kUsualRadix = 4;
constexpr std::size_t kLargestRadix = 16;
constexpr std::size_t kRadixOfTwo = 2;  // of two trees
// No two messages of a tree are alike, so a simulation follows them all; for small buffers of
// 16,384 ranks it was as fast as hierarchical-tree, which is simulated in half the time.
constexpr std::size_t kMostRanks = 4096;

struct Edge {
  Rank child;
  Rank parent;
};
using TreeEdges = std::vector<Edge>;  ///< of one tree; children before their parents' own edges

/// From all of these ranks but the first.
void join(std::vector<Rank> ranks, std::size_t radix, TreeEdges& edges) {
  while (ranks.size() > 1) {
    std::vector<Rank> parents;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (i % radix == 0) {
        parents.push_back(ranks[i]);
      } else {
        edges.push_back({ranks[i], parents.back()});
      }
    }
    ranks = std::move(parents);
  }
}

/// Groups begin with their member of the number `first`, after the last one from the start again.
TreeEdges edges_within_tiers(const topology::Topology& topology, std::size_t radix,
                             std::size_t first = 0) {
  TreeEdges edges;
  std::vector<char> is_joined(topology.rank_count(), 0);
  const std::vector<Rank> order = near_order(topology);
  std::vector<std::size_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i].index()] = i;
  }
  for (const auto& tier : topology::nested_groups(topology)) {
    for (const topology::RankGroup& group : tier) {
      std::vector<Rank> left;
      std::copy_if(group.ranks.begin(), group.ranks.end(), std::back_inserter(left),
                   [&](Rank rank) { return is_joined[rank.index()] == 0; });
      std::ranges::sort(left, {}, [&](Rank rank) { return place[rank.index()]; });
      if (!left.empty()) {
        std::ranges::rotate(left, left.begin() + static_cast<std::ptrdiff_t>(first % left.size()));
      }
      const std::size_t before = edges.size();
      join(std::move(left), radix, edges);
      for (std::size_t i = before; i < edges.size(); ++i) {
        is_joined[edges[i].child.index()] = 1;
      }
    }
  }
  return edges;
}

/// Each tree has an equal part of the buffer.
plan::TransferGraph make_trees(const ScheduleRequest& request,
                               const std::vector<TreeEdges>& trees) {
  MoveWriter writer("knomial-tree", request);
  constexpr std::uint32_t kSameTime[] = {1};
  for (const TreeEdges& edges : trees) {
    writer.begin_chunks(kSameTime);
    for (const Edge& edge : edges) {
      writer.reduce(edge.child, edge.parent, {}, 0);
    }
    for (auto edge = edges.rbegin(); edge != edges.rend(); ++edge) {
      writer.copy(edge->parent, edge->child, {}, 0);
    }
  }
  return writer.take();
}

class KnomialTree final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "knomial-tree"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    if (topology.rank_count() > kMostRanks) {
      return fmt::format("more than {} ranks", kMostRanks);
    }
    return refuse_lossy_hops(codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return make_trees(request, {edges_within_tiers(request.topology, kUsualRadix)});
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const std::size_t ranks = request.topology.rank_count();
    std::vector<plan::TransferGraph> trees;
    trees.push_back(all_reduce(request));
    if (ranks > kUsualRadix) {
      trees.push_back(make_trees(request, {edges_within_tiers(request.topology, kLargestRadix)}));
    }
    if (ranks <= kLargestRadix && topology::nested_groups(request.topology).size() > 1) {
      TreeEdges star;
      join(near_order(request.topology), kLargestRadix, star);
      trees.push_back(make_trees(request, {star}));
    }
    if (ranks > kRadixOfTwo && ranks <= kLargestRadix) {
      trees.push_back(make_trees(request, {edges_within_tiers(request.topology, kRadixOfTwo),
                                           edges_within_tiers(request.topology, kRadixOfTwo, 1)}));
    }
    return trees;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_knomial_tree() { return std::make_unique<KnomialTree>(); }

}  // namespace rackrail::planner

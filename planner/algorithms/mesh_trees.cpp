// Trees on meshes: ranks that are linked to one another and form no even grid, as of a torus that
// has lost a cable or has a slow one. All-gathers and reduce-scatters go along trees from every
// rank (gathering_trees.hpp), all-reduces along trees whose sums and copies take the same cables
// (cable_trees.hpp): few of them, and of a large buffer alone so many that all cables are equally
// full, within a percent or so.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "planner/algorithms/families.hpp"
#include "planner/algorithms/grid_shares.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/groups/rank_grid.hpp"
#include "planner/packing/cable_trees.hpp"
#include "planner/packing/gathering_trees.hpp"
#include "planner/pipeline/forest_schedule.hpp"
#include "planner/pipeline/paired_trees.hpp"

namespace rackrail::planner {

namespace {

constexpr std::string_view kMeshTrees = "mesh-trees";
constexpr std::size_t kMostRanksOfMeshes = 1024;  // beyond, a tree from each is millions of moves
/// Of an all-reduce: as many within these limits as divide the cables best.
struct TreeCount {
  std::size_t fewest;
  std::size_t most;
};
constexpr TreeCount kFewTrees{32, 64};
constexpr TreeCount kManyTrees{512, 576};
constexpr std::int64_t kMostTreesOfRank = 16;  // of either half
// Times the depth of trees: more pieces in all gain less than half a percent.
constexpr std::size_t kPiecesByDepth = 512;
constexpr std::size_t kRoundsOfLargeBuckets = 4;
constexpr std::size_t kTimesMoreRounds = 2;  // from one form to the next
constexpr std::size_t kTimesMoreRoundsOfMany = 8;
constexpr std::uint32_t kSlicesOfTrees = 2;

/// Cables as routes either way, which graphs refer to while they are made.
struct CableRoutes {
  explicit CableRoutes(const RankCables& cables) {
    for (const Cable& cable : cables.cables) {
      there.push_back({cable.there});
      back.push_back({cable.back});
    }
  }
  std::vector<topology::Route> there;
  std::vector<topology::Route> back;
};

std::vector<PairedArc> arcs_of(const CableTree& tree, const RankCables& cables,
                               const CableRoutes& routes) {
  std::vector<std::uint32_t> order(tree.parent.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t v) { return tree.depth[v]; });
  std::vector<PairedArc> arcs;
  for (const std::uint32_t v : order) {
    if (v == tree.root) {
      continue;
    }
    const topology::Route* there = &routes.there[tree.cable[v]];
    const topology::Route* back = &routes.back[tree.cable[v]];
    const bool is_there = cables.cables[tree.cable[v]].a == tree.parent[v];
    arcs.push_back({.from = Rank(tree.parent[v]),
                    .to = Rank(v),
                    .is_whole = true,
                    .down = is_there ? there : back,
                    .up = is_there ? back : there});
  }
  return arcs;
}

std::size_t transfers_in_one_round(const std::vector<CableTree>& trees) {
  return 2 * trees.size() * (trees.front().parent.size() - 1);
}

/// An all-reduce.
class CableGraphs {
 public:
  CableGraphs(const topology::Topology& topology, TreeCount count)
      : cables_(find_cables(topology).value()),
        routes_(cables_),
        trees_(cable_trees(cables_, count.fewest, count.most).trees) {}

  plan::TransferGraph make(const ScheduleRequest& request, std::size_t rounds,
                           std::uint32_t slices) const {
    return with_mechanism(
        added(request, rounds, slices).take(),
        fmt::format("{} trees of cables, {}", trees_.size(), in_rounds_text(rounds)));
  }

  /// In one round, and in ever more of them up to so many transfers.
  static void add_forms(const ScheduleRequest& request, TreeCount count, std::size_t transfers,
                        std::uint32_t slices, std::vector<CollectiveForm>& forms) {
    const auto graphs = std::make_shared<const CableGraphs>(request.topology, count);
    const FormShape one =
        CollectiveForm(graphs->added(request, 1, 1).take_in_stages(), request.topology).shape();
    std::vector<std::size_t> rounds;
    for (std::size_t more = graphs->most_rounds(request, transfers); more > 0;
         more /= request.topology.rank_count() >= kVeryManyRanks ? kTimesMoreRoundsOfMany
                                                                 : kTimesMoreRounds) {
      rounds.insert(rounds.begin(), more);
    }
    if (rounds.front() > 1) {
      rounds.insert(rounds.begin(), 1);
    }
    for (const std::size_t number : rounds) {
      forms.emplace_back(
          graphs->in_rounds_of(one, number, slices),
          [graphs, request, number, slices] { return graphs->make(request, number, slices); });
    }
  }

 private:
  PairedTrees added(const ScheduleRequest& request, std::size_t rounds,
                    std::uint32_t slices) const {
    PairedTrees graph(std::string(kMeshTrees), request, slices);
    for (const CableTree& tree : trees_) {
      graph.add({.arcs = arcs_of(tree, cables_, routes_), .pieces = rounds});
    }
    return graph;
  }

  std::size_t most_rounds(const ScheduleRequest& request, std::size_t transfers) const {
    std::uint32_t deepest = 0;
    for (const CableTree& tree : trees_) {
      deepest = std::max(deepest, *std::ranges::max_element(tree.depth));
    }
    const std::size_t enough = kPiecesByDepth * deepest / trees_.size() + 1;
    return std::max<std::size_t>(
        1, std::min({request.most_rounds, enough, transfers / transfers_in_one_round(trees_)}));
  }

  FormShape in_rounds_of(const FormShape& one, std::size_t rounds, std::uint32_t slices) const {
    FormShape shape = one;
    shape.largest_share /= static_cast<double>(rounds);
    shape.transfers *= static_cast<std::int64_t>(rounds);
    shape.slices = slices;
    // Chains of dependencies are as long, links carry as much. More pieces are rounded, and none is
    // empty once each has an element.
    shape.bound->rounding = shape.bound->rounding * static_cast<std::int64_t>(rounds);
    shape.bound->fewest_elements = static_cast<std::int64_t>(rounds * trees_.size());
    return shape;
  }

  RankCables cables_;
  CableRoutes routes_;
  std::vector<CableTree> trees_;
};

class MeshTrees final : public ScheduleFamily {
 public:
  std::string_view name() const override { return kMeshTrees; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() > kMostRanksOfMeshes) {
      return "there are too many ranks for a tree from each of them";
    }
    if (auto refusal = refuse_lossy_hops(codecs)) {
      return refusal;
    }
    if (!find_cables(topology)) {
      return "ranks are not all joined by direct links in both directions";
    }
    if (const auto found = find_rank_grid(topology);
        std::holds_alternative<RankGrid>(found) &&
        are_lines_even(std::get<RankGrid>(found), topology)) {
      return "ranks form an even grid, which the torus schedules are for";
    }
    return std::nullopt;
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return CableGraphs(request.topology, kFewTrees).make(request, 1, 1);
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const CableGraphs trees(request.topology, kFewTrees);
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(trees.make(request, 1, 1));
    if (kRoundsOfLargeBuckets * graphs[0].transfers().size() <= request.most_transfers) {
      graphs.push_back(trees.make(request, kRoundsOfLargeBuckets, 1));
    }
    return graphs;
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    std::vector<CollectiveForm> forms;
    if (!find_cables(request.topology)) {
      return forms;
    }
    if (what != plan::Collective::kAllReduce) {
      add_halves(what, request, forms);
      return forms;
    }
    // Each ever more transfers, and the second fewer than the first to begin with: series of their
    // own (DivisionSearch).
    const std::size_t most = kTimesMoreTransfersOfTrees * request.most_pieces();
    if (2 * kManyTrees.most * (request.topology.rank_count() - 1) <= most) {
      CableGraphs::add_forms(request, kManyTrees, most, kSlicesOfTrees, forms);
    }
    CableGraphs::add_forms(request, kFewTrees, request.most_transfers, 1, forms);
    return forms;
  }

 private:
  static void add_halves(plan::Collective what, const ScheduleRequest& request,
                         std::vector<CollectiveForm>& forms) {
    const std::size_t ranks = request.topology.rank_count();
    const bool reversed = what == plan::Collective::kReduceScatter;
    const std::size_t of_one_tree = ranks * (ranks - 1);
    const auto most_trees = static_cast<std::int64_t>(request.most_transfers / of_one_tree);
    const auto trees = std::make_shared<const Forest>(
        gathering_trees(request.topology, std::clamp<std::int64_t>(most_trees, 1, kMostTreesOfRank),
                        reversed)
            .value());
    const auto along = [=](std::size_t rounds, Pace pace) {
      return reversed ? reduce_scatter_along(*trees, request, rounds, pace, kMeshTrees)
                      : all_gather_along(*trees, request, rounds, pace, kMeshTrees);
    };
    const FormShape one = CollectiveForm(along(1, Pace::kStages), request.topology).shape();
    const std::size_t most = std::min(
        request.most_rounds, request.most_transfers / static_cast<std::size_t>(one.transfers));
    for (std::size_t rounds = 1; rounds == 1 || rounds <= most; rounds *= kTimesMoreRounds) {
      forms.emplace_back(in_rounds(one, reversed ? trees.get() : nullptr,
                                   reversed ? nullptr : trees.get(), rounds, Pace::kUrgent),
                         [along, rounds] { return along(rounds, Pace::kUrgent); });
    }
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_mesh_trees() { return std::make_unique<MeshTrees>(); }

}  // namespace rackrail::planner

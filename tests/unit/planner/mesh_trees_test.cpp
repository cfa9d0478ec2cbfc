// Trees on meshes that have lost cables or have slow ones, against the exact bounds, link by link.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/packing/cable_trees.hpp"
#include "planner/packing/cables.hpp"
#include "planner/packing/gathering_trees.hpp"
#include "planner/tuning/candidates.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "tests/support/broken_grids.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/form_checks.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner::mesh_trees_test {
namespace {

using topology::Topology;

std::vector<Topology> broken_grids() {
  return {test::broken_grid(5, 6, false, {{20}}), test::broken_grid(5, 6, true, {{20}}),
          test::broken_grid(4, 7, true, {{20}, {36, Bandwidth(250'000'000)}}),
          test::broken_grid(3, 5, false, {{10, Bandwidth(100'000'000)}}),
          test::broken_grid(8, 8, false, {{60}, {62}, {120, Bandwidth(400'000'000)}})};
}

/// Whether every rank but the root hangs by a cable on its parent, one deeper than it.
bool spans(const CableTree& tree, const RankCables& cables) {
  for (std::uint32_t v = 0; v < tree.parent.size(); ++v) {
    if (v == tree.root) {
      continue;
    }
    const Cable& cable = cables.cables[tree.cable[v]];
    const bool is_joined =
        (cable.a == v && cable.b == tree.parent[v]) || (cable.b == v && cable.a == tree.parent[v]);
    if (!is_joined || tree.depth[v] != tree.depth[tree.parent[v]] + 1) {
      return false;
    }
  }
  return tree.depth[tree.root] == 0;
}

TEST_CASE("trees that take cables both ways span all ranks and reach the joint optimum") {
  for (const Topology& topology : broken_grids()) {
    const RankCables cables = find_cables(topology).value();
    const CableTrees found = cable_trees(cables, 512, 576);
    std::vector<double> seconds(topology.link_count());  // for a byte of the buffer
    for (const CableTree& tree : found.trees) {
      REQUIRE(spans(tree, cables));
      for (std::uint32_t v = 0; v < tree.parent.size(); ++v) {
        if (v != tree.root) {
          const Cable& cable = cables.cables[tree.cable[v]];
          for (const LinkId link : {cable.there, cable.back}) {
            seconds[link.index()] +=
                1 / static_cast<double>(found.trees.size()) /
                static_cast<double>(topology.link(link).bandwidth.bytes_per_second());
          }
        }
      }
    }
    const double rate = 1 / *std::ranges::max_element(seconds);
    const auto optimum =
        static_cast<double>(topology::joint_allreduce_bound(topology).algbw.bytes_per_second());
    CAPTURE(topology.rank_count(), found.trees.size(), rate / optimum);
    CHECK(rate == Approx(found.algbw).epsilon(1e-9));
    CHECK(rate <= optimum * (1 + 1e-6));
    CHECK(rate >= optimum * 0.99);
  }
}

TEST_CASE("trees from every rank of a broken grid reach the bounds of both halves") {
  for (const Topology& topology : broken_grids()) {
    for (const bool reversed : {false, true}) {
      const Forest forest = gathering_trees(topology, 16, reversed).value();
      std::vector<double> seconds(topology.link_count());  // for a byte of the whole
      const auto ranks = static_cast<double>(topology.rank_count());
      int wrong = 0;
      for (const Tree& tree : forest.trees) {
        std::vector<bool> has(topology.rank_count());
        has[tree.root.index()] = true;
        for (const TreeArc& arc : tree.arcs) {
          wrong += has[arc.from.index()] && !has[arc.to.index()] ? 0 : 1;
          has[arc.to.index()] = true;
          const LinkId id = forest.routes[arc.route].at(0);
          const topology::Link& link = topology.link(id);
          wrong += link.from == topology.node_of(reversed ? arc.to : arc.from) ? 0 : 1;
          wrong += link.to == topology.node_of(reversed ? arc.from : arc.to) ? 0 : 1;
          seconds[id.index()] += 1 / (ranks * static_cast<double>(forest.trees_per_rank)) /
                                 static_cast<double>(link.bandwidth.bytes_per_second());
        }
        wrong += static_cast<int>(std::ranges::count(has, false));
      }
      CHECK(wrong == 0);
      const auto bound = static_cast<double>(
          (reversed ? topology::reducescatter_bound(topology) : topology::allgather_bound(topology))
              .algbw.bytes_per_second());
      const double rate = 1 / *std::ranges::max_element(seconds);
      CAPTURE(topology.rank_count(), reversed, forest.trees_per_rank, rate / bound);
      CHECK(rate <= bound * (1 + 1e-6));
      CHECK(rate >= bound * 0.985);
    }
  }
}

TEST_CASE("trees on meshes are right in all collectives, and what they say of themselves is") {
  for (const Topology& topology : {test::broken_grid(3, 4, false, {{8}}),
                                   test::broken_grid(3, 5, true, {{8, Bandwidth(300'000'000)}})}) {
    topology::Router router = make_router(topology);
    const ScheduleFamily& family = schedule_family("mesh-trees");
    for (const auto what : {plan::Collective::kAllReduce, plan::Collective::kAllGather,
                            plan::Collective::kReduceScatter}) {
      for (const CollectiveForm& form :
           collective_forms(family, what, topology, router, {}, {.is_of_one_size = true})) {
        INFO(topology.rank_count() << " ranks, " << form.shape().transfers << " transfers");
        CHECK(plan::verify(form.graph(), &topology).problems == std::vector<std::string>{});
        check_shape(form, topology);
      }
    }
  }
}

TEST_CASE("resources of a machine are no ways for trees, nor are what they join ranks in between") {
  Topology topology = test::broken_grid(3, 4, false, {{8}});
  const std::size_t cables = find_cables(topology).value().cables.size();
  const NodeId cores[] = {topology.add_node({.name = "in", .kind = topology::NodeKind::kCpu}),
                          topology.add_node({.name = "out", .kind = topology::NodeKind::kCpu})};
  topology::Link shared;
  shared.kind = topology::LinkKind::kShared;
  shared.bandwidth = Bandwidth(100'000'000'000);
  for (const auto& [from, to] : {std::pair(topology.node_of(Rank(0)), topology.node_of(Rank(11))),
                                 std::pair(cores[0], cores[1])}) {
    shared.from = from;
    shared.to = to;
    topology.add_duplex_link(shared);
  }
  CHECK(find_cables(topology).value().cables.size() == cables);
  topology::Router router(topology);
  for (const plan::Collective what : {plan::Collective::kAllReduce, plan::Collective::kAllGather,
                                      plan::Collective::kReduceScatter}) {
    for (const CollectiveForm& form :
         collective_forms(schedule_family("mesh-trees"), what, topology, router, {}, {})) {
      for (std::size_t r = 0; r < form.graph().routes().size(); ++r) {
        for (const LinkId link : form.graph().routes()[r]) {
          CHECK(topology.link(link).kind != topology::LinkKind::kShared);
        }
      }
    }
  }
  CHECK(topology::joint_allreduce_bound(topology).algbw > Bandwidth(0));
}

TEST_CASE("the least fullness is the first with room for all trees in whole numbers") {
  const std::vector<double> rates = {3, 5, 7};
  CHECK(least_fullness(rates, 15) == Approx(1));       // 3, 5 and 7
  CHECK(least_fullness(rates, 1) == Approx(1.0 / 7));  // by the widest
  CHECK(least_fullness(rates, 2) == Approx(1.0 / 5));
  CHECK(least_fullness(rates, 4) == Approx(1.0 / 3));  // 1, 1 and 2
  CHECK(least_fullness(rates, 16) == Approx(8.0 / 7));
}

TEST_CASE("trees are the same each time") {
  const Topology topology = test::broken_grid(6, 7, false, {{30}});
  const RankCables cables = find_cables(topology).value();
  const auto parents = [&] {
    std::vector<std::vector<std::uint32_t>> all;
    for (const CableTree& tree : cable_trees(cables, 32, 64).trees) {
      all.push_back(tree.parent);
    }
    return all;
  };
  CHECK(parents() == parents());
  CHECK(gathering_trees(topology, 2).value() == gathering_trees(topology, 2).value());
}

TEST_CASE("trees on meshes leave even grids, and ranks behind switches, to others") {
  const ScheduleFamily& family = schedule_family("mesh-trees");
  CHECK(family.refusal(test::grid(4, 5, false), {}));
  CHECK(family.refusal(test::grid(4, 5, true), {}));
  CHECK(family.refusal(test::boxes(2, 2), {}));
  CHECK_FALSE(family.refusal(test::broken_grid(4, 5, false, {{8}}), {}));
  CHECK_FALSE(family.refusal(test::broken_grid(4, 5, true, {{8, Bandwidth(300'000'000)}}), {}));
  CHECK_FALSE(find_cables(test::broken_grid(2, 2, false, {{0}, {2}, {4}, {6}})));
}

}  // namespace
}  // namespace rackrail::planner::mesh_trees_test

// Stages and device programs of every schedule family on several clusters, against exact sums and
// against the executor, which interprets the same graphs by other means.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/rank_groups.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/device_simulation.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::device_property_test {
namespace {

constexpr unsigned kSeed = 90;
using Gradients = std::vector<std::vector<std::vector<float>>>;  // by rank and bucket

Gradients gradients_of(const plan::Plan& plan, bool whole_numbers) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  Gradients gradients(plan.rank_count());
  for (auto& of_rank : gradients) {
    for (const plan::Bucket& bucket : plan.buckets) {
      auto& values = of_rank.emplace_back(static_cast<std::size_t>(bucket.elements));
      for (float& value : values) {
        value = whole_numbers ? static_cast<float>(static_cast<int>(random() % 31) - 15)
                              : normal(random);
      }
    }
  }
  return gradients;
}

std::vector<std::vector<double>> sums(const Gradients& gradients) {
  std::vector<std::vector<double>> result;
  for (std::size_t b = 0; b < gradients[0].size(); ++b) {
    auto& sum = result.emplace_back(gradients[0][b].size(), 0.0);
    for (const auto& of_rank : gradients) {
      for (std::size_t i = 0; i < sum.size(); ++i) {
        sum[i] += double{of_rank[b][i]};
      }
    }
  }
  return result;
}

bool are_alike(const Gradients& gradients) {
  return std::all_of(gradients.begin(), gradients.end(),
                     [&](const auto& of_rank) { return of_rank == gradients[0]; });
}

double relative_error(const std::vector<std::vector<float>>& found,
                      const std::vector<std::vector<double>>& expected) {
  double error = 0;
  double whole = 0;
  for (std::size_t b = 0; b < found.size(); ++b) {
    for (std::size_t i = 0; i < found[b].size(); ++i) {
      error += std::pow(double{found[b][i]} - expected[b][i], 2);
      whole += std::pow(expected[b][i], 2);
    }
  }
  return std::sqrt(error / whole);
}

RankGroups groups_of(const topology::Topology& topology) {
  RankGroups groups;
  for (const topology::RankGroup& group : planner::tier_groups(topology)) {
    groups.push_back(group.ranks);
  }
  return groups;
}

topology::Topology cluster(int number) {
  switch (number) {
    case 0:
      return test::boxes(1, 1);
    case 1:
      return test::boxes(2, 2);
    case 2:
      return test::two_racks();
    case 3:
      return test::clos({3, 3, 3}, 1);
    default:
      return test::clos({2, 3}, 1);
  }
}

std::vector<plan::TransferGraph> all_reduces(const topology::Topology& topology,
                                             const planner::TierCodecs& codecs) {
  topology::Router router(topology);
  std::vector<plan::TransferGraph> graphs;
  for (const auto& family : planner::schedule_families()) {
    if (!family->refusal(topology, codecs)) {
      graphs.push_back(family->all_reduce({topology, router, codecs}));
    }
  }
  return graphs;
}

TEST_CASE("device programs sum exactly, in any order that lanes allow") {
  const int number = GENERATE(0, 1, 2, 3, 4);
  const topology::Topology topology = cluster(number);
  const RankGroups groups = groups_of(topology);
  CAPTURE(number, kSeed);
  std::size_t checked = 0;
  for (plan::TransferGraph& graph : all_reduces(topology, {})) {
    CAPTURE(graph.name());
    const plan::Plan plan = plan_of(std::move(graph), {5'003, 5, 2'048}, 1'024);
    DeviceSimulation simulation(plan, groups, kSeed);
    Gradients gradients = gradients_of(plan, true);
    const auto expected = sums(gradients);
    REQUIRE_NOTHROW(simulation.run(0, gradients));
    CHECK(are_alike(gradients));
    CHECK(relative_error(gradients[0], expected) == 0);
    // Numbers whose sums depend on the order: all ranks have the same bits nevertheless.
    gradients = gradients_of(plan, false);
    const auto near = sums(gradients);
    REQUIRE_NOTHROW(simulation.run(1, gradients));
    CHECK(are_alike(gradients));
    CHECK(relative_error(gradients[0], near) < 1e-6);
    ++checked;
  }
  CHECK(checked >= 4);
}

TEST_CASE("device programs sum exactly whatever the groups are") {
  const int number = GENERATE(0, 2, 3, 4);
  const std::string codec = GENERATE("none", "fp16");
  const plan::Codec descriptor = plan::parse_codec(codec);
  const topology::Topology topology = cluster(number);
  std::mt19937 random(kSeed);
  std::size_t collectives = 0;
  for (const plan::TransferGraph& graph :
       all_reduces(topology, {.inside = descriptor, .across = descriptor})) {
    for (int round = 0; round < 6; ++round) {
      RankGroups groups(1 + random() % graph.rank_count());
      for (std::size_t r = 0; r < graph.rank_count(); ++r) {
        groups[random() % groups.size()].emplace_back(r);
      }
      std::erase_if(groups, [](const auto& group) { return group.empty(); });
      for (auto& group : groups) {
        std::shuffle(group.begin(), group.end(), random);
      }
      CAPTURE(number, codec, graph.name(), round, groups.size(), kSeed);
      const plan::Plan plan = plan_of(graph, {3'001, 2}, 1'024);
      DeviceSimulation simulation(plan, groups, kSeed + static_cast<unsigned>(round));
      for (const DeviceOperation& operation : simulation.programs[0][0].operations) {
        collectives += std::holds_alternative<CollectiveOperation>(operation.what) ? 1 : 0;
      }
      Gradients gradients = gradients_of(plan, true);
      const auto expected = sums(gradients);
      REQUIRE_NOTHROW(simulation.run(0, gradients));
      CHECK(are_alike(gradients));
      CHECK(relative_error(gradients[0], expected) == 0);  // whole numbers, small for FP16 too
      gradients = gradients_of(plan, false);
      REQUIRE_NOTHROW(simulation.run(1, gradients));
      CHECK(are_alike(gradients));
    }
  }
  CHECK((collectives > 0) == (codec == "none"));
}

TEST_CASE("device programs with codecs between groups leave all ranks with the same bits") {
  const int number = GENERATE(1, 2, 3);
  const std::string across = GENERATE("fp16", "int8", "topk:density=0.1");
  const bool fuses = GENERATE(false, true);
  const topology::Topology topology = cluster(number);
  const RankGroups groups = groups_of(topology);
  CAPTURE(number, across, fuses, kSeed);
  std::size_t checked = 0;
  for (plan::TransferGraph& graph :
       all_reduces(topology, {.inside = {}, .across = plan::parse_codec(across)})) {
    CAPTURE(graph.name());
    const bool is_hierarchical = graph.name() == "hierarchical";
    const plan::Plan plan = plan_of(std::move(graph), {5'003, 3'072}, 1'024);
    DeviceSimulation simulation(plan, groups, kSeed, fuses);
    Gradients gradients = gradients_of(plan, true);
    const auto expected = sums(gradients);
    REQUIRE_NOTHROW(simulation.run(0, gradients));
    CHECK(are_alike(gradients));
    CHECK(relative_error(gradients[0], expected) < (across[0] == 't' ? 1.0 : 0.05));
    ++checked;
    if (is_hierarchical) {
      // The sums inside come first and are of whole numbers, so their order does not show.
      Ranks job(plan);
      Gradients by_executor = gradients_of(plan, true);
      on_every_rank(plan.rank_count(), [&](Rank rank) {
        job[rank].begin_step(0);
        for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
          job[rank].launch(BucketId(b), by_executor[rank.index()][b]);
        }
        job[rank].wait_all();
      });
      CHECK(gradients == by_executor);
    }
  }
  CHECK(checked >= 1);
}

TEST_CASE("device programs with sums fused into encodings give the bits of those without") {
  const int number = GENERATE(0, 2, 3, 4);
  const std::string codec = GENERATE("fp16", "int8", "fp8");
  const plan::Codec descriptor = plan::parse_codec(codec);
  const topology::Topology topology = cluster(number);
  CAPTURE(number, codec, kSeed);
  std::size_t fused = 0;
  for (const plan::TransferGraph& graph :
       all_reduces(topology, {.inside = descriptor, .across = descriptor})) {
    CAPTURE(graph.name());
    const plan::Plan plan = plan_of(graph, {5'003, 3'072}, 1'024);
    RankGroups alone;  // no sums in an order of their own
    for (std::size_t r = 0; r < graph.rank_count(); ++r) {
      alone.push_back({Rank(r)});
    }
    Gradients gradients = gradients_of(plan, false);
    Gradients by_fused = gradients;
    DeviceSimulation apart(plan, alone, kSeed);
    DeviceSimulation together(plan, alone, kSeed + 1, true);
    for (std::uint32_t step = 0; step < 2; ++step) {
      REQUIRE_NOTHROW(apart.run(step, gradients));
      REQUIRE_NOTHROW(together.run(step, by_fused));
      CHECK(by_fused == gradients);
    }
    CHECK(apart.residuals == together.residuals);
    for (const auto& of_rank : together.programs) {
      for (const DeviceOperation& operation : of_rank[0].operations) {
        const auto* encode = std::get_if<EncodeOperation>(&operation.what);
        fused += encode != nullptr ? encode->addends.size() : 0;
      }
    }
  }
  CHECK(fused > 0);
}

TEST_CASE("hierarchical schedules are collectives inside and messages across") {
  const topology::Topology topology = test::boxes(2, 2);
  const RankGroups groups = groups_of(topology);
  for (plan::TransferGraph& graph :
       all_reduces(topology, {.inside = {}, .across = plan::parse_codec("int8")})) {
    if (graph.name() != "hierarchical") {
      continue;
    }
    const plan::Plan plan = plan_of(std::move(graph), {16 * 1'024}, 1'024);
    DeviceSimulation simulation(plan, groups, kSeed);
    for (const auto& of_rank : simulation.programs) {
      std::vector<DeviceLane> lanes;
      std::vector<CollectiveKind> kinds;
      for (const DeviceOperation& operation : of_rank[0].operations) {
        lanes.push_back(operation.lane);
        if (const auto* c = std::get_if<CollectiveOperation>(&operation.what)) {
          kinds.push_back(c->kind);
        }
      }
      using enum DeviceLane;
      CHECK(lanes ==
            std::vector{kSum, kEncode, kMessages, kDecode, kEncode, kMessages, kDecode, kGather});
      CHECK(kinds == std::vector{CollectiveKind::kReduceScatter, CollectiveKind::kAllGather});
    }
    return;
  }
  FAIL("there is no hierarchical schedule");
}

TEST_CASE("the verifier's word holds for stages: a graph that loses a contribution shows") {
  // The independent judge itself must be able to say no.
  const topology::Topology topology = test::two_racks();
  const RankGroups groups = groups_of(topology);
  for (const plan::TransferGraph& graph : all_reduces(topology, {})) {
    plan::TransferGraph damaged(graph.name(), graph.collective(), graph.rank_count(),
                                {graph.chunk_weights().begin(), graph.chunk_weights().end()});
    for (const auto& route : graph.routes()) {
      damaged.add_route(route);
    }
    std::vector<TransferId> renumbered(graph.transfers().size());
    bool has_dropped = false;
    for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
      const plan::Transfer& t = graph.transfers()[i];
      if (!has_dropped && t.op == plan::TransferOp::kReduce) {
        has_dropped = true;
        continue;
      }
      std::vector<TransferId> after;
      for (const TransferId d : graph.dependencies(TransferId(i))) {
        if (d.index() != 0) {
          after.push_back(renumbered[d.index()]);
        }
      }
      renumbered[i] = damaged.add_transfer(t, after);
    }
    CAPTURE(graph.name());
    REQUIRE(has_dropped);
    REQUIRE_FALSE(plan::verify(damaged, nullptr).ok());
    const plan::Plan plan = plan_of(std::move(damaged), {4'096}, 1'024);
    DeviceSimulation simulation(plan, groups, kSeed);
    Gradients gradients = gradients_of(plan, true);
    const auto expected = sums(gradients);
    simulation.run(0, gradients);
    CHECK_FALSE((are_alike(gradients) && relative_error(gradients[0], expected) == 0));
  }
}

}  // namespace
}  // namespace rackrail::runtime::device_property_test

// What the search leaves out from 96 ranks on: the rules that it does so by, against simulations on
// smaller clusters, and what it finds, against single families.
#include <catch2/catch.hpp>
#include <map>

#include "base/parse_units.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/pipeline/recode.hpp"
#include "planner/planner.hpp"
#include "planner/tuning/candidates.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::very_many_ranks_test {
namespace {

constexpr std::int64_t kSlice = 1 << 18;
constexpr double kDeviation = 0.1;  // what candidates.hpp allows for

topology::Topology cluster(const std::string& name) {
  return name == "boxes" ? test::boxes(2, 2) : test::clos({3, 5, 4}, 2);
}

TEST_CASE("k times the bytes take at least as long, and at most k times as long") {
  const std::string name = GENERATE("boxes", "uneven racks");
  const topology::Topology topology = cluster(name);
  topology::Router router(topology);
  for (const auto& family : schedule_families()) {
    // Where all ranks send to all servers at once, times jump with the order of the flows: the
    // search does not rely on it there.
    if (family->name() == "parameter-server" || family->refusal(topology, {}).has_value()) {
      continue;
    }
    const plan::TransferGraph graph = family->all_reduce({topology, router, {}});
    const auto time = [&](std::int64_t elements) {
      return sim::simulate_collective(graph, elements, kSlice, topology, {}).time;
    };
    Duration last = time(1 << 13);
    for (std::int64_t elements = 1 << 14; elements <= 1 << 24; elements *= 2) {
      const Duration now = time(elements);
      CAPTURE(name, family->name(), elements, now / last);
      CHECK(now >= scaled(last, 1 - kDeviation));
      CHECK(now <= scaled(last, 2 * (1 + kDeviation)));
      last = now;
    }
  }
}

TEST_CASE("a codec saves at most its ratio of what FP32 takes") {
  const std::string name = GENERATE("boxes", "uneven racks");
  const plan::Codec codec{.kind = GENERATE(plan::CodecKind::kFp16, plan::CodecKind::kInt8Block)};
  const topology::Topology topology = cluster(name);
  topology::Router router(topology);
  const TierCodecs codecs{codec, codec};
  for (const auto& family : schedule_families()) {
    if (family->refusal(topology, codecs).has_value()) {
      continue;
    }
    const plan::TransferGraph graph = family->all_reduce({topology, router, codecs});
    const plan::TransferGraph plain = recoded(graph, topology, {});
    for (std::int64_t elements = 1 << 14; elements <= 1 << 24; elements *= 4) {
      const auto time = [&](const plan::TransferGraph& one) {
        return sim::simulate_collective(one, elements, kSlice, topology, {}).time;
      };
      const double ratio = plan::encoded_size(codec, elements) / Bytes(4 * elements);
      const double saved = time(graph) / time(plain);
      CAPTURE(name, plan::to_string(codec), family->name(), elements, ratio, saved);
      CHECK(saved >= ratio * (1 - kDeviation));
    }
  }
}

TEST_CASE("for very many ranks the plan is no slower than that of any one family") {
  const topology::Topology topology = test::clos({32, 32, 32}, 6);
  REQUIRE(topology.rank_count() == kVeryManyRanks);
  const plan::Workload workload = plan::read_workload("resnet-50", topology::configs_folder());
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  options.codec = plan::Codec{};
  options.bucket_size = 100_MiB;
  options.compare_baselines = false;
  const Duration free = make_plan(topology, workload, *costs, options).prediction.step_time;
  for (const char* family : {"ring", "double-binary-tree", "hierarchical", "halving-doubling"}) {
    CAPTURE(family);
    options.schedule = family;
    CHECK(free <= make_plan(topology, workload, *costs, options).prediction.step_time);
  }
}

}  // namespace
}  // namespace rackrail::planner::very_many_ranks_test

#include "planner/batch/batch.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "planner/batch/batch_space.hpp"

namespace rackrail::planner::batch_test {
namespace {

topology::Topology two_gpus(Bytes memory) {
  topology::Topology topology("two");
  for (const char* name : {"a", "b"}) {
    topology.add_rank(topology.add_node(
        {.name = name, .kind = topology::NodeKind::kGpu, .host = name, .memory = memory}));
  }
  topology.add_duplex_link({.from = NodeId(0), .to = NodeId(1), .bandwidth = 10_Gbps});
  return topology;
}

plan::Workload model() {
  plan::Workload workload;
  workload.name = "model";
  workload.profiled_batch = 32;
  workload.memory_fixed = 1_GiB;
  workload.memory_per_sample = 100_MiB;
  workload.base_batch = 64;
  workload.base_learning_rate = 0.1;
  return workload;
}

TEST_CASE("without a noise scale the profiled batch stays, unless memory has no room for it") {
  CHECK(local_batches(two_gpus(16_GiB), model(), {}) == std::vector<std::int64_t>{32});
  CHECK(local_batches(two_gpus(2_GiB), model(), {}) == std::vector<std::int64_t>{10});
  CHECK_THROWS_AS(local_batches(two_gpus(1_GiB), model(), {}), ConfigError);
}

TEST_CASE("a batch that was asked for must fit") {
  PlannerOptions options;
  options.local_batch = 64;
  CHECK(local_batches(two_gpus(16_GiB), model(), options) == std::vector<std::int64_t>{64});
  CHECK_THROWS_AS(local_batches(two_gpus(2_GiB), model(), options), ConfigError);
}

TEST_CASE("with a noise scale powers of two up to the limits are offered") {
  plan::Workload workload = model();
  workload.noise_scale = 1000;
  PlannerOptions options;
  options.max_global_batch = 64;
  CHECK(local_batches(two_gpus(16_GiB), workload, options) ==
        std::vector<std::int64_t>{1, 2, 4, 8, 16, 32});
}

TEST_CASE("a larger batch is worth less per sample, by the noise scale") {
  plan::Workload workload = model();
  CHECK(statistical_efficiency(workload, 4096) == 1);
  workload.noise_scale = 936;
  CHECK(statistical_efficiency(workload, 64) == Approx(1));
  CHECK(statistical_efficiency(workload, 1064) == Approx(0.5));
}

TEST_CASE("batches say how many samples each rank has") {
  plan::BatchPlan batch;
  batch.local_batch = {56, 16, 24};
  CHECK(!is_same_everywhere(batch));
  CHECK(local_batch_text(batch) == "16 to 56 samples on a rank");
  CHECK(local_batch_text(same_everywhere(batch)) == "32 samples on every rank");
  batch.accumulation = 2;
  CHECK(local_batch_text(batch) == "16 to 56 samples on a rank a pass");
  batch.local_batch = {8};
  CHECK(is_same_everywhere(batch));
}

TEST_CASE("an even batch is as large on average, if the smallest memory has room") {
  topology::Topology topology("unlike");
  const NodeId fabric = topology.add_node({.name = "switch", .kind = topology::NodeKind::kSwitch});
  for (const char* device_class : {"A100", "V100"}) {
    const bool is_small = topology.rank_count() == 1;
    const NodeId node = topology.add_node({.name = device_class,
                                           .kind = topology::NodeKind::kGpu,
                                           .host = device_class,
                                           .device_class = device_class,
                                           .memory = is_small ? 2_GiB : 16_GiB});
    topology.add_rank(node);
    topology.add_duplex_link({.from = node, .to = fabric, .bandwidth = 10_Gbps, .latency = 1_us});
  }
  const plan::Workload workload = model();
  const PlannerOptions options;
  const BatchSpace space(topology, workload, options);
  plan::BatchPlan batch;
  batch.local_batch = {12, 4};
  CHECK(space.even(batch).local_batch == std::vector<std::int64_t>{8, 8});
  batch.local_batch = {30, 10};
  CHECK(space.even(batch).local_batch == std::vector<std::int64_t>{10, 10});
  batch.local_batch = {64, 64};  // it is even already
  CHECK(space.even(batch).local_batch == batch.local_batch);
}

}  // namespace
}  // namespace rackrail::planner::batch_test

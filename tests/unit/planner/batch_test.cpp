#include "planner/batch.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::planner {
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

}  // namespace
}  // namespace rackrail::planner

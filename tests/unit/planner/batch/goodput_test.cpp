#include "planner/batch/goodput.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "planner/batch/batch_space.hpp"
#include "planner/batch/learning_rate.hpp"

namespace rackrail::planner::goodput_test {
namespace {

topology::Topology line_of(const std::vector<std::string>& classes, Bytes memory) {
  topology::Topology topology("line");
  for (const std::string& name : classes) {
    const std::string host = "host" + std::to_string(topology.rank_count());
    topology.add_rank(topology.add_node({.name = host,
                                         .kind = topology::NodeKind::kGpu,
                                         .host = host,
                                         .device_class = name,
                                         .memory = memory}));
    if (topology.rank_count() > 1) {
      const NodeId last(topology.rank_count() - 1);
      topology.add_duplex_link({.from = NodeId(topology.rank_count() - 2),
                                .to = last,
                                .bandwidth = 10_Gbps,
                                .latency = 3_us});
    }
  }
  return topology;
}

plan::Workload model() {
  plan::Workload workload;
  workload.name = "model";
  workload.device_class = "V100";
  workload.profiled_batch = 32;
  workload.forward = 20_ms;
  workload.tensors = {{"a", 1'000'000, 40_ms}};
  workload.optimizer = 2_ms;
  workload.fixed_share = 0.2;
  workload.memory_fixed = 1_GiB;
  workload.memory_per_sample = 100_MiB;
  workload.base_batch = 64;
  workload.base_learning_rate = 0.1;
  workload.noise_scale = 800;
  return workload;
}

/// A made-up step: all passes of the slowest rank, then a fixed time for synchronising of which the
/// last backward pass hides a part.
Duration step_of(const plan::BatchPlan& batch) {
  const auto local =
      static_cast<double>(*std::max_element(batch.local_batch.begin(), batch.local_batch.end()));
  const double pass = 0.012 + 0.0015 * local;
  return Duration::from_seconds(static_cast<double>(batch.accumulation) * pass +
                                std::max(0.05, 0.3 - 0.66 * pass));
}

TEST_CASE("the search finds the best batch and number of passes of the whole grid") {
  for (const double noise : {10.0, 300.0, 3000.0, 1e5}) {
    for (const Bytes memory : {2_GiB, 6_GiB, 64_GiB}) {
      CAPTURE(noise, memory.count());
      plan::Workload workload = model();
      workload.noise_scale = noise;
      const auto topology = line_of({"V100", "V100", "V100", "V100"}, memory);
      const PlannerOptions options;
      const BatchSpace space(topology, workload, options);
      const auto search = search_goodput(workload, space, step_of);
      double best = 0;
      for (std::int64_t local = 1; local <= space.room() / 4; ++local) {
        for (std::int64_t passes = 1; 4 * local * passes <= space.largest(); ++passes) {
          plan::BatchPlan batch;
          batch.local_batch.assign(4, local);
          batch.accumulation = passes;
          best = std::max(best, rate(workload, step_of, batch).goodput());
        }
      }
      CHECK(search.best.goodput() > 0.99 * best);
      CHECK(search.best.goodput() <= best * (1 + 1e-12));
      CHECK(search.tried.size() <= 30);
    }
  }
}

TEST_CASE("goodput needs a noise scale") {
  plan::Workload workload = model();
  workload.noise_scale.reset();
  const auto topology = line_of({"V100", "V100"}, 16_GiB);
  const PlannerOptions options;
  const BatchSpace space(topology, workload, options);
  CHECK_THROWS_AS(search_goodput(workload, space, step_of), ConfigError);
  CHECK(decide_batch(workload, space, BatchPolicy::kGoodput, step_of).batch.local_batch ==
        std::vector<std::int64_t>{32, 32});
}

TEST_CASE("more than memory holds is accumulated, in as few passes as there can be") {
  const auto topology = line_of({"V100", "V100"}, 2_GiB);  // 10 samples each
  const plan::Workload workload = model();
  const PlannerOptions options;
  const BatchSpace space(topology, workload, options);
  CHECK(space.room() == 20);
  CHECK(space.divide(20).accumulation == 1);
  const auto batch = space.divide(60);
  CHECK(batch.accumulation == 3);
  CHECK(batch.local_batch == std::vector<std::int64_t>{10, 10});
  CHECK(space.divide(1).global_batch() == 2);
  CHECK(space.divide(1'000'000'000).global_batch() <= space.largest());
  CHECK(space.fixed().local_batch == std::vector<std::int64_t>{10, 10});
}

TEST_CASE("faster devices get more samples, and all finish together") {
  const auto topology = line_of({"V100", "A100", "V100", "H100"}, 64_GiB);
  const plan::Workload workload = model();
  const PlannerOptions options;
  const BatchSpace space(topology, workload, options);
  const auto batch = space.fixed();
  CHECK(batch.global_batch() == 4 * 32);
  CHECK(batch.local_batch[0] == batch.local_batch[2]);
  CHECK(batch.local_batch[1] > batch.local_batch[0]);
  CHECK(batch.local_batch[3] > batch.local_batch[1]);
  REQUIRE(space.describe(batch).has_value());
  CHECK_THAT(*space.describe(batch), Catch::Contains("devices differ"));
  PlannerOptions asked;
  asked.local_batch = 16;
  const BatchSpace settled(topology, workload, asked);
  CHECK(settled.fixed().local_batch == std::vector<std::int64_t>(4, 16));
  CHECK_FALSE(settled.describe(settled.fixed()).has_value());
}

TEST_CASE("the rule by latency is what its formula says") {
  CHECK(batch_by_latency(4096, 2_us, 2_us) == 4096);
  CHECK(batch_by_latency(4096, 2_us, 8_us) == 1024);
  CHECK(batch_by_latency(4096, 8_us, 2_us) == 4096);
  CHECK(batch_by_latency(4, 1_us, 1000_us) == 1);
  CHECK_THROWS_AS(batch_by_latency(4096, Duration(), 1_us), ConfigError);
  // Host 0 reaches host 1 in 3 us and host 3 in 9 us.
  const auto topology = line_of({"V100", "V100", "V100", "V100"}, 2_GiB);
  const plan::Workload workload = model();
  const PlannerOptions options;
  CHECK(BatchSpace(topology, workload, options).by_latency().global_batch() == 12);
}

TEST_CASE("policies are compared, and the one that was asked for decides") {
  const auto topology = line_of({"V100", "V100", "V100", "V100"}, 64_GiB);
  const plan::Workload workload = model();
  const PlannerOptions options;
  const BatchSpace space(topology, workload, options);
  for (const BatchPolicy policy :
       {BatchPolicy::kGoodput, BatchPolicy::kLatency, BatchPolicy::kFixed}) {
    const auto decision = decide_batch(workload, space, policy, step_of);
    REQUIRE(decision.notes.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      const bool chosen = decision.notes[i].find("(chosen)") != std::string::npos;
      CHECK(chosen == (i == static_cast<std::size_t>(policy)));
    }
    const auto goodput = [&](BatchPolicy p) {
      return rate(workload, step_of, decide_batch(workload, space, p, step_of).batch).goodput();
    };
    CHECK(goodput(BatchPolicy::kGoodput) >= goodput(policy));
  }
  CHECK(parse_batch_policy("latency") == BatchPolicy::kLatency);
  CHECK_THROWS_AS(parse_batch_policy("luck"), ConfigError);
}

TEST_CASE("learning rates follow the batch by the rule that was asked for") {
  const plan::Workload workload = model();
  plan::BatchPlan batch;
  batch.local_batch = {32, 32};
  set_learning_rate(batch, workload, LearningRateRule::kLinear);
  CHECK(batch.learning_rate == Approx(0.1));
  CHECK(batch.warmup_steps == 0);
  batch.local_batch = {128, 128};
  set_learning_rate(batch, workload, LearningRateRule::kLinear);
  CHECK(batch.learning_rate == Approx(0.4));
  CHECK(batch.warmup_steps > 0);
  CHECK_THAT(batch.learning_rate_rule, Catch::Contains("for batch 256, scaled from "));
  set_learning_rate(batch, workload, LearningRateRule::kSquareRoot);
  CHECK(batch.learning_rate == Approx(0.2));
  set_learning_rate(batch, workload, LearningRateRule::kAdaScale);
  CHECK(batch.learning_rate == Approx(0.1 * (800.0 / 64 + 1) / (800.0 / 256 + 1)));
  CHECK(batch.warmup_steps == 0);
  plan::Workload unknown = workload;
  unknown.noise_scale.reset();
  CHECK_THROWS_AS(set_learning_rate(batch, unknown, LearningRateRule::kAdaScale), ConfigError);
  CHECK(parse_learning_rate_rule("sqrt") == LearningRateRule::kSquareRoot);
  CHECK_THROWS_AS(parse_learning_rate_rule("cubic"), ConfigError);
}

}  // namespace
}  // namespace rackrail::planner::goodput_test

#include "planner/batch/redecide.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "base/error.hpp"

namespace rackrail::planner::redecide_test {
namespace {

topology::Topology two_gpus() {
  topology::Topology topology("two");
  for (const char* name : {"a", "b"}) {
    topology.add_rank(topology.add_node(
        {.name = name, .kind = topology::NodeKind::kGpu, .host = name, .memory = 64_GiB}));
  }
  topology.add_duplex_link({.from = NodeId(0), .to = NodeId(1), .bandwidth = 10_Gbps});
  return topology;
}

/// A job of two ranks in which compute and exposed synchronisation are round figures.
class Job {
 public:
  Job() {
    workload_.name = "model";
    workload_.profiled_batch = 32;
    workload_.forward = 10_ms;
    workload_.tensors = {{"a", 1000, 20_ms}};
    workload_.memory_per_sample = 10_MiB;
    workload_.base_batch = 64;
    workload_.noise_scale = 1000;
    state_.batch = BatchSpace(topology_, workload_, options_).fixed();
  }

  Redecision decide(double noise, double sync_seconds, const RedecisionRule& rule = {}) {
    workload_.noise_scale = noise;
    const BatchSpace space(topology_, workload_, options_);
    const StepTime step_time = [&](const plan::BatchPlan& batch) {
      const auto local = static_cast<double>(batch.local_batch[0]);
      return Duration::from_seconds(
          static_cast<double>(batch.accumulation) * (0.004 + 0.001 * local) + sync_seconds);
    };
    Redecision decision = redecide(state_, workload_, space, step_time, rule);
    state_ = decision.next;
    return decision;
  }
  /// As often as it takes until nothing changes any more; the number of changes.
  int settle(double noise, double sync_seconds) {
    int changes = 0;
    for (int i = 0; i < 20; ++i) {
      changes += decide(noise, sync_seconds).changes ? 1 : 0;
    }
    return changes;
  }
  const RedecisionState& state() const { return state_; }

 private:
  topology::Topology topology_ = two_gpus();
  plan::Workload workload_;
  PlannerOptions options_;
  RedecisionState state_;
};

TEST_CASE("a lasting rise of the noise scale changes the batch once, when it is confirmed") {
  Job job;
  job.settle(1000, 0.05);
  const auto before = job.state().batch.global_batch();
  CHECK_FALSE(job.decide(20'000, 0.05).changes);
  CHECK_FALSE(job.decide(20'000, 0.05).changes);
  const Redecision third = job.decide(20'000, 0.05);
  CHECK(third.changes);
  CHECK(third.gain >= 0.05);
  CHECK_THAT(third.reason, Catch::Contains("becomes"));
  CHECK(job.state().batch.global_batch() > before);
  CHECK(job.settle(20'000, 0.05) == 0);
}

TEST_CASE("a slower network alone changes the batch, and a faster one changes it back") {
  Job job;
  job.settle(3000, 0.01);
  const auto fast = job.state().batch.global_batch();
  CHECK(job.settle(3000, 0.4) == 1);
  CHECK(job.state().batch.global_batch() > fast);
  CHECK(job.settle(3000, 0.01) == 1);
  CHECK(job.state().batch.global_batch() <= 2 * fast);
}

TEST_CASE("an estimate that wavers by a fifth changes nothing") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> factor(0.8, 1.25);
    Job job;
    job.settle(2000, 0.05);
    for (int i = 0; i < 50; ++i) {
      CHECK_FALSE(job.decide(2000 * factor(generator), 0.05).changes);
    }
  }
}

TEST_CASE("spikes to alternating sides are never confirmed") {
  Job job;
  job.settle(2000, 0.05);
  for (int i = 0; i < 20; ++i) {
    const Redecision decision = job.decide(i % 2 == 0 ? 100'000 : 20, 0.05);
    CHECK(decision.gain >= 0.05);
    CHECK_FALSE(decision.changes);
  }
}

TEST_CASE("a rule with one confirmation acts at once, and one that means nothing is refused") {
  Job job;
  job.settle(1000, 0.05);
  CHECK(job.decide(20'000, 0.05, {0.05, 1}).changes);
  CHECK_THROWS_AS(job.decide(1000, 0.05, {-0.1, 3}), ConfigError);
  CHECK_THROWS_AS(job.decide(1000, 0.05, {0.05, 0}), ConfigError);
}

}  // namespace
}  // namespace rackrail::planner::redecide_test

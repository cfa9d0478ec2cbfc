// What slow devices, slow reading of data and steps that do not wait for each other make of steps,
// against closed forms.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "sim/disturbances.hpp"
#include "sim/simulator.hpp"
#include "tests/unit/sim/pair_job.hpp"

namespace rackrail::sim::slow_steps_test {
namespace {

using test::Job;
using test::mean_step_ms;
using test::network_only;

TEST_CASE("a step of several passes computes them all before its gradients are whole") {
  // Of the last pass only: 3 × 30 ms, then 4 ms for two messages each way, and the optimiser.
  Job job(1'000'000);
  job.plan.batch.accumulation = 3;
  const StepResult result = job.run(network_only());
  CHECK(result.estimate.step_time.seconds() == Approx(3 * 30e-3 + 4e-3 + 1e-3).epsilon(1e-6));
  CHECK(result.estimate.compute_time == 91_ms);
}

TEST_CASE("local steps in a run of one step would have no effect, and are refused") {
  SimulationOptions options = network_only();
  options.local_steps = 8;
  CHECK_THROWS_WITH(Job(1000).run(options), Catch::Contains("local_steps: 8"));
  options.steps = 8;
  CHECK(Job(1000).run(options).steps.size() == 8);
}

TEST_CASE("devices are busy on average, and waiting for data is no synchronisation") {
  const Job job(1'000'000);
  SimulationOptions options = network_only();
  options.disturbances.slow_devices = {{.ranks = {Rank(1)}, .factor = 3}};
  const StepResult slow = job.run(options);  // 93 ms and 4 ms; rank 0 computes for 31 of them
  CHECK(slow.device_busy == Approx((31 + 93) / 2.0 / 97).epsilon(1e-3));
  CHECK(slow.estimate.compute_time == 93_ms);
  CHECK(slow.estimate.sync_share == Approx(4.0 / 97).epsilon(1e-3));
  CHECK(slow.waited_for_others == 31_ms);  // rank 0 for 62, rank 1 for none
  CHECK(slow.waited_for_data == Duration());

  options.disturbances = {};
  options.loading = DataLoading{.batch = 200_ms, .prefetch = 1};
  options.steps = 5;
  const StepResult starved = job.run(options);
  CHECK(starved.estimate.step_time.seconds() == Approx(0.2).epsilon(1e-2));
  CHECK(starved.estimate.sync_share == Approx(4.0 / 200).epsilon(0.1));
  CHECK(starved.waited_for_others == Duration());
  CHECK(starved.estimate.step_time.seconds() * (1 - starved.estimate.sync_share) ==
        Approx((starved.estimate.compute_time + starved.waited_for_data).seconds()));
}

TEST_CASE("a straggler is no synchronisation, whichever rank ends last and at either level") {
  const Job job(1'000'000);
  SimulationOptions options = network_only();
  options.network = GENERATE(NetworkLevel::kFlow, NetworkLevel::kPacket);
  const std::uint32_t slow = GENERATE(0U, 1U);
  // The optimiser too takes longer there; where both end at once, the one that is faster may be
  // the first of them.
  options.disturbances.slow_devices = {{.ranks = {Rank(slow)}, .factor = 2}};
  const StepResult result = job.run(options);
  CHECK(result.estimate.compute_time == 62_ms);
  CHECK(result.estimate.step_time.seconds() == Approx(66e-3).epsilon(1e-3));
  CHECK(result.estimate.sync_share == Approx(4.0 / 66).epsilon(1e-2));
  CHECK(result.waited_for_others == 15500_us);
  Job without_optimizer(1'000'000);
  without_optimizer.workload.optimizer = Duration();
  without_optimizer.plan.workload_digest = without_optimizer.workload.digest();
  const StepResult tied = without_optimizer.run(options);
  CHECK(tied.estimate.compute_time == 60_ms);
  CHECK(tied.estimate.sync_share == Approx(4.0 / 64).epsilon(1e-2));
}

TEST_CASE("a slow device holds up the step by what it computes longer") {
  const Job job(1'000'000);  // 4 MB: 4 ms in two halves that cross
  SimulationOptions options = network_only();
  CHECK(job.run(options).estimate.step_time.seconds() == Approx(35e-3).epsilon(1e-3));
  options.disturbances.slow_devices = {{.ranks = {Rank(1)}, .factor = 1.5}};
  CHECK(job.run(options).estimate.step_time.seconds() == Approx(50.5e-3).epsilon(1e-3));
  options.disturbances.slow_devices[0].first_step = 1;
  CHECK(job.run(options).estimate.step_time.seconds() == Approx(35e-3).epsilon(1e-3));
}

TEST_CASE("random slowdowns have mean 1 and the asked spread, and depend on the seed alone") {
  Disturbances disturbances{.slow_devices = {{.sigma = 0.3}}, .seed = GENERATE(1U, 2U)};
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const double factor = slowdown(disturbances, Rank(i % 100), i / 100);
    CHECK(factor == slowdown(disturbances, Rank(i % 100), i / 100));
    sum += factor;
    squares += std::log(factor) * std::log(factor);
  }
  CHECK(sum / kDraws == Approx(1).margin(0.01));
  // The logarithm has variance σ² and mean −σ²/2.
  CHECK(squares / kDraws == Approx(0.09 + 0.045 * 0.045).epsilon(0.03));
  Disturbances other = disturbances;
  ++other.seed;
  CHECK(slowdown(disturbances, Rank(3), 5) != slowdown(other, Rank(3), 5));
}

TEST_CASE("a starved device shows as waiting for data") {
  const Job job(1'000'000);  // a step of 35 ms
  SimulationOptions options = network_only();
  options.steps = 6;
  SECTION("a loader that is fast enough is waited for once") {
    options.loading = DataLoading{.batch = 20_ms, .prefetch = 1};
    const StepResult result = job.run(options);
    CHECK(result.steps.front().waited_for_data == 20_ms);
    CHECK(result.steps.back().waited_for_data == Duration());
    CHECK(result.estimate.step_time.seconds() == Approx(35e-3).epsilon(1e-3));
  }
  SECTION("a slow one sets the pace") {
    options.loading = DataLoading{.batch = 50_ms, .prefetch = 2};
    const StepResult result = job.run(options);
    CHECK(result.steps.back().waited_for_data.seconds() == Approx(15e-3).epsilon(1e-3));
    CHECK(result.estimate.step_time.seconds() == Approx(50e-3).epsilon(1e-3));
  }
  SECTION("without prefetch it loads only while nothing else happens") {
    options.loading = DataLoading{.batch = 20_ms, .prefetch = 0};
    CHECK(job.run(options).estimate.step_time.seconds() == Approx(55e-3).epsilon(1e-3));
  }
}

TEST_CASE("with a staleness, gradients move while the next step computes") {
  const Job job(25'000'000);  // 100 MB: 100 ms
  SimulationOptions options = network_only();
  options.steps = 20;
  CHECK(mean_step_ms(job.run(options)) == Approx(131).epsilon(1e-3));
  options.staleness = 1;
  // The network is the bottleneck: 100 ms a step, and before the first the 31 ms that it takes
  // until its gradients are ready. However much may be outstanding at the end, it counts.
  CHECK(mean_step_ms(job.run(options)) == Approx((20 * 100.0 + 31) / 20).epsilon(1e-2));
  const StepResult stale = [&] {
    options.staleness = 3;
    return job.run(options);
  }();
  CHECK(mean_step_ms(stale) == Approx((20 * 100.0 + 31) / 20).epsilon(1e-2));
  CHECK(stale.steps.back().end.seconds() < 19 * 0.1);
}

TEST_CASE("what steps add to a run is what they are spent on, also where they overlap") {
  Job job(1'000'000);  // 31 ms, and 62 ms on the slow device; 4 ms to synchronise
  SimulationOptions options = network_only();
  options.steps = 12;
  options.disturbances.slow_devices = {{.ranks = {Rank(1)}, .factor = 2}};
  SECTION("with a staleness the others compute up to three steps ahead of the slow device") {
    options.staleness = 3;
    const StepResult result = job.run(options);
    CHECK(result.estimate.step_time == 62_ms);
    CHECK(result.estimate.sync_share == Approx(0).margin(1e-9));
    CHECK(result.device_busy == Approx((62.0 + 31.0) / 2 / 62));
  }
  SECTION("all periods together are the run") {
    options.staleness = GENERATE(0, 1, 3);
    const StepResult result = job.run(options);
    Duration all;
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
      all += step_period(result.steps, i);
    }
    CHECK(all == result.steps.back().end - result.steps.front().start);
  }
}

TEST_CASE("with local steps, only some of them synchronise") {
  const Job job(25'000'000);
  SimulationOptions options = network_only();
  options.steps = 8;
  options.local_steps = 4;
  CHECK(mean_step_ms(job.run(options)) == Approx(31 + 100.0 / 4).epsilon(1e-3));
}

}  // namespace
}  // namespace rackrail::sim::slow_steps_test

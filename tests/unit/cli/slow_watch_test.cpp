#include "cli/slow_watch.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "cli/survival.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli::slow_watch_test {
namespace {

constexpr std::int64_t kSamples = 32;

/// A step of 32 samples computes for 60 ms; what it sends depends on the elements.
plan::Workload one_tensor(std::int64_t elements) {
  plan::Workload workload;
  workload.name = "one-tensor";
  workload.device_class = "";
  workload.profiled_batch = kSamples;
  workload.forward = 20_ms;
  workload.fixed_share = 0;
  workload.tensors.push_back({.name = "w", .elements = elements, .ready_gap = 40_ms});
  return workload;
}

/// A job of four ranks as SlowWatch sees it: the test says how long each of them computes.
class WatchedJob {
 public:
  explicit WatchedJob(std::int64_t elements)
      : workload(one_tensor(elements)),
        plans(first_plan(), cluster, workload, 300_s),
        watch(SlowWatch::Action::kReplan, first_plan(), cluster, plans, {},
              [](const std::string&) {}) {}

  plan::Plan first_plan() const {
    const auto costs = sim::make_cost_model(cluster, {});
    planner::PlannerOptions options;
    options.local_batch = kSamples;
    options.compare_baselines = false;
    options.codec = plan::parse_codec("none");
    return planner::make_plan(cluster, workload, *costs, options);
  }

  void begin_epoch() {
    watch.began({.epoch = ++epoch,
                 .is_change = true,
                 .seats = {Rank(0), Rank(1), Rank(2), Rank(3)},
                 .step = step});
  }

  /// Until the watch has found something; the plan that is to be taken up, where there is one.
  std::optional<plan::Plan> run() {
    const std::size_t before = watch.findings_json().size();
    for (int i = 0; i < 30 && watch.findings_json().size() == before; ++i) {
      ++step;
      for (std::size_t rank = 0; rank < factor.size(); ++rank) {
        auto better = watch.measured({.rank = Rank(rank),
                                      .step = step,
                                      .samples = samples[rank],
                                      .step_time = 200_ms,
                                      .compute_time = compute_time(rank),
                                      .received = {}});
        if (better) {
          samples = better->plan.batch.local_batch;
          begin_epoch();
          return better->plan;
        }
      }
    }
    return std::nullopt;
  }

  void pass(int steps) {
    const std::size_t before = watch.findings_json().size();
    for (int i = 0; i < steps; ++i) {
      ++step;
      for (std::size_t rank = 0; rank < factor.size(); ++rank) {
        watch.measured({.rank = Rank(rank),
                        .step = step,
                        .samples = samples[rank],
                        .step_time = 100_ms,
                        .compute_time = compute_time(rank),
                        .received = {}});
      }
    }
    REQUIRE(watch.findings_json().size() == before);
  }

  Duration compute_time(std::size_t rank) const {
    return fixed[rank] + scaled(2_ms, factor[rank] * static_cast<double>(samples[rank]));
  }

  const topology::Topology cluster = test::two_racks();
  const plan::Workload workload;
  SurvivalPlans plans;
  SlowWatch watch;
  std::vector<double> factor = {1, 1, 1, 1};
  std::vector<Duration> fixed = std::vector<Duration>(4);  ///< whatever the samples
  std::vector<std::int64_t> samples = std::vector<std::int64_t>(4, kSamples);
  std::uint32_t step = 0;
  std::uint32_t epoch = 1;
};

}  // namespace

TEST_CASE("what a straggler costs with the plan in use counts, and what it costs with another") {
  WatchedJob job(1000);  // next to nothing to send: steps are compute
  job.pass(20);
  job.factor[1] = 3;
  const std::optional<plan::Plan> second = job.run();
  REQUIRE(second.has_value());
  CHECK(second->batch.local_batch[1] == 13);
  const nlohmann::json first_finding = job.watch.findings_json().at(0);
  CHECK(first_finding.at("outcome") == "new plan");
  // 32 samples at three times 60 ms, and 39 of the others', 13 at three times the time.
  CHECK(first_finding.at("kept_step_time_s").get<double>() == Approx(0.180).epsilon(0.02));
  CHECK(first_finding.at("new_step_time_s").get<double>() == Approx(0.0731).epsilon(0.03));

  // It is well again: its few samples hold the others back, which have too many.
  job.pass(20);
  job.factor[1] = 1;
  const std::optional<plan::Plan> third = job.run();
  REQUIRE(third.has_value());
  CHECK(third->batch.local_batch == std::vector<std::int64_t>(4, kSamples));
  const nlohmann::json second_finding = job.watch.findings_json().at(1);
  CHECK(second_finding.at("kept_step_time_s").get<double>() == Approx(0.0731).epsilon(0.03));
  CHECK(second_finding.at("new_step_time_s").get<double>() == Approx(0.060).epsilon(0.03));

  // Somebody asks for another plan: that is not what the finding brought.
  job.pass(10);
  job.begin_epoch();
  CHECK(job.watch.findings_json().at(1).at("new_plan_from_step") ==
        second_finding.at("new_plan_from_step"));
}

TEST_CASE("a straggler's batch is corrected by what it takes for few samples") {
  WatchedJob job(1000);
  job.pass(20);
  job.factor[1] = 2;
  job.fixed[1] = 64_ms;  // 192 ms in all: three times as long
  const std::optional<plan::Plan> second = job.run();
  REQUIRE(second.has_value());
  CHECK(second->batch.local_batch[1] == 13);
  // 13 take 116 ms, and the others' 38 take 76. With 4 samples for 80 ms and 41 for 82 all are
  // even.
  const std::optional<plan::Plan> third = job.run();
  REQUIRE(third.has_value());
  CHECK(third->batch.local_batch[1] >= 4);
  CHECK(third->batch.local_batch[1] <= 5);
  CHECK(third->batch.global_batch() == 4 * kSamples);
  const nlohmann::json finding = job.watch.findings_json().at(1);
  CHECK(finding.at("outcome") == "new plan");
  CHECK(finding.at("ranks").at(0).at("samples") == 13);
  CHECK_THAT(finding.at("text").get<std::string>(), Catch::Contains("for 13 samples"));
  // In the terms of the workload, which has 60 ms where ranks take 64.
  CHECK(finding.at("kept_step_time_s").get<double>() == Approx(0.116 * 60 / 64).epsilon(0.03));
  CHECK(finding.at("new_step_time_s").get<double>() == Approx(0.082 * 60 / 64).epsilon(0.03));
  job.pass(20);
}

TEST_CASE("a straggler that hides behind the network is no reason for another plan", "[slow]") {
  // 32 GB by links of 4 GB/s: many seconds, of which 120 ms more or less are not kWorthIt.
  WatchedJob job(8'000'000'000);
  job.pass(20);
  job.factor[1] = 3;
  CHECK_FALSE(job.run().has_value());
  const nlohmann::json finding = job.watch.findings_json().at(0);
  CHECK_THAT(finding.at("outcome").get<std::string>(), Catch::StartsWith("plan kept"));
  const auto kept = finding.at("kept_step_time_s").get<double>();
  const auto better = finding.at("new_step_time_s").get<double>();
  CHECK(kept > better);
  CHECK(kept - better < 0.13);
}

}  // namespace rackrail::cli::slow_watch_test

#include "cli/batch_watch.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "cli/survival.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli::batch_watch_test {
namespace {

constexpr double kCalm = 20;      // samples
constexpr double kNoisy = 20000;  // samples
constexpr std::uint32_t kEvery = 10;

/// A step is mostly the time that its 400 MB take.
plan::Workload heavy() {
  plan::Workload workload;
  workload.name = "heavy";
  workload.device_class = "";
  workload.profiled_batch = 8;
  workload.forward = 10_ms;
  workload.base_learning_rate = 0.1;
  workload.base_batch = 32;
  workload.noise_scale = kCalm;
  workload.tensors.push_back({.name = "w", .elements = 100'000'000, .ready_gap = 20_ms});
  return workload;
}

/// A job of four ranks as BatchWatch sees it: the test says how noisy its gradients are.
class WatchedTraining {
 public:
  explicit WatchedTraining(BatchWatch::Action action = BatchWatch::Action::kRebatch)
      : first(first_plan()),
        plans(first, cluster, workload, 300_s),
        watch({.action = action, .every = kEvery, .max_global_batch = 2048}, first, workload, plans,
              [](const std::string&) {}),
        in_use(first.batch) {}

  plan::Plan first_plan() const {
    const auto costs = sim::make_cost_model(cluster, {});
    planner::PlannerOptions options;
    options.compare_baselines = false;
    options.codec = plan::parse_codec("none");
    options.max_global_batch = 2048;
    return planner::make_plan(cluster, workload, *costs, options);
  }

  /// E|g_i|² and E|ḡ|² where |G|² = 1 and tr(Σ) = noise.
  runtime::GradientNorms norms_of(std::size_t rank) const {
    const auto batch = static_cast<double>(in_use.global_batch());
    const auto own = static_cast<double>(in_use.local_batch[rank] * in_use.accumulation);
    return {.weighted_squared = own / batch * (1 + noise / own), .mean_squared = 1 + noise / batch};
  }

  /// The plan that is to be taken up after one of these steps, where there is one.
  std::optional<plan::Plan> run(int steps) {
    for (int i = 0; i < steps; ++i) {
      ++step;
      for (std::size_t rank = 0; rank < in_use.local_batch.size(); ++rank) {
        auto better = watch.measured({.rank = Rank(rank),
                                      .step = step,
                                      .samples = in_use.local_batch[rank] * in_use.accumulation,
                                      .step_time = 200_ms,
                                      .compute_time = 30_ms,
                                      .received = {},
                                      .norms = norms_of(rank)});
        if (better) {
          return better->plan;
        }
      }
    }
    return std::nullopt;
  }

  void begin() {
    watch.began({.epoch = ++epoch,
                 .is_change = true,
                 .seats = {Rank(0), Rank(1), Rank(2), Rank(3)},
                 .step = step});
  }

  const topology::Topology cluster = test::two_racks();
  const plan::Workload workload = heavy();
  const plan::Plan first;
  SurvivalPlans plans;
  BatchWatch watch;
  plan::BatchPlan in_use;
  double noise = kCalm;
  std::uint32_t step = 0;
  std::uint32_t epoch = 1;
};

}  // namespace

TEST_CASE("a batch stays while the noise scale does, and grows with it") {
  WatchedTraining job;
  REQUIRE_FALSE(job.run(100).has_value());
  CHECK(*job.watch.noise_scale() == Approx(kCalm).epsilon(0.01));
  CHECK(job.watch.decisions_json().size() == 10);

  job.noise = kNoisy;
  const std::optional<plan::Plan> larger = job.run(300);
  REQUIRE(larger.has_value());
  CHECK(larger->batch.global_batch() > 2 * job.in_use.global_batch());
  // By the plan's rule, which is linear.
  CHECK(larger->batch.learning_rate ==
        Approx(0.1 * static_cast<double>(larger->batch.global_batch()) / 32));
  CHECK(larger->batch.warmup_steps == job.first.batch.warmup_steps);
  const nlohmann::json last = job.watch.decisions_json().back();
  CHECK(last.at("outcome") == "new plan");
  CHECK(last.at("gain").get<double>() >= 0.05);
  CHECK(last.at("new_batch_from_step").is_null());

  SECTION("once it is taken up it is the batch of other plans, too") {
    job.begin();
    job.in_use = larger->batch;
    REQUIRE_FALSE(job.run(200).has_value());  // what is best stays
    CHECK(job.watch.batches_json() ==
          nlohmann::json({{1, job.first.batch.global_batch()},
                          {last.at("step").get<int>() + 1, larger->batch.global_batch()}}));
    const plan::Plan of_three = job.plans.plan_for({Rank(0), Rank(1), Rank(3)});
    CHECK(of_three.batch.global_batch() == larger->batch.global_batch());
    CHECK(of_three.batch.learning_rate == larger->batch.learning_rate);
  }
  SECTION("where it was not taken up, it is decided on again") {
    job.begin();  // for another reason
    REQUIRE(job.run(300).has_value());
    const nlohmann::json decisions = job.watch.decisions_json();
    const auto given_up = [](const nlohmann::json& one) {
      return one.at("outcome") == "new plan, which was not adopted";
    };
    CHECK(std::count_if(decisions.begin(), decisions.end(), given_up) == 1);
    CHECK(job.plans.plan_for({Rank(0), Rank(1)}).batch.global_batch() ==
          job.first.batch.global_batch());
  }
}

TEST_CASE("a wavering noise scale changes no batch, and none changes where it is only reported") {
  WatchedTraining wavering;
  for (int i = 0; i < 30; ++i) {
    wavering.noise = i % 2 == 0 ? 15 : 25;
    REQUIRE_FALSE(wavering.run(10).has_value());
  }
  WatchedTraining reported(BatchWatch::Action::kReport);
  reported.noise = kNoisy;
  REQUIRE_FALSE(reported.run(200).has_value());
  const nlohmann::json decisions = reported.watch.decisions_json();
  CHECK(std::any_of(decisions.begin(), decisions.end(),
                    [](const nlohmann::json& one) { return one.at("outcome") == "reported"; }));
}

TEST_CASE("slower links make a larger batch the better one") {
  WatchedTraining job;
  REQUIRE_FALSE(job.run(60).has_value());
  std::map<LinkId, Bandwidth> rates;
  for (std::size_t l = 0; l < job.cluster.link_count(); ++l) {
    const Bandwidth rate = job.cluster.link(LinkId(l)).bandwidth;
    rates.emplace(LinkId(l), Bandwidth(rate.bytes_per_second() / 20));
  }
  job.plans.set_condition(rates, {});
  const std::optional<plan::Plan> larger = job.run(100);
  REQUIRE(larger.has_value());
  CHECK(larger->batch.global_batch() > job.in_use.global_batch());
}

TEST_CASE("steps without norms, of strangers or in pieces decide nothing") {
  WatchedTraining job;
  job.noise = kNoisy;
  for (std::uint32_t step = 1; step < 200; ++step) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      runtime::StepMeasurement one{.rank = Rank(rank),
                                   .step = step,
                                   .samples = job.in_use.local_batch[rank],
                                   .step_time = 1_ms,
                                   .compute_time = 1_ms,
                                   .received = {}};
      CHECK_FALSE(job.watch.measured(one).has_value());
      one.norms = job.norms_of(rank);
      one.step += 1000;
      one.rank = Rank(rank + 4);
      CHECK_FALSE(job.watch.measured(one).has_value());
      one.samples = std::numeric_limits<std::int64_t>::max();
      one.rank = Rank(rank);
      CHECK_FALSE(job.watch.measured(one).has_value());
    }
  }
  CHECK_FALSE(job.watch.noise_scale().has_value());
  CHECK(job.watch.decisions_json().empty());
}

}  // namespace rackrail::cli::batch_watch_test

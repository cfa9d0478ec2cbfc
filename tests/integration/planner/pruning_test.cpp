// What the search leaves out must not have been the best: held against the search that simulates
// everything, and the bound that it leaves out by against the simulator.
#include "planner/groups/many_ranks.hpp"
#include "planner/planner.hpp"
#include "planner/request/interruptible.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/parse_units.hpp"
#include "plan/format.hpp"
#include "planner/search/joint_search.hpp"
#include "planner/search/step_bound.hpp"
#include "planner/tuning/candidates.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::pruning_test {
namespace {

/// Counts what is simulated.
class CountingCosts final : public plan::CostModel {
 public:
  explicit CountingCosts(const topology::Topology& topology)
      : costs_(sim::make_cost_model(topology, {})) {}
  Duration collective_time(const plan::TransferGraph& graph, std::int64_t elements,
                           std::int64_t slice_elements) override {
    ++collectives;
    ++whole_collectives;
    return costs_->collective_time(graph, elements, slice_elements);
  }
  std::optional<Duration> collective_time_below(const plan::TransferGraph& graph,
                                                std::int64_t elements, std::int64_t slice_elements,
                                                Duration limit) override {
    ++collectives;
    return costs_->collective_time_below(graph, elements, slice_elements, limit);
  }
  plan::StepEstimate step(const plan::Plan& plan, const plan::Workload& workload) override {
    ++steps;
    return costs_->step(plan, workload);
  }

  int collectives = 0;
  int whole_collectives = 0;  ///< without a limit
  int steps = 0;

 private:
  std::unique_ptr<plan::CostModel> costs_;
};

plan::Workload shipped(const char* model) {
  return plan::read_workload(model, topology::configs_folder());
}

topology::Topology cluster(const std::string& name) {
  if (name == "uneven racks") {
    return test::clos({2, 3, 1}, 2);
  }
  if (name == "a100-4x8") {
    return test::a100_4x8();
  }
  if (name == "bursty racks") {
    return test::with_bursts(test::two_racks(), [](LinkId) { return 4_MiB; });
  }
  if (name == "uneven star") {
    return test::uneven_star();
  }
  if (name == "48 hosts") {
    return test::clos({16, 20, 12}, 4);
  }
  if (name == "64 GPUs") {
    return test::boxes(8, 4);
  }
  return topology::read_cluster(name).topology;
}

TEST_CASE("the search finds the plan that simulating everything finds, byte for byte", "[slow]") {
  struct Case {
    const char* cluster;
    const char* model;
    std::optional<Bytes> bucket_size = std::nullopt;
  };
  const Case c = GENERATE(Case{"two-racks-40g", "resnet-50"}, Case{"a100-4x8", "resnet-50", 25_MiB},
                          Case{"uneven racks", "vgg-16"}, Case{"uneven racks", "gpt2-124m"},
                          Case{"uneven star", "resnet-50"}, Case{"bursty racks", "resnet-50"},
                          Case{"bursty racks", "resnet-50", 1_MiB});
  CAPTURE(c.cluster, c.model);
  const topology::Topology topology = cluster(c.cluster);
  REQUIRE(topology.rank_count() < kVeryManyRanks);
  const plan::Workload workload = shipped(c.model);
  PlannerOptions options;
  options.bucket_size = c.bucket_size;
  CountingCosts few(topology);
  const plan::Plan quick = make_plan(topology, workload, few, options);
  options.exhaustive = true;
  CountingCosts all(topology);
  const plan::Plan slow = make_plan(topology, workload, all, options);
  CHECK(plan::to_json(quick) == plan::to_json(slow));
  CHECK(few.steps <= all.steps);
}

TEST_CASE(
    "what is chosen for a size does not depend on the sizes before, of each one is followed") {
  const topology::Topology topology = cluster(GENERATE("two-racks-40g", "uneven racks"));
  const plan::Workload workload = shipped("resnet-50");
  CountingCosts costs(topology);
  CandidateSet of_all(topology, costs, {}, &workload);
  int chosen = 0;
  for (const std::int64_t elements : {20'000'000, 300, 5'000'000, 40'000, 5'000'001, 1, 900'000}) {
    for (const CandidateFilter& filter :
         {CandidateFilter(any_candidate), CandidateFilter(is_fp32)}) {
      CAPTURE(topology.name(), elements);
      const auto choice = of_all.cheapest(elements, filter);
      ++chosen;
      const auto fresh_costs = sim::make_cost_model(topology, {});
      CandidateSet of_one(topology, *fresh_costs, {}, &workload);
      const auto fresh = of_one.cheapest(elements, filter);
      REQUIRE((choice.has_value() && fresh.has_value()));
      CHECK(choice->time == fresh->time);
      CHECK(choice->candidate == fresh->candidate);
      CHECK(choice->slice_elements == fresh->slice_elements);
    }
  }
  CHECK(costs.whole_collectives <= chosen);
}

// From 32 ranks on times at other sizes and in FP32 say what need not be simulated.
TEST_CASE("what is expected to be slower at 48 and 64 ranks was not the best", "[slow]") {
  const topology::Topology topology = cluster(GENERATE("48 hosts", "64 GPUs"));
  REQUIRE(topology.rank_count() < kVeryManyRanks);
  const plan::Workload workload = shipped("resnet-50");
  CountingCosts costs(topology);
  CandidateSet of_all(topology, costs, {}, &workload);
  PlannerOptions exhaustive;
  exhaustive.exhaustive = true;
  CountingCosts all_costs(topology);
  CandidateSet of_every(topology, all_costs, exhaustive, &workload);
  for (const std::int64_t elements : {6'000'000, 200'000, 4'000'000}) {
    CAPTURE(topology.rank_count(), elements);
    const auto choice = of_all.cheapest(elements, any_candidate);
    const auto best = of_every.cheapest(elements, any_candidate);
    REQUIRE((choice.has_value() && best.has_value()));
    CHECK(choice->time == best->time);
    CHECK(of_all.all()[choice->candidate].family == of_every.all()[best->candidate].family);
  }
  CHECK(costs.collectives < all_costs.collectives);
}

TEST_CASE("a time that is only of interest below a limit is the time, or none") {
  const topology::Topology topology = cluster(GENERATE("two-racks-40g", "uneven racks"));
  const auto costs = sim::make_cost_model(topology, {});
  topology::Router router(topology);
  for (const auto& family : schedule_families()) {
    if (family->refusal(topology, {}).has_value()) {
      continue;
    }
    const plan::TransferGraph graph = family->all_reduce({topology, router, {}});
    for (const std::int64_t elements : {1, 5'000, 3'000'000}) {
      const auto below = [&](Duration limit) {
        return costs->collective_time_below(graph, elements, 1 << 16, limit);
      };
      const Duration time = costs->collective_time(graph, elements, 1 << 16);
      CAPTURE(topology.name(), family->name(), elements, to_string(time));
      CHECK(below(time + Duration(1)) == time);
      CHECK(below(scaled(time, 3)) == time);
      CHECK_FALSE(below(time).has_value());
      CHECK_FALSE(below(scaled(time, 0.5)).has_value());
    }
  }
}

TEST_CASE("a step that is only of interest below a limit is the step, or none") {
  const topology::Topology topology = cluster(GENERATE("two-racks-40g", "uneven racks"));
  const plan::Workload workload = shipped("resnet-50");
  const auto costs = sim::make_cost_model(topology, {});
  const plan::Plan plan = make_naive_plan(topology, workload, *costs, {});
  const plan::StepEstimate whole = costs->step(plan, workload);
  const auto below = [&](Duration limit) { return costs->step_below(plan, workload, limit); };
  REQUIRE(below(whole.step_time + Duration(1)).has_value());
  CHECK(below(whole.step_time + Duration(1))->step_time == whole.step_time);
  CHECK(below(Duration(INT64_MAX))->bucket_done == whole.bucket_done);
  CHECK_FALSE(below(whole.step_time).has_value());
  CHECK_FALSE(below(scaled(whole.step_time, 0.5)).has_value());
  // Interrupted there, but never where the time is asked for without a limit.
  int asked = 0;
  {
    const Interruptible interruptible(*costs, [&asked] { return ++asked > 0; });
    CHECK_FALSE(below(Duration(INT64_MAX)).has_value());
    CHECK(costs->step(plan, workload).step_time == whole.step_time);
  }
  CHECK(asked == 1);
  CHECK(below(Duration(INT64_MAX))->step_time == whole.step_time);
}

TEST_CASE("no step is simulated to be faster than its bound") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::string name = GENERATE("two-racks-40g", "uneven racks", "uneven star", "bursty racks");
  CAPTURE(name);
  const topology::Topology topology = cluster(name);
  const plan::Workload workload = shipped("resnet-50");
  const auto costs = sim::make_cost_model(topology, {});
  const PlannerOptions options;
  Search search(topology, workload, *costs, options);
  const auto& candidates = search.candidates().all();
  double tightest = 0;
  for (int i = 0; i < 30; ++i) {
    // One candidate in ten may be chosen, so that buckets get what they never would.
    std::vector<bool> is_in(candidates.size());
    for (std::size_t c = 0; c < is_in.size(); ++c) {
      is_in[c] = random() % 10 == 0 && !candidates[c].hurts_protected;
    }
    const CandidateFilter filter = [&](const Candidate& candidate) {
      return is_in[static_cast<std::size_t>(&candidate - candidates.data())];
    };
    plan::BatchPlan batch;
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      batch.local_batch.push_back(std::uniform_int_distribution<std::int64_t>(1, 64)(random));
    }
    batch.accumulation = 1 + static_cast<std::int64_t>(random() % 2);
    const Bytes size(std::int64_t{1} << (20 + random() % 8));
    auto draft = search.draft({"random", size, filter}, batch);
    if (!draft.has_value()) {
      continue;
    }
    search.score(draft->scored);
    CAPTURE(i, to_string(size), draft->scored.plan.buckets.size());
    CHECK(draft->at_least <= draft->scored.estimate.step_time);
    tightest = std::max(tightest, draft->at_least / draft->scored.estimate.step_time);
  }
  CHECK(tightest > 0.7);  // else it would leave out nothing
}

TEST_CASE("a search that is stopped at once is no slower than what runs without a planner") {
  const std::string name = GENERATE("two-racks-40g", "uneven racks", "uneven star");
  const char* const model = GENERATE("bert-large", "resnet-50");
  CAPTURE(name, model);
  const topology::Topology topology = cluster(name);
  const plan::Workload workload = shipped(model);
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  const Duration naive = make_naive_plan(topology, workload, *costs, options).prediction.step_time;
  // At once, and after so many questions.
  for (const int questions : {0, 1, 5, 25, 125}) {
    CAPTURE(questions);
    int asked = 0;
    options.stop = [&asked, questions] { return asked++ >= questions; };
    CHECK(make_plan(topology, workload, *costs, options).prediction.step_time <= naive);
  }
}

TEST_CASE("a family whose schedule is not made in time is left out, with all that follow") {
  const topology::Topology topology = test::boxes(4, 8);
  const auto costs = sim::make_cost_model(topology, {});
  PlannerOptions options;
  CandidateSet all(topology, *costs, options);
  std::size_t made_before = 0;
  for (const int questions : {0, 2, 4, 8, 16}) {
    CAPTURE(questions);
    int asked = 0;
    options.stop = [&asked, questions] { return asked++ >= questions; };
    CandidateSet some(topology, *costs, options);
    some.complete();
    CHECK(asked > questions);
    CHECK(some.all().size() < all.all().size());
    CHECK(some.all().size() >= std::max<std::size_t>(1, made_before));
    made_before = some.all().size();
  }
}

}  // namespace
}  // namespace rackrail::planner::pruning_test

// Low rank, which is planned and simulated only, where the shapes of a model's matrices are known
// and where they are not.
#include <algorithm>
#include <catch2/catch.hpp>

#include "plan/shaped_codec.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::low_rank_test {
namespace {

plan::Plan planned(const plan::Workload& workload, const char* codec) {
  const topology::Topology cluster = topology::read_cluster("two-racks-40g").topology;
  const auto costs = sim::make_cost_model(cluster, {});
  PlannerOptions options;
  options.codec = plan::parse_codec(codec);
  options.compare_baselines = false;
  return make_plan(cluster, workload, *costs, options);
}

bool has_note(const plan::Plan& plan, const std::string& part) {
  return std::ranges::any_of(
      plan.notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

}  // namespace

TEST_CASE("low rank is planned with the share that a model's shapes make of it", "[slow]") {
  const plan::Workload bert = plan::read_workload("bert-large", topology::configs_folder());
  const plan::FactorSize size = plan::factor_size(bert, 4);
  CHECK(size.matrices == 146);
  CHECK(size.density() < 0.02);
  const plan::Plan low = planned(bert, "lowrank:rank=4");
  CHECK(has_note(low, "planned and simulated, not executed"));
  std::int64_t factored = 0;
  for (const plan::Bucket& bucket : low.buckets) {
    if (!bucket.codec.is_executable()) {
      CHECK(bucket.codec.density == size.density());
      factored += bucket.elements;
    }
  }
  CHECK(factored == size.elements);  // all that is not protected
  CHECK(low.prediction.step_time < planned(bert, "fp16").prediction.step_time);
  // A larger rank sends more and computes more.
  CHECK(low.prediction.step_time < planned(bert, "lowrank:rank=256").prediction.step_time);
}

TEST_CASE("without shapes low rank falls back to what is exact", "[slow]") {
  plan::Workload bert = plan::read_workload("bert-large", topology::configs_folder());
  for (plan::GradientTensor& tensor : bert.tensors) {
    tensor.shape.reset();
  }
  const plan::Plan plan = planned(bert, "lowrank:rank=4");
  CHECK(has_note(plan, "saves nothing"));
  CHECK(
      std::ranges::none_of(plan.buckets, [](const plan::Bucket& b) { return b.codec.is_lossy(); }));
}

}  // namespace rackrail::planner::low_rank_test

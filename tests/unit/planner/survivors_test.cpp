#include "planner/search/survivors.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::survivors_test {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

}  // namespace

TEST_CASE("a plan in the place of another is made as that was") {
  plan::Workload workload;
  for (const char* name : {"last.weight", "middle.weight", "middle.bias", "first.weight"}) {
    workload.tensors.push_back({.name = name, .elements = 1 << 20});
  }
  plan::Plan plan;
  plan.error_budget = 0.03;
  plan.compression_warmup_steps = 17;
  plan.seed = 5;
  const plan::Codec int8{.kind = plan::CodecKind::kInt8Block};
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  plan.buckets = {{.tensors = {0, 2}, .codec = fp16}, {.tensors = {1}, .codec = int8}};
  SECTION("which keeps the outer layers") {
    CHECK(protects_outer_layers(plan, workload));
    const PlannerOptions options = options_in_place_of(plan, workload, test::grid(2, 4, true));
    CHECK(options.protect_outer_layers);
    CHECK(options.error_budget == 0.03);
    CHECK(options.compression_warmup == 17);
    CHECK(options.seed == 5);
    CHECK_FALSE(options.compare_baselines);
  }
  SECTION("which encodes one of them beyond 16 bits") {
    plan.buckets.push_back({.tensors = {3}, .codec = int8});
    CHECK_FALSE(protects_outer_layers(plan, workload));
    CHECK_FALSE(options_in_place_of(plan, workload, test::grid(2, 4, true)).protect_outer_layers);
  }
  SECTION("whose workload has no layers but outer ones") {
    workload.tensors.erase(workload.tensors.begin() + 1, workload.tensors.begin() + 3);
    plan.buckets = {{.tensors = {0, 1}, .codec = int8}};
    CHECK(protects_outer_layers(plan, workload));
  }
}

TEST_CASE("a plan of one family stays with it where that can be used") {
  plan::Plan plan;
  const topology::Topology torus = test::grid(4, 4, true);
  CHECK_FALSE(schedule_to_keep(plan, torus));
  CHECK_FALSE(options_in_place_of(plan, {}, torus).schedule);
  plan.only_schedule = "torus";
  CHECK(schedule_to_keep(plan, torus) == "torus");
  CHECK(options_in_place_of(plan, {}, torus).schedule == "torus");
  CHECK_FALSE(schedule_to_keep(plan, test::two_racks()));
  plan.only_schedule = "made-up";
  CHECK_THROWS_AS(schedule_to_keep(plan, torus), ConfigError);
}

TEST_CASE("samples of lost ranks are divided among those that are left") {
  using Samples = std::vector<std::int64_t>;
  CHECK(divide_batch({32, 32, 32, 32}, {Rank(0), Rank(1), Rank(3)}) == Samples{43, 43, 42});
  CHECK(divide_batch({32, 32, 32, 32}, {Rank(1), Rank(2)}) == Samples{64, 64});
  CHECK(divide_batch({10, 30, 20}, {Rank(0), Rank(1)}) == Samples{15, 45});
  CHECK(divide_batch({1, 2}, {Rank(0), Rank(1)}) == Samples{1, 2});
}

TEST_CASE("a divided batch keeps its sum and everybody's share to a sample") {
  const auto seed = Catch::rngSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> before(2 + random() % 30);
    for (std::int64_t& samples : before) {
      samples = 1 + static_cast<std::int64_t>(random() % 200);
    }
    std::vector<Rank> left;
    std::int64_t of_left = 0;
    for (std::size_t rank = 0; rank < before.size(); ++rank) {
      if (rank == 0 || random() % 3 != 0) {
        left.emplace_back(rank);
        of_left += before[rank];
      }
    }
    CAPTURE(round, before.size(), left.size());
    const std::vector<std::int64_t> after = divide_batch(before, left);
    REQUIRE(after.size() == left.size());
    CHECK(sum(after) == sum(before));
    for (std::size_t i = 0; i < left.size(); ++i) {
      const double share = static_cast<double>(before[left[i].index()]) *
                           static_cast<double>(sum(before)) / static_cast<double>(of_left);
      CHECK(std::abs(static_cast<double>(after[i]) - share) < 1);
    }
  }
}

}  // namespace rackrail::planner::survivors_test

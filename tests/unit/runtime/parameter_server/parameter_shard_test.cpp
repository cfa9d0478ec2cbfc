#include "runtime/parameter_server/parameter_shard.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <random>

#include "base/error.hpp"
#include "tests/unit/runtime/parameter_server/server_plan.hpp"

namespace rackrail::runtime::parameter_shard_test {
namespace {

/// A shard of one parameter, which starts as 100.
struct OneParameter {
  explicit OneParameter(std::size_t workers, std::int64_t staleness)
      : rule(test::plain_rule(test::one_server_plan(workers, {1}, 1024))) {
    for (std::size_t i = 0; i < workers; ++i) {
      order.emplace_back(i);
    }
    staleness_ = staleness;
  }

  ParameterShard& shard() {
    if (shards.empty()) {
      shards.emplace_back(rule, staleness_, order, rule.regions[0], std::vector<float>{100}, 0);
    }
    return shards.front();
  }
  /// Pushes and says who is let go on.
  std::vector<Rank> push(std::size_t worker, std::int64_t step, float gradient) {
    shard().push(Rank(worker), step, std::vector<float>{gradient});
    return shard().release();
  }
  float value() { return shard().parameters()[0]; }

  trainer::UpdateRule rule;
  std::vector<Rank> order;
  std::deque<ParameterShard> shards;

 private:
  std::int64_t staleness_ = 0;
};

using Released = std::vector<Rank>;

}  // namespace

TEST_CASE("with a bound, a push is applied at once, and who is too far ahead waits") {
  OneParameter one(3, 1);
  CHECK(one.push(0, 0, 1) == Released{Rank(0)});
  CHECK(one.value() == 99);
  CHECK(one.push(0, 1, 2).empty());  // it would be two steps ahead
  CHECK(one.value() == 97);
  CHECK(one.push(1, 0, 3) == Released{Rank(1)});
  CHECK(one.push(2, 0, 4) == Released{Rank(0), Rank(2)});  // now all have done one
  CHECK(one.value() == 90);
  CHECK(one.shard().most_ahead() == 1);
}

TEST_CASE("without a lead, a step is applied when all of it is there, in the order that is said") {
  OneParameter one(3, 0);
  one.order = {Rank(2), Rank(0), Rank(1)};
  // In FP32 the order shows: (2²⁴ + 1) + 1 is 2²⁴, and 2²⁴ + (1 + 1) is not.
  constexpr float kLarge = 16'777'216;
  CHECK(one.push(1, 0, kLarge).empty());
  CHECK(one.push(2, 0, 1).empty());
  CHECK(one.value() == 100);
  CHECK(one.push(0, 0, 1) == Released{Rank(0), Rank(1), Rank(2)});
  CHECK(one.value() == 100 - (kLarge + 2));
}

TEST_CASE("a push conflicts when others' updates came between its worker's reading and itself") {
  OneParameter one(2, 10);
  ParameterShard& shard = one.shard();
  const std::vector<float> gradient = {1};
  const auto push = [&](std::size_t worker, std::int64_t step) {
    const ParameterShard::Applied applied = shard.push(Rank(worker), step, gradient);
    shard.release();
    CHECK(applied.is_update);
    return applied.between;
  };
  CHECK(push(0, 0) == 0);
  CHECK(push(0, 1) == 0);  // its own update is none of others
  CHECK(push(1, 0) == 2);  // it read before both
  CHECK(push(1, 1) == 0);
  CHECK(push(0, 2) == 2);
  // Withheld, it is no update, and nobody meets it.
  CHECK_FALSE(shard.push(Rank(1), 2, {}).is_update);
  shard.release();
  CHECK(push(0, 3) == 0);
  CHECK(one.value() == 94);
}

TEST_CASE("what waits is answered with what is there when it may leave") {
  OneParameter one(2, 1);
  one.push(0, 0, 1);
  CHECK(one.push(0, 1, 1).empty());
  CHECK(one.push(1, 0, 5) == Released{Rank(0), Rank(1)});
  // Rank 0 read after rank 1's update, so its next push does not meet it.
  CHECK(one.shard().push(Rank(0), 2, std::vector<float>{1}).between == 0);
}

TEST_CASE("all meet after some steps, whatever the bound, and the momentum is kept as it was") {
  OneParameter one(2, 100);
  one.rule.optimizer.momentum = 0.5;
  one.rule.meets = [](std::int64_t steps) { return steps == 2; };
  std::vector<float> read(1);
  CHECK(one.push(0, 0, 1) == Released{Rank(0)});
  CHECK(one.value() == 99);
  one.shard().read(Rank(0), read);
  CHECK(read[0] == 98.5F);  // where momentum alone takes it
  CHECK(one.push(0, 1, 1).empty());
  CHECK(one.push(1, 0, 1) == Released{Rank(1)});
  CHECK(one.push(1, 1, 1) == Released{Rank(0), Rank(1)});
  // Each worker's v is 1, then 1.5.
  CHECK(one.value() == 95);
  one.shard().read(Rank(0), read);
  CHECK(read[0] == 95);  // where all meet they get what there is
  const std::vector<float> expected = {1.5F, 1.5F};
  const auto kept = one.shard().momentum_at_meeting();
  CHECK(std::vector<float>(kept.begin(), kept.end()) == expected);
  CHECK(one.push(0, 2, 1) == Released{Rank(0)});
  CHECK(one.shard().momentum_at_meeting()[0] == 1.5F);

  OneParameter restored(2, 100);
  restored.rule.optimizer.momentum = 0.5;
  restored.shard().set_momentum(expected);
  restored.push(1, 0, 0);
  CHECK(restored.value() == 100 - 0.75F);
  restored.shard().read(Rank(1), read);
  CHECK(read[0] == 100 - 0.75F - 0.5F * (1.5F + 0.75F));
}

TEST_CASE("a push that is not due is refused") {
  OneParameter one(2, 1);
  const std::vector<float> gradient = {1};
  CHECK_THROWS_AS(one.shard().push(Rank(0), 1, gradient), RuntimeFailure);
  one.push(0, 0, 1);
  CHECK_THROWS_AS(one.shard().push(Rank(0), 0, gradient), RuntimeFailure);
  CHECK(one.push(0, 1, 1).empty());
  CHECK_THROWS_WITH(one.shard().push(Rank(0), 2, gradient), Catch::Contains("it has to wait"));
}

TEST_CASE(
    "in any order of pushes nobody is further ahead than the bound, and all come to the end") {
  const std::uint32_t seed = GENERATE(take(20, random(0U, ~0U)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr std::int64_t kSteps = 30;
  const std::size_t workers = 1 + random() % 5;
  const std::int64_t staleness = random() % 4;
  OneParameter one(workers, staleness);
  std::vector<std::int64_t> step(workers, 0);  // that the worker computes
  std::vector<bool> computes(workers, true);
  const auto slowest = [&] { return *std::min_element(step.begin(), step.end()); };
  std::int64_t left = static_cast<std::int64_t>(workers) * kSteps;
  while (left > 0) {
    const std::size_t worker = random() % workers;
    if (!computes[worker] || step[worker] == kSteps) {
      continue;
    }
    computes[worker] = false;
    --left;
    const std::vector<Rank> released = one.push(worker, step[worker]++, 1);
    for (const Rank next : released) {
      computes[next.index()] = true;
      REQUIRE(step[next.index()] - slowest() <= staleness);
    }
    REQUIRE(std::find(computes.begin(), computes.end(), true) != computes.end());
  }
  CHECK(one.value() == 100 - static_cast<float>(workers) * kSteps);
}

}  // namespace rackrail::runtime::parameter_shard_test

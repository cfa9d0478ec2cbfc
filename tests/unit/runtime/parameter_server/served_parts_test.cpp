#include "runtime/parameter_server/served_parts.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/unit/runtime/parameter_server/server_plan.hpp"

namespace rackrail::runtime::served_parts_test {

TEST_CASE("a parameter server's schedule says who serves what") {
  const plan::Plan plan = test::one_server_plan(3, {2500, 10}, 1024);
  const ServedParts parts(plan);
  REQUIRE(parts.all().size() == 2);
  const ServedPart& part = parts.all()[0];
  CHECK(part.server == Rank(0));
  CHECK(part.bucket == BucketId(0));
  CHECK(part.range.begin == 0);
  CHECK(part.range.end == 2500);
  CHECK(part.slices == 3);
  CHECK(part.order == std::vector<Rank>{Rank(0), Rank(1), Rank(2)});
  CHECK(part.pushes == std::vector<std::optional<TransferId>>{{}, TransferId(0), TransferId(1)});
  CHECK(part.pulls == std::vector<std::optional<TransferId>>{{}, TransferId(2), TransferId(3)});

  const std::optional<PartMessage> pull = parts.find(1, 3);
  REQUIRE(pull);
  CHECK(pull->part == 1);
  CHECK_FALSE(pull->is_push);
  CHECK(pull->worker == Rank(2));
  CHECK_FALSE(parts.find(1, 4));
  CHECK_FALSE(parts.find(2, 0));
}

TEST_CASE("a schedule that is no parameter server is refused") {
  CHECK_THROWS_AS(ServedParts(plan_of(ring(3), {100}, 1024)), PlanError);
  CHECK_THROWS_AS(ServedParts(plan_of(star(3), {100}, 1024)), PlanError);  // by its name

  // Rank 2 does not get the sum.
  plan::Plan plan = test::one_server_plan(3, {100}, 1024);
  plan::TransferGraph incomplete("parameter-server", plan::Collective::kAllReduce, 3, {1});
  for (std::size_t i = 0; i < 3; ++i) {
    incomplete.add_transfer(plan.schedules[0].transfers()[i],
                            plan.schedules[0].dependencies(TransferId(i)));
  }
  plan.schedules = {incomplete};
  CHECK_THROWS_WITH(ServedParts(plan), Catch::Contains("without all pushes and pulls"));

  // Nobody serves the second chunk.
  plan::TransferGraph half("parameter-server", plan::Collective::kAllReduce, 3, {1, 1});
  const plan::Plan whole = test::one_server_plan(3, {100}, 1024);
  for (std::size_t i = 0; i < 4; ++i) {
    half.add_transfer(whole.schedules[0].transfers()[i],
                      whole.schedules[0].dependencies(TransferId(i)));
  }
  plan.schedules = {half};
  CHECK_THROWS_WITH(ServedParts(plan), Catch::Contains("nobody serves"));
}

TEST_CASE("codecs are refused") {
  plan::Codec codec;
  codec.kind = plan::CodecKind::kInt8Block;
  CHECK_THROWS_AS(ServedParts(test::one_server_plan(3, {4096}, 1024, codec)), ConfigError);
}

}  // namespace rackrail::runtime::served_parts_test

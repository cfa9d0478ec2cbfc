// All-reduces over random nestings, by the symbolic verifier.
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/nested_groups.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::nested_groups_property_test {
namespace {

std::vector<std::vector<std::vector<int>>> random_nesting(std::mt19937_64& random) {
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  const bool is_regular = pick(0, 3) == 0;
  const int racks = pick(1, 3);
  const int hosts = pick(1, 3);
  const int gpus = pick(1, 4);
  std::vector<std::vector<std::vector<int>>> pods(static_cast<std::size_t>(pick(1, 3)));
  for (auto& pod : pods) {
    pod.resize(static_cast<std::size_t>(is_regular ? racks : pick(1, 3)));
    for (auto& rack : pod) {
      rack.resize(static_cast<std::size_t>(is_regular ? hosts : pick(1, 3)));
      for (int& host : rack) {
        host = is_regular ? gpus : pick(1, 4);
      }
    }
  }
  return pods;
}

TEST_CASE("all-reduces over random nestings are right, with codecs too") {
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  const plan::Codec bf16 = plan::parse_codec("bf16");
  std::size_t checked = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937_64 random(seed);
    const topology::Topology topology = test::pods(random_nesting(random));
    topology::Router router(topology);
    for (const TierCodecs& codecs :
         {TierCodecs{}, TierCodecs{fp16, fp16}, TierCodecs{{}, fp16}, TierCodecs{fp16, bf16}}) {
      if (schedule_family("hierarchical").refusal(topology, codecs)) {
        continue;
      }
      for (const plan::TransferGraph& graph : nested_all_reduces(
               {.topology = topology, .router = router, .codecs = codecs, .most_rounds = 4})) {
        CAPTURE(seed, plan::to_string(codecs.inside), plan::to_string(codecs.across));
        CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
        ++checked;
      }
    }
  }
  CHECK(checked >= 200);
}

}  // namespace
}  // namespace rackrail::planner::nested_groups_property_test

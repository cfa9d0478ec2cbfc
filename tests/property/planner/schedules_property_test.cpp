// Every schedule family on random topologies, by the symbolic verifier.
#include <catch2/catch.hpp>
#include <tuple>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "tests/property/topology/random_topology.hpp"

namespace rackrail::planner::schedules_property_test {
namespace {

TEST_CASE("every family that does not refuse a random topology is right on it") {
  std::size_t checked = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const topology::Topology topology = topology::test::random_topology(seed, 9, 6);
    topology::Router router(topology);
    const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
    for (const auto& family : schedule_families()) {
      for (const TierCodecs& codecs : {TierCodecs{}, TierCodecs{fp16, fp16}}) {
        if (family->refusal(topology, codecs).has_value()) {
          continue;
        }
        CAPTURE(seed, family->name(), plan::to_string(codecs.inside));
        const auto graph = family->all_reduce({topology, router, codecs});
        CHECK(plan::verify(graph, &topology).problems == std::vector<std::string>{});
        ++checked;
      }
    }
  }
  CHECK(checked >= 150 * 6);
}

TEST_CASE("forests are the same every time") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const topology::Topology topology = topology::test::random_topology(seed, 9, 6);
    const auto make = [&] {
      topology::Router router(topology);
      return schedule_family("forest").all_reduce({topology, router, {}});
    };
    const plan::TransferGraph first = make();
    const plan::TransferGraph second = make();
    CAPTURE(seed);
    REQUIRE(first.transfers().size() == second.transfers().size());
    for (std::size_t i = 0; i < first.transfers().size(); ++i) {
      const plan::Transfer& a = first.transfers()[i];
      const plan::Transfer& b = second.transfers()[i];
      REQUIRE(std::tuple(a.src, a.dst, a.chunk_begin, a.op, a.route) ==
              std::tuple(b.src, b.dst, b.chunk_begin, b.op, b.route));
    }
  }
}

}  // namespace
}  // namespace rackrail::planner::schedules_property_test

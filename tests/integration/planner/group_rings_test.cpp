// Large collectives on 128 ranks, simulated, against the exact bounds.
#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>
#include <vector>

#include "planner/fastest_collective.hpp"
#include "planner/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {
namespace {

using plan::Collective;
using topology::Topology;

constexpr std::int64_t kElements = std::int64_t{1} << 28;

/// Simulated time of a family's fastest collective of 1 GiB, over the least that is possible.
double over_optimum(const char* family, const Topology& topology, Collective what,
                    Bandwidth optimum) {
  const auto costs = sim::make_cost_model(topology, {});
  const auto found = fastest_collective(
      schedule_family(family),
      {.what = what, .elements = kElements, .topology = topology, .codecs = {}, .costs = *costs});
  return found.value().time.seconds() * static_cast<double>(optimum.bytes_per_second()) /
         (4.0 * kElements);
}

// Trees from every rank were 1.25 and 1.29 there: four rounds of them were as many transfers as
// could be simulated, and what comes last is then a large part of all.
TEST_CASE("1 GiB between 16 boxes of 8 GPUs is within 2 % of the exact bounds") {
  const Topology topology = test::a100_16x8();
  CHECK(over_optimum("hierarchical", topology, Collective::kAllGather,
                     topology::allgather_bound(topology).algbw) <= 1.006);
  // Sums start with three additions of microseconds each, one after the other.
  CHECK(over_optimum("hierarchical", topology, Collective::kReduceScatter,
                     topology::reducescatter_bound(topology).algbw) <= 1.012);
  CHECK(over_optimum("hierarchical", topology, Collective::kAllReduce,
                     topology::joint_allreduce_bound(topology).algbw) <= 1.008);
}

TEST_CASE("one slow NIC of 96 holds up its rail only") {
  if (!topology::LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  std::vector<std::vector<int>> nics(12, std::vector<int>(8, 25));
  nics[0][0] = 12;
  const Topology topology = test::boxes_with_nics(nics, 8);
  CHECK(over_optimum("hierarchical", topology, Collective::kAllReduce,
                     topology::joint_allreduce_bound(topology).algbw) <= 1.010);
}

}  // namespace
}  // namespace rackrail::planner

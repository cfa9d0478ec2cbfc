// Shares of parts are the best even where what all parts move over a link differs by rounding only.
#include "planner/algorithms/part_loads.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "topology/linear_program.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner::part_loads_test {
namespace {

using topology::Topology;

/// As many links between the same two vertices as there are rates, in GB/s.
Topology links(const std::vector<int>& rates) {
  Topology topology("links");
  const NodeId a = topology.add_node({.name = "a", .kind = topology::NodeKind::kGpu});
  const NodeId b = topology.add_node({.name = "b", .kind = topology::NodeKind::kGpu});
  topology.add_rank(a);
  topology.add_rank(b);
  for (const int rate : rates) {
    topology.add_link({.from = a, .to = b, .bandwidth = Bandwidth(rate * 1'000'000'000LL)});
  }
  return topology;
}

/// One byte, in so many parts as a load is summed up from.
void cross_in_parts(PartLoads& loads, LinkId link, int parts) {
  for (int i = 0; i < parts; ++i) {
    loads.cross({link}, 1.0 / parts);
  }
}

// Part 0 has the slow link, part 1 goes round it by way of seven others' links, part 9 spares
// these: the loads of 16 hosts of 8 GPUs of which one NIC is slow (12 of 25 GB/s).
TEST_CASE("loads of all parts that differ by rounding do not spoil the program") {
  if (!topology::LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  constexpr std::size_t kLines = 7;
  std::vector<int> rates(kLines, 300);
  rates.push_back(12);
  rates.push_back(25);
  rates.insert(rates.end(), 2 * kLines, 25);
  const Topology topology = links(rates);
  const auto alone = [](std::size_t line) { return LinkId(kLines + 2 + line); };
  const auto shared = [](std::size_t line) { return LinkId(2 * kLines + 2 + line); };
  PartLoads loads(topology);
  for (std::size_t part = 0; part < kLines + 3; ++part) {
    for (std::size_t line = 0; line < kLines; ++line) {
      if (part == line + 2) {
        loads.cross({LinkId(line)}, 7);
      } else {
        cross_in_parts(loads, LinkId(line), static_cast<int>(6 + 7 * part));
      }
      if (part == 1) loads.cross({alone(line)}, 1.0 / 7);
      if (part == 1) loads.cross({shared(line)}, 1.0 / 105);
      if (part == line + 2) loads.cross({alone(line)}, 1.875);
      if (part == line + 2) loads.cross({shared(line)}, 1.875);
      if (part == kLines + 2) loads.cross({LinkId(line)}, 6.0 / 7);
      if (part == kLines + 2) loads.cross({alone(line)}, 1.0 / 7);
      if (part == kLines + 2) loads.cross({shared(line)}, 2.0 / 7);
    }
    if (part == 0) loads.cross({LinkId(kLines)}, 1.3);
    if (part < 2) loads.cross({LinkId(kLines + 1)}, 28.0 / 15);
    loads.end_part();
  }
  const auto shares = loads.best_shares();
  REQUIRE(shares);
  std::vector<double> good(kLines + 3, 0.12);
  good[0] = 0.08;
  good[1] = good[kLines + 2] = 0.04;
  CHECK(loads.time(*shares) / loads.time(good) <= 1);
}

}  // namespace
}  // namespace rackrail::planner::part_loads_test

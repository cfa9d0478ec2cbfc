// The flow level against the packet level: two models that share no code but the interface. The
// default options were searched for on permutations with seeds 1 to 15; the seeds here are others.
//
// Held to 5 % of the makespan, and most of them to 10 % of the mean completion: permutations of
// 16 MiB, incast, and all-reduces, as below. results/flow-against-packet.md has what is not held to
// it: short permutations and the worst of those that were searched on (up to +8.6 %), uneven
// incasts (up to +62 %), the parking lot (+6.7 %, completion -23 %) and trimming (up to +16 %).
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/integration/sim/flow_cases.hpp"

namespace rackrail::sim::test::flow_against_packet_test {
namespace {

constexpr double kMakespan = 0.05;
constexpr double kMeanCompletion = 0.10;

double off(double ratio) { return std::abs(ratio - 1); }

TEST_CASE("random permutations on fat trees of 128 hosts") {
  const int oversubscription = GENERATE(1, 2);
  const unsigned seed = GENERATE(range(101U, 109U));
  const Comparison result = compare(permutation(oversubscription, 16_MiB, seed));
  CAPTURE(table_row(result));
  CHECK(off(result.makespan_ratio()) < kMakespan);
  CHECK(off(result.completion_ratio()) < kMeanCompletion);
}

TEST_CASE("incast of 32 hosts") {
  const Comparison result = compare(incast(32, GENERATE(1_MiB, 16_MiB)));
  CAPTURE(table_row(result));
  CHECK(off(result.makespan_ratio()) < kMakespan);
  CHECK(off(result.completion_ratio()) < kMeanCompletion);
}

TEST_CASE("all-reduce by a ring on a fat tree oversubscribed 2:1") {
  const Comparison result = compare_all_reduce("ring", 64_MiB);
  CAPTURE(table_row(result));
  CHECK(off(result.makespan_ratio()) < kMakespan);
  CHECK(off(result.completion_ratio()) < kMeanCompletion);
}

TEST_CASE("all-reduce by a ring in random order, whose flows meet on uplinks") {
  const Comparison result = compare_random_ring(64_MiB, GENERATE(101U, 102U));
  CAPTURE(table_row(result));
  CHECK(off(result.makespan_ratio()) < kMakespan);
  CHECK(off(result.completion_ratio()) < kMeanCompletion);
}

TEST_CASE("all-reduces between racks whose uplinks are narrower than their hosts' links") {
  const char* const schedule = GENERATE("ring", "forest", "hierarchical", "hierarchical-ring",
                                        "halving-doubling", "double-binary-tree");
  const Comparison result = compare_on("two-racks-40g", schedule, 128_MiB);
  CAPTURE(table_row(result));
  CHECK(off(result.makespan_ratio()) < kMakespan);
}

TEST_CASE("the messages of rings on shipped clusters end when both levels say") {
  for (const Comparison& result :
       {compare_on("two-racks-40g", "ring", 16_MiB), compare_on("two-racks-40g", "ring", 128_MiB),
        compare_random_ring(16_MiB, 101)}) {
    CAPTURE(table_row(result));
    CHECK(off(result.makespan_ratio()) < kMakespan);
    CHECK(off(result.completion_ratio()) < kMeanCompletion);
  }
}

TEST_CASE("a flow that meets others on several links gets less than its max-min share") {
  // Max–min gives it half of every link, so that all flows end together. Under DCQCN it has the
  // notifications of all links, and ends last; but the links are never idle while it is there.
  const Flows flows = parking_lot(4, 16_MiB);
  const Outcome flow = on_flow_level(flows);
  const Outcome packet = on_packet_level(flows);
  CHECK(flow.completions.front() == Approx(flow.completions.back()).epsilon(0.01));
  CHECK(packet.completions.front() == packet.makespan);
  for (std::size_t f = 1; f < flows.routes.size(); ++f) {
    CHECK(packet.completions[f] < packet.makespan);
  }
  CHECK(packet.makespan < 1.1 * flow.makespan);
}

// Not run by itself: scripts/measure-packet-level writes it to results/.
TEST_CASE("table of both levels", "[.table]") {
  fmt::print("{}\n", table_head());
  const auto show = [](const Comparison& result) { fmt::print("{}\n", table_row(result)); };
  for (const int oversubscription : {1, 2}) {
    for (unsigned seed = 101; seed < 113; ++seed) {
      show(compare(permutation(oversubscription, 16_MiB, seed)));
    }
    for (const Bytes bytes : {1_MiB, 4_MiB, 64_MiB}) {
      show(compare(permutation(oversubscription, bytes, 101)));
    }
  }
  // The worst of the seeds that were searched with.
  show(compare(permutation(1, 16_MiB, 9)));
  show(compare(permutation(1, 4_MiB, 4)));
  for (const std::size_t senders : {8U, 32U, 127U}) {
    show(compare(incast(senders, 16_MiB)));
  }
  show(compare(uneven_incast(8, 16_MiB)));
  show(compare(uneven_incast(8, 64_MiB)));
  show(compare(parking_lot(4, 16_MiB)));
  PacketOptions trimming;
  trimming.overload = Overload::kTrim;
  for (Flows flows : {incast(32, 16_MiB), permutation(1, 16_MiB, 101), permutation(2, 16_MiB, 101),
                      parking_lot(4, 16_MiB)}) {
    flows.name += ", trimming";
    show(compare(flows, trimming));
  }
  for (const char* schedule :
       {"ring", "halving-doubling", "hierarchical", "double-binary-tree", "parameter-server"}) {
    show(compare_all_reduce(schedule, 64_MiB));
  }
  show(compare_random_ring(16_MiB, 101));
  show(compare_random_ring(64_MiB, 101));
  show(compare_random_ring(64_MiB, 102));
  for (const char* schedule : {"ring", "forest", "hierarchical", "hierarchical-ring",
                               "halving-doubling", "double-binary-tree"}) {
    for (const Bytes bytes : {1_MiB, 16_MiB, 128_MiB}) {
      show(compare_on("two-racks-40g", schedule, bytes));
    }
  }
  for (const Bytes bytes : {16_MiB, 128_MiB}) {
    show(compare_dragonfly_ring(bytes));
  }
  for (const char* schedule : {"ring", "forest", "hierarchical", "hierarchical-ring"}) {
    for (const Bytes bytes : {4_MiB, 64_MiB}) {
      show(compare_on("a100-8x8", schedule, bytes));
    }
  }
}

}  // namespace
}  // namespace rackrail::sim::test::flow_against_packet_test

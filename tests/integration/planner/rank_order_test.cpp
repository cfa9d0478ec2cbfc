// Schedules on machines whose GPUs are numbered across sockets, against the same machines numbered
// socket by socket.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "sim/simulator.hpp"
#include "topology/part.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::rank_order_test {
namespace {

using topology::Topology;

constexpr std::size_t kGpus = 8;

/// Hosts of 8 GPUs on 4 PCIe switches, two at each of 2 sockets, without NVLink.
Topology in_order(int hosts) {
  const std::string text = fmt::format(R"(
name: sockets
device_classes:
  L40: {{ memory: 48 GB }}
node_types:
  box:
    gpus: 8
    device_class: L40
    pcie: {{ bandwidth: 25 GB/s, latency: 500 ns, gpus_per_switch: 2 }}
    sockets: {{ count: 2, bandwidth: 30 GB/s, latency: 200 ns }}
    nics: {{ count: 4, link: rdma }}
racks: {{ count: 1, hosts: {}, type: box }}
network: {{ wiring: single-switch }}
)",
                                       hosts);
  return topology::read_cluster_text("sockets.yaml", text).topology;
}

/// By rank, the rank of in_order() that it is: GPU 0 of a host on socket 0, GPU 1 on socket 1, GPU
/// 2 on the other switch of socket 0, … If `mixed`, every second host is numbered in order.
std::vector<Rank> across_sockets(std::size_t ranks, bool mixed) {
  constexpr std::size_t kAcross[kGpus] = {0, 4, 2, 6, 1, 5, 3, 7};
  std::vector<Rank> order;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t host = r / kGpus;
    const bool as_is = mixed && host % 2 == 1;
    order.emplace_back(host * kGpus + (as_is ? r % kGpus : kAcross[r % kGpus]));
  }
  return order;
}

Topology renumbered(const Topology& topology, const std::vector<Rank>& order) {
  return topology::part_of(topology, std::vector<bool>(topology.node_count(), true), order);
}

/// Buffers' worth that go from one socket, or PCIe switch, of a machine to another.
struct Crossings {
  double sockets = 0;
  double switches = 0;
};

/// `place`: by rank, the rank of in_order() whose GPU it is.
Crossings crossings(const plan::TransferGraph& graph, const std::vector<Rank>& place) {
  constexpr std::size_t kPerSocket = 4;
  constexpr std::size_t kPerSwitch = 2;
  Crossings found;
  const double chunk = 1.0 / static_cast<double>(graph.chunk_count());
  for (const plan::Transfer& t : graph.transfers()) {
    const std::size_t src = place[t.src.index()].index();
    const std::size_t dst = place[t.dst.index()].index();
    if (src / kGpus == dst / kGpus) {
      const double moved = chunk * t.chunk_count;
      found.sockets += src / kPerSocket != dst / kPerSocket ? moved : 0;
      found.switches += src / kPerSwitch != dst / kPerSwitch ? moved : 0;
    }
  }
  return found;
}

std::vector<plan::TransferGraph> all_reduces(const ScheduleFamily& family,
                                             const Topology& topology) {
  topology::Router router(topology);
  return family.all_reduces({.topology = topology, .router = router, .codecs = {}});
}

// By number, a ring crossed the sockets of each host up to eight times and took up to 1.77 times as
// long, halving and doubling 1.28 times.
TEST_CASE("schedules are the same however the GPUs of a host are numbered") {
  const int hosts = GENERATE(1, 2, 3);
  const bool mixed = GENERATE(false, true);
  const Topology sorted = in_order(hosts);
  const std::vector<Rank> order = across_sockets(sorted.rank_count(), mixed);
  const Topology numbered = renumbered(sorted, order);
  std::vector<Rank> identity;
  for (std::size_t r = 0; r < sorted.rank_count(); ++r) {
    identity.emplace_back(r);
  }
  std::size_t compared = 0;
  for (const char* name :
       {"ring", "double-binary-tree", "halving-doubling", "hierarchical", "hierarchical-ring",
        "hierarchical-tree", "parameter-server", "knomial-tree"}) {
    const ScheduleFamily& family = schedule_family(name);
    if (family.refusal(sorted, {})) {
      continue;
    }
    const auto expected = all_reduces(family, sorted);
    const auto found = all_reduces(family, numbered);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CAPTURE(hosts, mixed, name, i);
      CHECK(plan::verify(found[i], &numbered).problems.empty());
      const Crossings fewest = crossings(expected[i], identity);
      const Crossings made = crossings(found[i], order);
      CHECK(made.sockets == Approx(fewest.sockets));
      CHECK(made.switches == Approx(fewest.switches));
      for (const std::int64_t elements : {1 << 10, 1 << 18, 1 << 24}) {
        constexpr std::int64_t kSlice = 1 << 18;
        const auto time = [&](const plan::TransferGraph& graph, const Topology& topology) {
          return sim::simulate_collective(graph, elements, kSlice, topology, {}).time;
        };
        CHECK(time(found[i], numbered) <= scaled(time(expected[i], sorted), 1.001));
        ++compared;
      }
    }
  }
  CHECK(compared >= 3 * 4);
}

TEST_CASE("no other order of the GPUs of a host crosses its sockets less") {
  const Topology sorted = in_order(1);
  const std::vector<Rank> order = across_sockets(kGpus, false);
  const Topology numbered = renumbered(sorted, order);
  for (const char* name : {"ring", "double-binary-tree", "halving-doubling", "knomial-tree"}) {
    CAPTURE(name);
    const plan::TransferGraph graph = all_reduces(schedule_family(name), numbered).front();
    const Crossings made = crossings(graph, order);
    std::vector<Rank> other = order;
    std::sort(other.begin(), other.end());
    Crossings fewest = made;
    do {
      const Crossings of = crossings(graph, other);
      fewest.sockets = std::min(fewest.sockets, of.sockets);
      fewest.switches = std::min(fewest.switches, of.switches);
    } while (std::next_permutation(other.begin(), other.end()));
    CHECK(made.sockets == Approx(fewest.sockets));
    // Other orders let trees send less between PCIe switches of one socket, none of them across.
    const bool is_tree = std::string(name) == "double-binary-tree";
    CHECK(made.switches <= Approx((is_tree ? 1.25 : 1.0) * fewest.switches));
  }
}

}  // namespace
}  // namespace rackrail::planner::rank_order_test

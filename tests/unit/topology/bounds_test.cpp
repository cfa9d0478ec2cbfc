#include <catch2/catch.hpp>
#include <chrono>
#include <string>

#include "base/error.hpp"
#include "tests/support/clusters.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::bounds_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::add_gpu;
using topology::test::add_switch;
using topology::test::boxes;
using topology::test::grid;
using topology::test::join;
using topology::test::join_one_way;
using topology::test::ring;
using topology::test::star;

namespace {

constexpr std::int64_t kUnit = 1'000'000'000;

double in_units(Bandwidth rate) {
  return static_cast<double>(rate.bytes_per_second()) / static_cast<double>(kUnit);
}

/// Hosts with 10 units to their ToR, ToRs with 4 units to a core.
Topology two_racks() {
  Topology t("two-racks");
  const NodeId core = add_switch(t, "core");
  for (int r = 0; r < 2; ++r) {
    const NodeId tor = add_switch(t, "tor" + std::to_string(r));
    join(t, tor, core, Bandwidth(4 * kUnit));
    for (int h = 0; h < 2; ++h) {
      join(t, add_gpu(t, "host" + std::to_string(2 * r + h)), tor, Bandwidth(10 * kUnit));
    }
  }
  return t;
}

}  // namespace

TEST_CASE("no collective takes less than the latency between the ranks that are farthest apart") {
  Topology t;
  const auto link = [&](NodeId a, NodeId b, Duration latency) {
    Link one;
    one.from = a;
    one.to = b;
    one.bandwidth = 1_GBps;
    one.latency = latency;
    t.add_duplex_link(one);
  };
  const NodeId s = add_switch(t, "s");
  link(add_gpu(t, "a"), s, 1_us);
  CHECK(latency_bound(t) == Duration());  // of one rank
  link(add_gpu(t, "b"), s, 2_us);
  const NodeId c = add_gpu(t, "c");
  link(c, s, 50_us);
  CHECK(latency_bound(t) == 52_us);
  link(c, t.node_of(Rank(1)), 5_us);  // a shorter way past b
  CHECK(latency_bound(t) == 8_us);
}

TEST_CASE("max-flow comes with a cut that proves it") {
  Topology t;
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  const NodeId s1 = add_switch(t, "s1");
  const NodeId s2 = add_switch(t, "s2");
  join_one_way(t, a, s1, 10_GBps);
  join_one_way(t, a, s2, 10_GBps);
  join_one_way(t, s1, s2, 2_GBps);
  join_one_way(t, s1, b, 4_GBps);
  join_one_way(t, s2, b, 9_GBps);
  const MaxFlow flow = max_flow(t, a, b);
  CHECK(flow.value == 13_GBps);
  CHECK(flow.cut.capacity == 13_GBps);
  CHECK(flow.cut.links == std::vector{LinkId(3), LinkId(4)});
  CHECK(flow.cut.ranks_inside == 1);
  CHECK(max_flow(t, b, a).value == Bandwidth(0));
  CHECK_THROWS_AS(max_flow(t, a, a), ConfigError);
}

TEST_CASE("all-gather bounds of known clusters") {
  SECTION("two boxes of 8 GPUs, 25 per GPU between them") {
    const AllGatherBound bound = allgather_bound(boxes(2, kUnit));
    CHECK(in_units(bound.algbw) == Approx(346.6666667).epsilon(1e-9));
    CHECK(bound.trees_per_root == 13);
    // 15 GPUs against the 325 that enter the last one.
    CHECK(bound.p == 3);
    CHECK(bound.q == 65 * kUnit);
    CHECK(bound.cut.ranks_inside == 15);
    CHECK(bound.cut.capacity == Bandwidth(325 * kUnit));
  }
  SECTION("one box") {
    CHECK(in_units(allgather_bound(boxes(1, kUnit)).algbw) == Approx(342.857142857).epsilon(1e-9));
  }
  SECTION("two racks of two hosts") {
    const Topology t = two_racks();
    const AllGatherBound bound = allgather_bound(t);
    CHECK(in_units(bound.algbw) == Approx(8));
    CHECK(bound.cut.ranks_inside == 2);
    REQUIRE(bound.cut.links.size() == 1);
    CHECK_THAT(t.link_name(bound.cut.links[0]), Catch::Contains("core"));
  }
  SECTION("4 x 4 torus") {
    const AllGatherBound bound = allgather_bound(grid(4, 4, true, Bandwidth(kUnit)));
    CHECK(in_units(bound.algbw) == Approx(64.0 / 15));
    // 15/4, in lowest terms: a unit is divisible by 5.
    CHECK(bound.p == 3);
    CHECK(bound.q == 4 * kUnit / 5);
  }
  SECTION("4 x 4 mesh") {
    CHECK(in_units(allgather_bound(grid(4, 4, false, Bandwidth(kUnit))).algbw) ==
          Approx(32.0 / 15));
  }
  SECTION("ring of 16") {
    CHECK(in_units(allgather_bound(ring(16, Bandwidth(kUnit))).algbw) == Approx(32.0 / 15));
  }
}

TEST_CASE("reduce-scatter is bounded by what leaves, all-gather by what enters") {
  // gpu0 sends with 1 and receives with 5.
  Topology t;
  const NodeId hub = add_switch(t, "hub");
  const NodeId uneven = add_gpu(t, "gpu0");
  join_one_way(t, uneven, hub, Bandwidth(kUnit));
  join_one_way(t, hub, uneven, Bandwidth(5 * kUnit));
  for (int i = 1; i < 4; ++i) {
    join(t, add_gpu(t, "gpu" + std::to_string(i)), hub, Bandwidth(9 * kUnit));
  }
  // All-gather: one shard of four leaves gpu0 (4·1), three enter it (4·5/3).
  CHECK(in_units(allgather_bound(t).algbw) == Approx(4));
  // Reduce-scatter: three partial sums leave gpu0 for the others' shards.
  const AllGatherBound scatter = reducescatter_bound(t);
  CHECK(in_units(scatter.algbw) == Approx(4.0 / 3));
  REQUIRE(scatter.cut.links.size() == 1);
  CHECK(t.link_name(scatter.cut.links[0]) == "gpu0→hub");
}

TEST_CASE("symmetric clusters have equal bounds in both directions") {
  for (const char* name : {"two-racks-40g", "a100-8x8", "fat-tree-128-2to1"}) {
    const Topology t = read_cluster(name).topology;
    CAPTURE(name);
    CHECK(allgather_bound(t).algbw == reducescatter_bound(t).algbw);
  }
}

TEST_CASE("all-reduce is bounded by cuts and by partitions") {
  SECTION("two racks: the uplink carries the whole sum") {
    const AllReduceBound bound = allreduce_bound(two_racks());
    CHECK(in_units(bound.algbw) == Approx(4));
    CHECK_THAT(
        bound.reason,
        Catch::Matches("cut: 2 ranks of .* can (send|receive) at most .* together \\(.*core.*\\)"));
    CHECK(bound.cut.links.size() == 1);
  }
  SECTION("a star of equals: 2(k-1) messages enter k ranks") {
    const AllReduceBound bound =
        allreduce_bound(star(std::vector<Bandwidth>(8, Bandwidth(100 * kUnit))));
    CHECK(in_units(bound.algbw) == Approx(800.0 / 14));
    CHECK_THAT(bound.reason, Catch::Contains("partition into 8 ranks"));
  }
  SECTION("a slow member: its own link binds") {
    std::vector<Bandwidth> rates(7, Bandwidth(100 * kUnit));
    rates.push_back(Bandwidth(25 * kUnit));
    CHECK(in_units(allreduce_bound(star(rates)).algbw) == Approx(25));
  }
  SECTION("reduction in the network leaves only the cuts") {
    const Topology box = boxes(1, kUnit);
    CHECK(in_units(allreduce_bound(box).algbw) == Approx(2400.0 / 14));
    CHECK(in_units(allreduce_bound(box, true).algbw) == Approx(300));
  }
  SECTION("hosts with fast GPUs inside") {
    const Topology t = boxes(4, kUnit);
    const AllReduceBound bound = allreduce_bound(t);
    // 4 boxes of 200 in: 800 / 6. Single ranks: 32 · 325 / 62 = 167.7.
    CHECK(in_units(bound.algbw) == Approx(800.0 / 6));
    CHECK_THAT(bound.reason, Catch::Contains("4 hosts"));
  }
  SECTION("a host is no wider than what lies behind its NICs") {
    // Two GPUs a host at 16 each, one PCIe switch, a NIC of 25 behind 12 GB/s of PCIe.
    Topology t;
    const NodeId tor = t.add_node({.name = "tor", .kind = NodeKind::kTor});
    const auto join = [&](NodeId from, NodeId to, std::int64_t rate) {
      t.add_duplex_link({.from = from, .to = to, .bandwidth = Bandwidth(rate * kUnit)});
    };
    for (int h = 0; h < 3; ++h) {
      const std::string host = "host" + std::to_string(h);
      const NodeId pcie =
          t.add_node({.name = "pcie" + host, .kind = NodeKind::kPciSwitch, .host = host});
      const NodeId nic = t.add_node({.name = "nic" + host, .kind = NodeKind::kNic, .host = host});
      join(nic, tor, 25);
      join(pcie, nic, 12);
      for (int g = 0; g < 2; ++g) {
        const NodeId gpu =
            t.add_node({.name = host + std::to_string(g), .kind = NodeKind::kGpu, .host = host});
        t.add_rank(gpu);
        join(gpu, pcie, 16);
      }
    }
    const AllReduceBound bound = allreduce_bound(t);
    CHECK(in_units(bound.algbw) == Approx(3 * 12 / 4.0));
    CHECK_THAT(bound.reason, Catch::Contains("3 hosts: 36"));
  }
  SECTION("links that carry more one way than the other") {
    Topology t;
    const NodeId a = add_gpu(t, "a");
    const NodeId b = add_gpu(t, "b");
    join_one_way(t, a, b, Bandwidth(9 * kUnit));
    join_one_way(t, b, a, Bandwidth(2 * kUnit));
    const AllReduceBound bound = allreduce_bound(t);
    CHECK(in_units(bound.algbw) == Approx(2));
    REQUIRE(bound.cut.links.size() == 1);
    CHECK(t.link_name(bound.cut.links[0]) == "b→a");
    CHECK(bound.cut.capacity == Bandwidth(2 * kUnit));
  }
}

TEST_CASE("resources of a machine do not widen a cut") {
  Topology t = star({Bandwidth(4 * kUnit), Bandwidth(4 * kUnit)});
  Link shared;
  shared.from = NodeId(1);
  shared.to = NodeId(2);
  shared.bandwidth = Bandwidth(100 * kUnit);
  shared.kind = LinkKind::kShared;
  t.add_duplex_link(shared);
  CHECK(in_units(allgather_bound(t).algbw) == Approx(8));
  CHECK(in_units(allreduce_bound(t).algbw) == Approx(4));
  CHECK(in_units(max_flow(t, NodeId(1), NodeId(2)).value) == Approx(4));
}

TEST_CASE("racks bound an all-reduce though their switches do not say whose they are") {
  Topology t = rackrail::test::pods({{{2, 2}, {2, 2}, {2, 2}}});
  for (std::size_t v = 0; v < t.node_count(); ++v) {
    Node node = t.node(NodeId(v));
    if (node.kind == NodeKind::kTor) {
      node.rack.clear();
      t.set_node_properties(NodeId(v), node);
    }
  }
  // 2(k - 1) sums enter k racks, each by one uplink.
  const AllReduceBound bound = allreduce_bound(t);
  CHECK(bound.algbw == Bandwidth(18 * kUnit / 4));
  CHECK_THAT(bound.reason, Catch::Contains("partition into 3 racks"));
}

TEST_CASE("rates without a common factor stay exact") {
  const Topology t =
      star({Bandwidth(999'999'999'989), Bandwidth(999'999'999'961), Bandwidth(1'000'000'000'039)});
  const AllGatherBound bound = allgather_bound(t);
  // The narrowest rank takes in two shards of three.
  CHECK(bound.p == 2);
  CHECK(bound.q == 999'999'999'961);
}

TEST_CASE("bounds need two ranks that reach each other") {
  Topology t("few");
  add_gpu(t, "a");
  CHECK_THROWS_WITH(allgather_bound(t), Catch::Contains("1 ranks"));
  add_gpu(t, "b");
  CHECK_THROWS_WITH(allgather_bound(t), Catch::Contains("a | b"));
  CHECK_THROWS_AS(allreduce_bound(t), ConfigError);
}

TEST_CASE("the bound of 256 GPUs takes less than half a second", "[timing]") {
  const Topology t = read_cluster("h100-32x8-rail").topology;
  const auto start = std::chrono::steady_clock::now();
  const AllGatherBound bound = allgather_bound(t);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  // 32 machines of 8 x 50 GB/s: 248 GPUs' shards enter the last machine with 400 GB/s.
  CHECK(bound.algbw == Bandwidth(256 * 400'000'000'000LL / 248));
  CHECK(seconds.count() < 0.5);
}

TEST_CASE("a cut is described by the racks that it parts and the way it goes") {
  const Topology racks = read_cluster("two-racks-40g").topology;
  CHECK_THAT(describe(racks, allgather_bound(racks).cut),
             Catch::Matches("2 ranks of rack[01], leaving"));
  CHECK_THAT(describe(racks, reducescatter_bound(racks).cut, true),
             Catch::Matches("2 ranks of rack[01], entering"));
}

TEST_CASE("a wider link buys what the next cut allows") {
  // Seven hosts with 100 and one with 25: the others' data enters the narrow one.
  Topology t("star");
  const NodeId middle = add_switch(t, "middle");
  for (int h = 0; h < 8; ++h) {
    join(t, add_gpu(t, "host" + std::to_string(h)), middle, Bandwidth((h == 7 ? 25 : 100) * kUnit));
  }
  const AllGatherBound bound = allgather_bound(t);
  CHECK(in_units(bound.algbw) == Approx(8 * 25 / 7.0));
  CHECK(in_units(allgather_bound(with_wider_link(t, bound.cut.links.front())).algbw) ==
        Approx(8 * 50 / 7.0));
}

TEST_CASE("of cables side by side, a wider link takes the one of its width with it") {
  Topology t("pair");
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  join(t, a, b, Bandwidth(10 * kUnit));
  join(t, a, b, Bandwidth(40 * kUnit));
  const auto total = [](const Topology& topology, NodeId from) {
    double sum = 0;
    for (const LinkId link : topology.links_out_of(from)) {
      sum += in_units(topology.link(link).bandwidth);
    }
    return sum;
  };
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Topology wider = with_wider_link(t, LinkId(l));
    CAPTURE(t.link_name(LinkId(l)));
    CHECK(total(wider, a) == total(wider, b));
  }
}

TEST_CASE("a partition's wider link is one of the cut that binds, not of the machine's edge") {
  // Three machines of two GPUs behind a PCIe switch of 5, with NICs of 50.
  Topology t("machines");
  const NodeId tor = add_switch(t, "tor");
  for (int h = 0; h < 3; ++h) {
    const std::string host = "host" + std::to_string(h);
    const auto add = [&](const std::string& name, NodeKind kind) {
      return t.add_node({.name = host + name, .kind = kind, .host = host});
    };
    const NodeId nic = add(".nic", NodeKind::kNic);
    const NodeId pcie = add(".pcie", NodeKind::kPciSwitch);
    join(t, tor, nic, Bandwidth(50 * kUnit));
    join(t, nic, pcie, Bandwidth(5 * kUnit));
    for (int g = 0; g < 2; ++g) {
      const NodeId gpu = add(".gpu" + std::to_string(g), NodeKind::kGpu);
      t.add_rank(gpu);
      join(t, gpu, pcie, Bandwidth(50 * kUnit));
    }
  }
  const AllReduceBound bound = allreduce_bound(t);
  CHECK(in_units(bound.algbw) == Approx(15 / 4.0));
  REQUIRE(bound.widest);
  CHECK(t.link_name(*bound.widest) == "host0.nic→host0.pcie");
  CHECK(in_units(allreduce_bound(with_wider_link(t, *bound.widest)).algbw) == Approx(20 / 4.0));
}

}  // namespace rackrail::bounds_test

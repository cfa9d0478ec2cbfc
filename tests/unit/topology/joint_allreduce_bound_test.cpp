#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/skip.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"
#include "topology/rate_program.hpp"
#include "topology/reader.hpp"

namespace rackrail::joint_allreduce_bound_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::boxes;
using topology::test::grid;
using topology::test::ring;
using topology::test::star;

namespace {

constexpr std::int64_t kUnit = 1'000'000'000;

double joint(const Topology& t, bool in_network = false) {
  return static_cast<double>(joint_allreduce_bound(t, in_network).algbw.bytes_per_second()) /
         static_cast<double>(kUnit);
}

}  // namespace

TEST_CASE("joint optimum of all-reduce on known clusters") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  SECTION("4 x 4 mesh: 1.6, where reduce-scatter and all-gather in turn reach 1.067") {
    CHECK(joint(grid(4, 4, false, Bandwidth(kUnit))) == Approx(1.6).epsilon(1e-6));
  }
  SECTION("symmetric rings and tori gain nothing") {
    CHECK(joint(grid(4, 4, true, Bandwidth(kUnit))) == Approx(32.0 / 15).epsilon(1e-6));
    CHECK(joint(ring(16, Bandwidth(kUnit))) == Approx(16.0 / 15).epsilon(1e-6));
  }
  SECTION("a star with one slow member: 25 instead of 14.29") {
    std::vector<Bandwidth> rates(7, Bandwidth(100 * kUnit));
    rates.push_back(Bandwidth(25 * kUnit));
    CHECK(joint(star(rates)) == Approx(25).epsilon(1e-6));
  }
  SECTION("one NVSwitch box: 171.4, in the network 300") {
    CHECK(joint(boxes(1, kUnit)) == Approx(2400.0 / 14).epsilon(1e-6));
    CHECK(joint(boxes(1, kUnit), true) == Approx(300).epsilon(1e-6));
  }
  SECTION("in-network reduction where there is no switch changes nothing") {
    CHECK(joint(grid(4, 4, false, Bandwidth(kUnit)), true) == Approx(1.6).epsilon(1e-6));
    CHECK(joint(ring(16, Bandwidth(kUnit)), true) == Approx(16.0 / 15).epsilon(1e-6));
  }
}

TEST_CASE("the joint optimum is a fraction of whole numbers, and a binding link widens it") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  const auto is_exactly = [](const AllReduceBound& bound, std::int64_t p, std::int64_t q) {
    return bound.p * q == bound.q * p && bound.p > 0;
  };
  // By the joint optimum, by one cut, by a partition, and by one cut of switches that add.
  CHECK(is_exactly(joint_allreduce_bound(grid(4, 4, false, Bandwidth(kUnit))), 5, 8 * kUnit));
  std::vector<Bandwidth> rates(7, Bandwidth(100 * kUnit));
  rates.push_back(Bandwidth(25 * kUnit));
  const Topology slow = star(rates);
  const AllReduceBound by_cut = joint_allreduce_bound(slow);
  CHECK(is_exactly(by_cut, 1, 25 * kUnit));
  CHECK(is_exactly(joint_allreduce_bound(with_wider_link(slow, by_cut.widest.value())), 1,
                   50 * kUnit));
  CHECK(is_exactly(joint_allreduce_bound(boxes(1, kUnit)), 7, 1200 * kUnit));
  CHECK(is_exactly(joint_allreduce_bound(boxes(1, kUnit), true), 1, 300 * kUnit));
}

TEST_CASE("in the network the optimum of the shipped clusters is reached") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  struct Case {
    const char* name;
    std::int64_t p;
    std::int64_t q;
  };
  // What the NICs of a host let through, as switches add what comes from it and copy what goes to
  // it.
  const Case expected =
      GENERATE(Case{"a100-8x8", 1, 200 * kUnit}, Case{"h100-32x8-rail", 1, 400 * kUnit},
               Case{"fat-tree-128-2to1", 1, 12'500'000'000});
  CAPTURE(expected.name);
  const AllReduceBound bound = joint_allreduce_bound(read_cluster(expected.name).topology, true);
  CHECK_FALSE(bound.may_be_out_of_reach);
  CHECK(bound.p == expected.p);
  CHECK(bound.q == expected.q);
}

TEST_CASE("a program of alike ranks and links has the optimum of all of them") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  Topology slow = boxes(3, kUnit);
  for (const LinkId link : {LinkId(0), LinkId(1)}) {
    slow.set_link_rate(link, Bandwidth(7 * kUnit), slow.link(link).latency);
  }
  const Topology alike = boxes(3, kUnit);
  for (const Topology* t : {&std::as_const(slow), &alike}) {
    for (const bool in_network : {false, true}) {
      CAPTURE(in_network, t == &slow);
      std::vector<double> optima;
      std::vector<std::optional<ExactRate>> exact;
      for (const bool is_folded : {false, true}) {
        RateProgram program(*t, RateProgram::Trees::kBoth, abilities_of(*t, in_network), is_folded);
        optima.push_back(program.solve(0).value());
        CHECK(program.is_reached());
        exact.push_back(program.exact());
        REQUIRE(exact.back().has_value());
      }
      CHECK(optima[0] == Approx(optima[1]).epsilon(1e-6));
      CHECK(reduced(exact[0]->price, exact[0]->capacity) ==
            reduced(exact[1]->price, exact[1]->capacity));
    }
  }
}

TEST_CASE("only switches that say they can work do so, once any says it") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  Topology t = boxes(1, kUnit);
  // The idle spines of a single box claim to work; the NVSwitch then is one that does not.
  Node spine = t.node(NodeId(0));
  spine.multicasts = spine.reduces = true;
  t.set_node_properties(NodeId(0), spine);
  CHECK(joint(t, true) == Approx(2400.0 / 14).epsilon(1e-6));
  Node hub = t.node(*t.find_node("nvswitch0"));
  hub.multicasts = true;
  t.set_node_properties(*t.find_node("nvswitch0"), hub);
  // Copies in the switch spare the senders; the receivers still take in 2 · 7 messages per element.
  CHECK(joint(t, true) == Approx(2400.0 / 14).epsilon(1e-6));
  hub.reduces = true;
  t.set_node_properties(*t.find_node("nvswitch0"), hub);
  CHECK(joint(t, true) == Approx(300).epsilon(1e-6));
}

TEST_CASE("a box with one degraded GPU loses less than two halves in turn do") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  Topology t = boxes(1, kUnit);
  for (const LinkId link : {LinkId(0), LinkId(1)}) {
    t.set_link_rate(link, Bandwidth(150 * kUnit), t.link(link).latency);
  }
  // 14 messages of each element enter the 8 GPUs over 7 · 300 + 150; the slow GPU's own link allows
  // 150.
  CHECK(joint(t) == Approx(150).epsilon(1e-6));
  const double halves = static_cast<double>(allgather_bound(t).algbw.bytes_per_second()) / 2 /
                        static_cast<double>(kUnit);
  CHECK(halves < 90);
}

TEST_CASE("of unlike directions the narrower one binds, of very many ranks too") {
  const auto uneven_star = [](std::int64_t ranks, std::int64_t up, std::int64_t down) {
    Topology t("star");
    const NodeId hub = t.add_node({.name = "hub", .kind = NodeKind::kTor});
    for (std::int64_t i = 0; i < ranks; ++i) {
      const NodeId gpu = t.add_node({.name = fmt::format("gpu{}", i), .kind = NodeKind::kGpu});
      t.add_rank(gpu);
      t.add_link({.from = gpu, .to = hub, .bandwidth = Bandwidth(up * kUnit)});
      t.add_link({.from = hub, .to = gpu, .bandwidth = Bandwidth(down * kUnit)});
    }
    return t;
  };
  for (const std::int64_t ranks : {3, 257, 1025}) {
    CAPTURE(ranks);
    // 2 (n − 1) messages leave n ranks, or enter them, at 1 unit each.
    const double most = static_cast<double>(ranks) / static_cast<double>(2 * (ranks - 1));
    CHECK(joint(uneven_star(ranks, 1, 2)) == Approx(most).epsilon(1e-6));
    CHECK(joint(uneven_star(ranks, 2, 1)) == Approx(most).epsilon(1e-6));
  }
}

TEST_CASE("a joint optimum that was not looked for to the end says so", "[slow]") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  const auto uneven_mesh = [](int side) {
    std::mt19937 random(1);
    Topology t("mesh");
    std::vector<NodeId> gpus;
    for (int i = 0; i < side * side; ++i) {
      gpus.push_back(t.add_node({.name = fmt::format("gpu{}", i), .kind = NodeKind::kGpu}));
      t.add_rank(gpus.back());
    }
    const auto link = [&](int a, int b) {
      const auto rate = static_cast<std::int64_t>(1 + random() % 7);
      t.add_duplex_link({.from = gpus[static_cast<std::size_t>(a)],
                         .to = gpus[static_cast<std::size_t>(b)],
                         .bandwidth = Bandwidth(rate * kUnit)});
    };
    for (int y = 0; y < side; ++y) {
      for (int x = 0; x < side; ++x) {
        if (x + 1 < side) link(y * side + x, y * side + x + 1);
        if (y + 1 < side) link(y * side + x, (y + 1) * side + x);
      }
    }
    return t;
  };
  CHECK_FALSE(joint_allreduce_bound(uneven_mesh(8)).may_be_out_of_reach);
  CHECK(joint_allreduce_bound(uneven_mesh(15)).may_be_out_of_reach);
}

TEST_CASE("slow and fast hosts beyond a slow uplink, and the cuts that say so") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  const auto racks = [](int hosts) {
    Topology t("racks");
    const auto link = [&](NodeId a, NodeId b, std::int64_t rate) {
      t.add_duplex_link({.from = a, .to = b, .bandwidth = Bandwidth(rate * kUnit)});
    };
    const NodeId core = t.add_node({.name = "core", .kind = NodeKind::kCore});
    for (const std::int64_t rate : {1, 100}) {
      const NodeId tor = t.add_node({.name = fmt::format("tor{}", rate), .kind = NodeKind::kTor});
      link(tor, core, 101 - rate);
      for (int i = 0; i < hosts; ++i) {
        const NodeId host =
            t.add_node({.name = fmt::format("host{}.{}", rate, i), .kind = NodeKind::kHost});
        t.add_rank(host);
        link(host, tor, rate);
      }
    }
    return t;
  };
  for (const int hosts : {32, 33}) {  // on either side of what trees are packed for
    CAPTURE(hosts);
    const Topology t = racks(hosts);
    const AllReduceBound bound = joint_allreduce_bound(t);
    // Into the slow hosts and over the slow uplink go 2 (k − 1) sums in k parts.
    const double most = (hosts + 1.0) / (2 * hosts);
    CHECK(joint(t) <= most * (1 + 1e-6));
    CHECK(joint(t) >= 0.5);
    CHECK(bound.reason.find("bound by 1 rank of host1.") != std::string::npos);
  }
}

TEST_CASE("the joint bound of shipped clusters is quick and no looser than the simple one") {
  for (const std::string& name : shipped_clusters()) {
    const Topology t = read_cluster(name).topology;
    CAPTURE(name);
    const auto start = std::chrono::steady_clock::now();
    const AllReduceBound bound = joint_allreduce_bound(t);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    CHECK(bound.algbw <= allreduce_bound(t).algbw);
    CHECK_FALSE(bound.reason.empty());
    CHECK(seconds.count() < 5);
  }
}

TEST_CASE("a linear program grows by rows and is solved again") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  LinearProgram program;
  const int x = program.add_variable(4, 3);
  const int y = program.add_variable(10, 2);
  program.add_row({{x, -1}, {y, -1}}, -8);  // x + y <= 8
  CHECK(program.maximise().value() == Approx(20));
  CHECK(program.value(x) == Approx(4));
  CHECK(program.value(y) == Approx(4));
  program.add_row({{y, -1}}, -1);
  CHECK(program.maximise().value() == Approx(14));
  program.add_row({{x, 1}, {y, -1}}, 0, true);
  CHECK(program.maximise().value() == Approx(5));
  program.add_row({{x, 1}}, 9);
  CHECK_FALSE(program.maximise());
}

}  // namespace rackrail::joint_allreduce_bound_test

#include "runtime/emulate/network_plan.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/error.hpp"
#include "runtime/emulate/commands.hpp"
#include "topology/adapters.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::runtime::emulate::network_plan_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr unsigned kManyCores = 10'000;

Topology from_edges(const std::string& rows) {
  return topology::read_cluster_text("test.csv", "source,target,bandwidth,latency,kind\n" + rows,
                                     {})
      .topology;
}

const std::string kTwoByTwo =
    "host0,tor0,1 Gbit/s,2 us,host-link\n"
    "host1,tor0,1 Gbit/s,2 us,host-link\n"
    "host2,tor1,1 Gbit/s,2 us,host-link\n"
    "host3,tor1,1 Gbit/s,2 us,host-link\n"
    "tor0,core,500 Mbit/s,1 us,uplink\n"
    "tor1,core,500 Mbit/s,1 us,uplink\n";

ErrorContext refusal(const Topology& topology, double scale = 1, unsigned cores = kManyCores) {
  try {
    plan_network(topology, scale, cores);
  } catch (const ConfigError& error) {
    return error.context();
  }
  FAIL("not refused");
  return {};
}

/// Rates of a plan by "from->to".
std::map<std::string, Bandwidth> rates_of(const NetworkPlan& plan) {
  std::map<std::string, Bandwidth> rates;
  for (const ShapedLink& link : plan.links) {
    const std::string& a = plan.stations[link.a].name;
    const std::string& b = plan.stations[link.b].name;
    rates[a + "->" + b] = link.rate_ab;
    rates[b + "->" + a] = link.rate_ba;
  }
  return rates;
}

TEST_CASE("emulate plan: two racks of two hosts are what the file says") {
  const NetworkPlan plan = plan_network(from_edges(kTwoByTwo), 1, 2);
  CHECK(plan.host_count == 4);
  CHECK(plan.stations.size() == 7);
  CHECK(plan.host_of_rank == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(plan.notes.empty());
  std::map<std::string, Bandwidth> expected;
  for (const auto& [a, b, rate] :
       {std::tuple("host0", "tor0", 1000_Mbps), std::tuple("host1", "tor0", 1000_Mbps),
        std::tuple("host2", "tor1", 1000_Mbps), std::tuple("host3", "tor1", 1000_Mbps),
        std::tuple("tor0", "core", 500_Mbps), std::tuple("tor1", "core", 500_Mbps)}) {
    expected[fmt::format("{}->{}", a, b)] = rate;
    expected[fmt::format("{}->{}", b, a)] = rate;
  }
  CHECK(rates_of(plan) == expected);
}

TEST_CASE("emulate plan: addresses and ports are never given twice") {
  std::string rows;
  for (int i = 0; i < 64; ++i) {
    rows += fmt::format("host{},tor,10 Mbit/s,1 us,host-link\n", i);
  }
  const NetworkPlan plan = plan_network(from_edges(rows), 1, 2);
  CHECK(plan.host_count == 64);
  std::set<std::string> addresses{kLeaderAddress};
  std::set<std::pair<std::size_t, std::string>> ports;
  for (const Station& station : plan.stations) {
    CHECK(addresses.insert(station.address).second);
    if (station.is_host) {
      CHECK(addresses.insert(station.management_address).second);
    }
  }
  for (const ShapedLink& link : plan.links) {
    CHECK(ports.insert({link.a, link.port_a}).second);
    CHECK(ports.insert({link.b, link.port_b}).second);
    CHECK(link.port_a.size() <= 15);  // IFNAMSIZ
    CHECK(link.port_b.size() <= 15);
  }
  rows += "host64,tor,10 Mbit/s,1 us,host-link\n";
  CHECK(refusal(from_edges(rows)).found == "65");
}

TEST_CASE("emulate plan: rates are scaled, in both directions by themselves") {
  Topology topology("one way slower");
  const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost});
  const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost});
  topology.add_rank(a);
  topology.add_rank(b);
  topology.add_link({.from = a, .to = b, .bandwidth = 100_Gbps});
  topology.add_link({.from = b, .to = a, .bandwidth = 40_Gbps});
  const NetworkPlan plan = plan_network(topology, 0.0125, 2);
  CHECK(rates_of(plan) ==
        std::map<std::string, Bandwidth>{{"a->b", 1250_Mbps}, {"b->a", 500_Mbps}});
}

TEST_CASE("emulate plan: parallel spines become one with the sum of their rates") {
  const Topology topology = from_edges(
      "host0,tor0,1 Gbit/s,2 us,host-link\nhost1,tor1,1 Gbit/s,2 us,host-link\n"
      "tor0,spine0,250 Mbit/s,1 us,uplink\ntor1,spine0,250 Mbit/s,1 us,uplink\n"
      "tor0,spine1,150 Mbit/s,1 us,uplink\ntor1,spine1,150 Mbit/s,1 us,uplink\n");
  const NetworkPlan plan = plan_network(topology, 1, 2);
  CHECK(plan.stations.size() == 5);
  REQUIRE(plan.notes.size() == 1);
  CHECK(plan.notes[0].find("spine0, spine1 are one switch here") == 0);
  CHECK(rates_of(plan).at("tor0->spine0") == 400_Mbps);
  CHECK(rates_of(plan).at("spine0->tor1") == 400_Mbps);
}

const std::string kTwoRails =
    "host0,leaf0,100 Mbit/s,2 us,host-link\nhost0,leaf1,200 Mbit/s,2 us,host-link\n"
    "host1,leaf1,200 Mbit/s,2 us,host-link\nhost1,leaf0,100 Mbit/s,2 us,host-link\n";

TEST_CASE("emulate plan: networks that only machines join stay apart, with an interface for each") {
  const Topology topology = from_edges(kTwoRails);
  const NetworkPlan plan = plan_network(topology, 1, 2);
  CHECK(plan.stations.size() == 4);
  CHECK(plan.notes.empty());
  CHECK(rates_of(plan).at("host0->leaf1") == 200_Mbps);
  CHECK(rates_of(plan).at("leaf0->host1") == 100_Mbps);
  std::set<std::string> addresses;
  for (const ShapedLink& link : plan.links) {
    // Hosts come first, so they are the links' first ends.
    CHECK(link.port_a == (plan.stations[link.b].name == "leaf0" ? "rail0" : "rail1"));
    CHECK(addresses.insert(link.address_a).second);
    CHECK(link.address_b == plan.stations[link.b].address);
    // Both ends are of one network, which the other one is not of.
    CHECK(link.address_a.substr(0, 5) == link.address_b.substr(0, 5));
    CHECK(link.address_a.substr(0, 5) == (link.port_a == "rail0" ? "10.77" : "10.79"));
  }
  // host1's first adapter leads to the second network.
  REQUIRE(plan.adapters.size() == 2);
  CHECK(plan.adapters[0] == "rail0=rail0,rail1=rail1,nic0=rail0,nic1=rail1");
  CHECK(plan.adapters[1] == "rail0=rail0,rail1=rail1,nic0=rail1,nic1=rail0");

  const Topology view = emulated_topology(topology, plan, {.latency = 1_us, .inside = 10_GBps});
  const std::vector<topology::Adapter> adapters = topology::adapters_of(view);
  REQUIRE(adapters.size() == 4);
  for (const topology::Adapter& adapter : adapters) {
    CHECK(view.link(adapter.out[0]).bandwidth ==
          (adapter.devices == "rail0" ? 100_Mbps : 200_Mbps));
  }
  CHECK(max_flow(view, view.node_of(Rank(0)), view.node_of(Rank(1))).value == 300_Mbps);
}

TEST_CASE("emulate plan: leaves of rails below a spine are one network, and one switch") {
  const NetworkPlan plan =
      plan_network(from_edges(kTwoRails + "leaf0,spine,1 Gbit/s,1 us,uplink\n"
                                          "leaf1,spine,1 Gbit/s,1 us,uplink\n"),
                   1, 2);
  CHECK(plan.stations.size() == 3);
  CHECK(rates_of(plan).at("host0->leaf0") == 300_Mbps);
}

TEST_CASE("emulate plan: of several networks one joins all machines, and each is a tree") {
  // leaf1 joins the first two hosts, leaf2 the last two, and nobody all three.
  const std::string pairs =
      "host0,leaf1,100 Mbit/s,2 us,host-link\nhost1,leaf1,100 Mbit/s,2 us,host-link\n"
      "host1,leaf2,100 Mbit/s,2 us,host-link\nhost2,leaf2,100 Mbit/s,2 us,host-link\n";
  CHECK(refusal(from_edges(pairs)).where == "network");
  const std::string all =
      "host0,leaf0,100 Mbit/s,2 us,host-link\nhost1,leaf0,100 Mbit/s,2 us,host-link\n"
      "host2,leaf0,100 Mbit/s,2 us,host-link\n";
  const NetworkPlan plan = plan_network(from_edges(pairs + all), 1, 4);
  for (const ShapedLink& link : plan.links) {
    CHECK((link.port_a == "rail0") == (plan.stations[link.b].name == "leaf0"));
  }
  const ErrorContext loop =
      refusal(from_edges(pairs + all +
                         "host3,leaf3,100 Mbit/s,2 us,host-link\nleaf0,leaf3,1 Gbit/s,2 us,uplink\n"
                         "leaf3,leaf4,1 Gbit/s,2 us,uplink\nleaf4,leaf0,1 Gbit/s,2 us,uplink\n"
                         "host4,leaf4,100 Mbit/s,2 us,host-link\n"));
  CHECK(loop.found.find("loop") != std::string::npos);
}

TEST_CASE("emulate plan: what leads nowhere is left out, also after merging") {
  // stub hangs on a switch that joins nothing else; core joins only the two spines.
  const NetworkPlan plan = plan_network(
      from_edges("host0,tor0,1 Gbit/s,2 us,host-link\nhost1,tor1,1 Gbit/s,2 us,host-link\n"
                 "tor0,spine0,1 Gbit/s,1 us,uplink\ntor1,spine0,1 Gbit/s,1 us,uplink\n"
                 "tor0,spine1,1 Gbit/s,1 us,uplink\ntor1,spine1,1 Gbit/s,1 us,uplink\n"
                 "spine0,core,1 Gbit/s,1 us,uplink\nspine1,core,1 Gbit/s,1 us,uplink\n"
                 "tor0,stub,1 Gbit/s,1 us,uplink\nstub,end,1 Gbit/s,1 us,uplink\n"),
      1, 2);
  std::set<std::string> names;
  for (const Station& station : plan.stations) {
    names.insert(station.name);
  }
  CHECK(names == std::set<std::string>{"host0", "host1", "tor0", "tor1", "spine0"});
}

TEST_CASE("emulate plan: shipped clusters") {
  const NetworkPlan racks =
      plan_network(topology::read_cluster("two-racks-40g").topology, 0.0125, 2);
  CHECK(rates_of(racks).at("tor0->core0") == 500_Mbps);
  CHECK(racks.host_count == 4);

  // Eight GPUs of a machine share its namespace; the eight NICs are one interface.
  const NetworkPlan pods = plan_network(topology::read_cluster("a100-8x8").topology, 1e-4, 2);
  CHECK(pods.host_count == 8);
  CHECK(pods.host_of_rank.size() == 64);
  CHECK(pods.host_of_rank[7] == 0);
  CHECK(pods.host_of_rank[8] == 1);
}

TEST_CASE("emulate plan: what bridges cannot do is refused") {
  SECTION("loops") {
    const ErrorContext error = refusal(from_edges(
        "host0,s0,1 Gbit/s,1 us,host-link\nhost1,s1,1 Gbit/s,1 us,host-link\n"
        "host2,s2,1 Gbit/s,1 us,host-link\n"
        "s0,s1,1 Gbit/s,1 us,uplink\ns1,s2,1 Gbit/s,1 us,uplink\ns2,s0,1 Gbit/s,1 us,uplink\n"));
    CHECK(error.found.find("loop") != std::string::npos);
    CHECK(error.expected.find("bridges do not route") != std::string::npos);
  }
  SECTION("hosts that forward") {
    const ErrorContext error =
        refusal(from_edges("host0,host1,1 Gbit/s,1 us,other\nhost1,host2,1 Gbit/s,1 us,other\n"));
    CHECK(error.where == "host host1");
  }
  SECTION("one direction") {
    Topology topology("one way");
    const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost});
    const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost});
    topology.add_rank(a);
    topology.add_rank(b);
    topology.add_link({.from = a, .to = b, .bandwidth = 1_Gbps});
    CHECK(refusal(topology).found == "a link from a to b and none back");
  }
  SECTION("rates beyond the machine, with a scale that fits") {
    const Topology topology = topology::read_cluster("two-racks-40g").topology;
    const ErrorContext error = refusal(topology, 1, 2);
    CHECK(error.where == "rates");
    const std::size_t at = error.expected.find("--scale ");
    REQUIRE(at != std::string::npos);
    const double fitting = std::stod(error.expected.substr(at + 8));
    CHECK_NOTHROW(plan_network(topology, fitting, 2));
    CHECK_THROWS_AS(plan_network(topology, fitting * 1.02, 2), ConfigError);
  }
  SECTION("rates too small, scales that are none") {
    const Topology topology = from_edges(kTwoByTwo);
    CHECK(refusal(topology, 1e-3).expected.find("--scale") != std::string::npos);
    for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
      CHECK(refusal(topology, scale).where == "scale");
    }
  }
}

TEST_CASE("emulate plan: random trees keep every pair's bottleneck") {
  // In a tree the contraction has nothing to do, so the largest flow between two ranks, which
  // another part of rackrail computes, must come out of the plan's topology again.
  for (unsigned seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    Topology topology("random tree");
    std::vector<NodeId> switches;
    const auto join = [&](NodeId a, NodeId b) {
      topology.add_duplex_link(
          {.from = a, .to = b, .bandwidth = Bandwidth(pick(1, 40) * 1'000'000)});
    };
    for (int s = 0, count = pick(1, 6); s < count; ++s) {
      switches.push_back(
          topology.add_node({.name = fmt::format("s{}", s), .kind = NodeKind::kTor}));
      if (s > 0) {
        join(switches.back(), switches[static_cast<std::size_t>(pick(0, s - 1))]);
      }
    }
    // Two machines at every switch, so that no two switches have the same neighbours.
    for (std::size_t h = 0; h < 2 * switches.size(); ++h) {
      const std::string name = fmt::format("h{}", h);
      const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
      topology.add_rank(host);
      join(host, switches[h / 2]);
    }
    const NetworkPlan plan = plan_network(topology, 1, kManyCores);
    CHECK(plan.links.size() == plan.stations.size() - 1);
    const Topology same = emulated_topology(topology, plan, {.latency = 1_us, .inside = 10_GBps});
    REQUIRE(same.rank_count() == topology.rank_count());
    for (std::size_t a = 0; a < topology.rank_count(); ++a) {
      for (std::size_t b = 0; b < topology.rank_count(); ++b) {
        if (a != b) {
          CHECK(max_flow(same, same.node_of(Rank(a)), same.node_of(Rank(b))).value ==
                max_flow(topology, topology.node_of(Rank(a)), topology.node_of(Rank(b))).value);
        }
      }
    }
  }
}

TEST_CASE("emulate plan: the simulator's view has payload rates and joins ranks of a machine") {
  const Topology original = topology::read_cluster("a100-8x8").topology;
  const NetworkPlan plan = plan_network(original, 1e-4, 2);
  const Topology view =
      emulated_topology(original, plan, {.payload_share = 0.5, .latency = 3_us, .inside = 10_GBps});
  CHECK_NOTHROW(view.require_connected());
  CHECK(view.rank_count() == 64);
  CHECK(topology::ranks_by_host(view).size() == 8);
  topology::Router router(view);
  CHECK(topology::route_bandwidth(view, router.route(Rank(0), Rank(7))) == 10_GBps);
  const auto& link = plan.links[0];
  CHECK(topology::route_bandwidth(view, router.route(Rank(0), Rank(63))) <=
        scaled(link.rate_ab, 0.5));
}

TEST_CASE("emulate plan: the simulator's view lets pass at once what the shapers do") {
  const Topology original = topology::read_cluster("a100-8x8").topology;
  const NetworkPlan plan = plan_network(original, 1e-4, 2);
  const Topology view =
      emulated_topology(original, plan, {.payload_share = 0.5, .inside = 10_GBps});
  std::size_t bursty = 0;
  for (std::size_t l = 0; l < view.link_count(); ++l) {
    const topology::Link& link = view.link(LinkId(l));
    if (link.tier == "inside") {
      CHECK(link.burst == Bytes());
      continue;
    }
    ++bursty;
    const Bytes burst = burst_size(scaled(link.bandwidth, 2));
    CHECK(link.burst / burst == Approx(0.5).epsilon(1e-3));
  }
  CHECK(bursty == 2 * plan.links.size());
}

TEST_CASE("emulate plan: half of what a message costs the cores is at either end") {
  const Bandwidth cores = 8_GBps;
  const EmulatedCosts costs{
      .payload_share = 0.5, .latency = 3_us, .inside = 4_GBps, .cores = cores};
  // Core time of a byte, by that of a byte that the cores do nothing but move.
  const auto cost_at = [&](const topology::Topology& view, const topology::Route& route,
                           Rank rank) {
    const std::string& host = view.node(view.node_of(rank)).host;
    double cost = 0;
    for (const LinkId id : route) {
      const topology::Link& link = view.link(id);
      if (view.node(link.from).host == host || view.node(link.to).host == host) {
        cost += link.cpu_share * (cores / link.bandwidth);
      }
    }
    return cost;
  };
  for (const char* name : {"two-racks-40g", "a100-8x8"}) {
    const topology::Topology original = topology::read_cluster(name).topology;
    const topology::Topology view =
        emulated_topology(original, plan_network(original, 1e-4, 2), costs);
    topology::Router router(view);
    const Rank last(view.rank_count() - 1);
    const topology::Route route = router.route(Rank(0), last);
    CHECK(cost_at(view, route, Rank(0)) == Approx(0.5));
    CHECK(cost_at(view, route, last) == Approx(0.5));
    CHECK(emulated_topology(original, plan_network(original, 1e-4, 2), {.inside = 4_GBps})
              .link(route.front())
              .cpu_share == 0);
  }
  // Between ranks of one machine either end pays for both links: a half each.
  const topology::Topology original = topology::read_cluster("a100-8x8").topology;
  const topology::Topology view =
      emulated_topology(original, plan_network(original, 1e-4, 2), costs);
  topology::Router router(view);
  CHECK(cost_at(view, router.route(Rank(0), Rank(1)), Rank(0)) == Approx(0.5));
}

}  // namespace
}  // namespace rackrail::runtime::emulate::network_plan_test

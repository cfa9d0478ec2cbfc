#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "tests/support/clusters.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::router_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::add_gpu;
using topology::test::add_switch;
using topology::test::join;

namespace {

std::string text_of(const Topology& t, const Route& route) {
  std::string text = route.empty() ? "" : t.node(t.link(route.front()).from).name;
  for (const LinkId link : route) text += " " + t.node(t.link(link).to).name;
  return text;
}

/// GPUs a and b with two switches between them: three links of 100 GB/s and 1 us each.
Topology wide_and_long() {
  Topology t;
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  const NodeId s1 = add_switch(t, "s1");
  const NodeId s2 = add_switch(t, "s2");
  join(t, a, s1, 100_GBps, 1_us);
  join(t, s1, s2, 100_GBps, 1_us);
  join(t, s2, b, 100_GBps, 1_us);
  return t;
}

}  // namespace

TEST_CASE("the smallest latency wins, whatever the rate") {
  Topology t;
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  const NodeId slow = add_switch(t, "wide");
  const NodeId fast = add_switch(t, "near");
  join(t, a, slow, 100_GBps, 3_us);
  join(t, slow, b, 100_GBps, 3_us);
  join(t, a, fast, 1_GBps, 2_us);
  join(t, fast, b, 1_GBps, 2_us);
  Router router(t);
  const Route& route = router.route(Rank(0), Rank(1));
  CHECK(text_of(t, route) == "a near b");
  CHECK(route_latency(t, route) == 4_us);
  CHECK(route_bandwidth(t, route) == 1_GBps);
  CHECK(router.route(Rank(0), Rank(0)).empty());
}

TEST_CASE("at equal latency fewer links win, then the wider bottleneck") {
  Topology t = wide_and_long();
  const auto [a, b] = std::pair(*t.find_node("a"), *t.find_node("b"));
  const NodeId narrow = add_switch(t, "narrow");
  join(t, a, narrow, 50_GBps, 1_us);
  join(t, narrow, b, 1_GBps, 2_us);
  const NodeId even = add_switch(t, "even");
  join(t, a, even, 4_GBps, 2_us);
  join(t, even, b, 4_GBps, 1_us);
  Router router(t);
  // The widest first link is on the narrow way, so a greedy choice would miss the bottleneck.
  CHECK(text_of(t, router.route(Rank(0), Rank(1))) == "a even b");
  CHECK(text_of(t, router.route(Rank(1), Rank(0))) == "b even a");
}

TEST_CASE("by hops, fewest links win whatever their latency, then the wider bottleneck") {
  Topology t = wide_and_long();
  const auto [a, b] = std::pair(*t.find_node("a"), *t.find_node("b"));
  const NodeId narrow = add_switch(t, "narrow");
  join(t, a, narrow, 1_GBps, 1_us);
  join(t, narrow, b, 1_GBps, 1_us);
  const NodeId far = add_switch(t, "far");
  join(t, a, far, 4_GBps, 20_us);
  join(t, far, b, 4_GBps, 30_us);
  Router router(t, Distance::kHops);
  CHECK(text_of(t, router.route(Rank(0), Rank(1))) == "a far b");
  CHECK(text_of(t, router.route(Rank(1), Rank(0))) == "b far a");
}

TEST_CASE("by hops, a machine still sends by the NIC that is near") {
  // Rails: NIC i is on leaf i. Over the other GPU's NIC, the way would have two links less.
  Topology t;
  const NodeId spine = add_switch(t, "spine");
  const NodeId leaf0 = add_switch(t, "leaf0");
  const NodeId leaf1 = add_switch(t, "leaf1");
  join(t, leaf0, spine, 10_GBps, 5_us);
  join(t, leaf1, spine, 10_GBps, 5_us);
  for (const std::string host : {"a", "b"}) {
    const auto inside = [&](const std::string& name, NodeKind kind) {
      return t.add_node({.name = host + name, .kind = kind, .host = host});
    };
    const NodeId cpu = inside("cpu", NodeKind::kCpu);
    for (const NodeId leaf : {leaf0, leaf1}) {
      const std::string number = leaf == leaf0 ? "0" : "1";
      const NodeId gpu = add_gpu(t, host + "gpu" + number, host);
      const NodeId pcie = inside("pcie" + number, NodeKind::kPciSwitch);
      const NodeId nic = inside("nic" + number, NodeKind::kNic);
      join(t, gpu, pcie, 20_GBps, 1_us);
      join(t, pcie, nic, 20_GBps, 1_us);
      join(t, pcie, cpu, 20_GBps, 1_us);
      join(t, nic, leaf, 10_GBps, 1_us);
    }
  }
  Router router(t, Distance::kHops);
  CHECK(text_of(t, router.route(Rank(0), Rank(3))) ==
        "agpu0 apcie0 anic0 leaf0 spine leaf1 bnic1 bpcie1 bgpu1");
  CHECK(text_of(t, router.route(Rank(0), Rank(1))) == "agpu0 apcie0 acpu apcie1 agpu1");
}

TEST_CASE("by hops, what has a way inside its machine does not leave it") {
  // Two sockets, each with a NIC on the one leaf: over the NICs there are fewer links inside.
  Topology t;
  const NodeId leaf = add_switch(t, "leaf");
  const auto inside = [&](const std::string& name, NodeKind kind) {
    return t.add_node({.name = name, .kind = kind, .host = "a"});
  };
  std::vector<NodeId> cpus;
  for (const std::string number : {"0", "1"}) {
    const NodeId gpu = add_gpu(t, "gpu" + number, "a");
    const NodeId pcie = inside("pcie" + number, NodeKind::kPciSwitch);
    const NodeId nic = inside("nic" + number, NodeKind::kNic);
    cpus.push_back(inside("cpu" + number, NodeKind::kCpu));
    join(t, gpu, pcie, 20_GBps, 1_us);
    join(t, pcie, nic, 20_GBps, 1_us);
    join(t, pcie, cpus.back(), 20_GBps, 1_us);
    join(t, nic, leaf, 10_GBps, 1_us);
  }
  join(t, cpus[0], cpus[1], 20_GBps, 1_us);
  Router router(t, Distance::kHops);
  CHECK(text_of(t, router.route(Rank(0), Rank(1))) == "gpu0 pcie0 cpu0 cpu1 pcie1 gpu1");
}

TEST_CASE("where cables are equal, hops and latency give the same ways") {
  const Topology t =
      read_cluster(GENERATE("a100-8x8", "h100-32x8-rail", "fat-tree-128-2to1", "two-racks-40g"))
          .topology;
  Router by_latency(t);
  Router by_hops(t, Distance::kHops);
  const std::size_t n = t.rank_count();
  for (std::size_t src = 0; src < n; src += n / 4 + 1) {
    for (std::size_t dst = 0; dst < n; ++dst) {
      CAPTURE(t.name(), src, dst);
      CHECK(by_hops.route(Rank(src), Rank(dst)) == by_latency.route(Rank(src), Rank(dst)));
      const std::vector<LinkShare> hops = by_hops.spread(Rank(src), Rank(dst));
      const std::vector<LinkShare> latency = by_latency.spread(Rank(src), Rank(dst));
      CHECK(std::equal(hops.begin(), hops.end(), latency.begin(), latency.end(),
                       [](const LinkShare& a, const LinkShare& b) {
                         return a.link == b.link && a.share == b.share;
                       }));
    }
  }
}

TEST_CASE("a route goes around other ranks where it can") {
  Topology t;
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  const NodeId c = add_gpu(t, "c");
  const NodeId s = add_switch(t, "s");
  join(t, a, b, 100_GBps, 1_us);
  join(t, b, c, 100_GBps, 1_us);
  join(t, a, s, 1_GBps, 50_us);
  join(t, s, c, 1_GBps, 50_us);
  Router router(t);
  CHECK(text_of(t, router.route(Rank(0), Rank(2))) == "a s c");
  CHECK(text_of(t, router.route(Rank(0), Rank(1))) == "a b");
}

TEST_CASE("machines of a ring reach each other through as few others as possible") {
  const Topology t = topology::test::ring(7, 1_GBps);
  Router router(t);
  CHECK(text_of(t, router.route(Rank(0), Rank(3))) == "gpu0 gpu1 gpu2 gpu3");
  CHECK(text_of(t, router.route(Rank(0), Rank(5))) == "gpu0 gpu6 gpu5");
}

TEST_CASE("resources of a machine are no ways") {
  Topology t;
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  const NodeId s = add_switch(t, "s");
  join(t, a, s, 1_GBps, 9_us);
  join(t, s, b, 1_GBps, 9_us);
  Link shared;
  shared.from = a;
  shared.to = b;
  shared.bandwidth = 100_GBps;
  shared.kind = LinkKind::kShared;
  t.add_link(shared);
  Router router(t);
  CHECK(text_of(t, router.route(Rank(0), Rank(1))) == "a s b");
}

TEST_CASE("equal ways are shared out by pair, and each pair keeps its own") {
  const Topology t = read_cluster("fat-tree-128-2to1").topology;
  Router router(t);
  Router again(t);
  std::map<std::string, int> used;
  for (std::size_t src = 0; src < 32; ++src) {
    for (std::size_t dst = 64; dst < 96; ++dst) {
      const Route& route = router.route(Rank(src), Rank(dst));
      REQUIRE(route.size() == 6);
      REQUIRE(again.route(Rank(src), Rank(dst)) == route);
      ++used[t.node(t.link(route[2]).to).name];
    }
  }
  // 1,024 pairs over 16 cores: 64 each on average, with a standard deviation of 8.
  CHECK(used.size() == 16);
  for (const auto& [core, count] : used) {
    CAPTURE(core);
    CHECK(count > 24);
    CHECK(count < 104);
  }
}

// By link, how many of `pairs` take it.
std::map<std::string, int> flows_on_links(const Topology& t,
                                          const std::vector<std::pair<Rank, Rank>>& pairs) {
  Router router(t, Distance::kLatency, EqualRoutes::kDealt);
  std::map<std::string, int> flows;
  for (const auto& [src, dst] : pairs) {
    for (const LinkId link : router.route(src, dst)) {
      ++flows[t.link(link).tier + " " + t.link_name(link) + " " + std::to_string(link.value())];
    }
  }
  return flows;
}

int most(const std::map<std::string, int>& flows) {
  int largest = 0;
  for (const auto& [link, count] : flows) {
    largest = std::max(largest, count);
  }
  return largest;
}

TEST_CASE("equal ways that are dealt out carry equally many flows of the ranks of a rack") {
  std::vector<std::pair<Rank, Rank>> pairs;
  SECTION("two by two, where a rack has half as many uplinks as hosts") {
    const Topology t = read_cluster("fat-tree-128-2to1").topology;
    const std::size_t distance = GENERATE(8, 32, 48, 96);  // racks in the same pod, and in others
    for (std::size_t src = 0; src < 128; ++src) {
      pairs.emplace_back(Rank(src), Rank((src + distance) % 128));
    }
    CHECK(most(flows_on_links(t, pairs)) == 2);
  }
  SECTION("eight by eight, where a spine's eight cables are one link") {
    const Topology t = read_cluster("a100-8x8").topology;
    for (std::size_t src = 0; src < 32; ++src) {
      pairs.emplace_back(Rank(src), Rank(32 + src));
    }
    CHECK(most(flows_on_links(t, pairs)) == 8);
  }
  SECTION("the same from rail to rail") {
    const Topology t = read_cluster("h100-32x8-rail").topology;
    for (std::size_t host = 0; host < 32; ++host) {
      pairs.emplace_back(Rank(8 * host + 7), Rank((8 * host + 8) % 256));
    }
    CHECK(most(flows_on_links(t, pairs)) == 8);
  }
}

TEST_CASE("equal ways are listed, the one that is dealt out first") {
  const Topology t = rackrail::test::rail_racks({});  // one leaf per NIC and rack under four spines
  Router hashed(t);
  Router dealt(t, Distance::kLatency, EqualRoutes::kDealt);
  const std::vector<Route> routes = hashed.equal_routes(Rank(1), Rank(18), 64);
  REQUIRE(routes.size() == 4);
  std::set<std::string> spines;
  for (const Route& route : routes) {
    CHECK(route.size() == routes[0].size());
    CHECK(route_latency(t, route) == route_latency(t, routes[0]));
    CHECK(route.front() == routes[0].front());  // what a machine decides, it has decided
    CHECK(route.back() == routes[0].back());
    for (std::size_t i = 1; i < route.size(); ++i) {
      CHECK(t.link(route[i - 1]).to == t.link(route[i]).from);
      if (t.node(t.link(route[i]).from).kind == NodeKind::kSpine) {
        spines.insert(t.node(t.link(route[i]).from).name);
      }
    }
  }
  CHECK(spines.size() == 4);
  CHECK(routes[0] == dealt.route(Rank(1), Rank(18)));
  CHECK(std::ranges::count(routes, hashed.route(Rank(1), Rank(18))) == 1);
  CHECK(hashed.equal_routes(Rank(1), Rank(18), 3).size() == 3);
  CHECK(hashed.equal_routes(Rank(0), Rank(1), 64) ==
        std::vector<Route>{hashed.route(Rank(0), Rank(1))});
  CHECK(hashed.equal_routes(Rank(0), Rank(0), 64).empty());
}

TEST_CASE("GPUs that share a PCIe switch with several NICs use one each") {
  const Topology t = read_cluster("a100-8x8").topology;
  Router router(t);
  std::set<std::string> out;
  std::set<std::string> in;
  for (std::size_t i = 0; i < 8; ++i) {
    const Route& route = router.route(Rank(i), Rank(8 + i));
    out.insert(t.node(t.link(route[1]).to).name);
    in.insert(t.node(t.link(route[route.size() - 2]).from).name);
  }
  CHECK(out.size() == 8);
  CHECK(in.size() == 8);
}

TEST_CASE("rails are kept: GPU i talks to GPU i over leaf i alone") {
  const Topology t = read_cluster("h100-32x8-rail").topology;
  Router router(t);
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(text_of(t, router.route(Rank(i), Rank(8 + i))) ==
          "gpu0." + std::to_string(i) + " pcie0." + std::to_string(i) + " nic0." +
              std::to_string(i) + " leaf0." + std::to_string(i) + " nic1." + std::to_string(i) +
              " pcie1." + std::to_string(i) + " gpu1." + std::to_string(i));
  }
}

TEST_CASE("a slow cable is no short cut for messages, and a fast one is") {
  const int rate = GENERATE(1, 40);  // GB/s, of the cable between the ToRs
  Topology t("short cut");
  const auto join = [&](NodeId a, NodeId b, int gigabytes) {
    t.add_duplex_link({.from = a,
                       .to = b,
                       .bandwidth = Bandwidth(std::int64_t{1'000'000'000} * gigabytes),
                       .latency = Duration(1'000'000)});
  };
  const NodeId core = t.add_node({.name = "core", .kind = NodeKind::kSpine});
  std::vector<NodeId> tors;
  for (const char* name : {"tor0", "tor1"}) {
    tors.push_back(t.add_node({.name = name, .kind = NodeKind::kTor}));
    const NodeId host =
        t.add_node({.name = std::string("host of ") + name, .kind = NodeKind::kHost});
    t.add_rank(host);
    join(host, tors.back(), 10);
    join(tors.back(), core, 10);
  }
  join(tors[0], tors[1], rate);
  Router by_latency(t);
  Router by_message(t, Distance::kMessage, EqualRoutes::kHashed);
  CHECK(by_latency.route(Rank(0), Rank(1)).size() == 3);
  CHECK(by_message.route(Rank(0), Rank(1)).size() == (rate < 10 ? 4 : 3));
}

TEST_CASE("no way is an error with both names") {
  Topology t("apart");
  add_gpu(t, "a");
  add_gpu(t, "b");
  Router router(t);
  CHECK_THROWS_WITH(router.route(Rank(0), Rank(1)),
                    Catch::Contains("from 'a' to 'b'") && Catch::Contains("apart"));
  CHECK_THROWS_AS(router.route(Rank(0), Rank(2)), ConfigError);
}

// A router that is asked for a few destinations looks at less of the cluster than one that is asked
// for many; the routes must not tell.
TEST_CASE("routes do not depend on what was asked before") {
  const Topology t =
      read_cluster(GENERATE("a100-8x8", "h100-32x8-rail", "fat-tree-128-2to1")).topology;
  Router knows_all(t);
  for (std::size_t dst = 1; dst < t.rank_count(); ++dst) {
    (void)knows_all.route(Rank(0), Rank(dst));
    (void)knows_all.route(Rank(t.rank_count() - 1), Rank(dst - 1));
  }
  std::size_t far = 0;
  for (std::size_t dst = 1; dst < t.rank_count(); dst += 3) {
    Router fresh(t);
    for (const auto& [a, b] :
         {std::pair{Rank(0), Rank(dst)}, std::pair{Rank(t.rank_count() - 1), Rank(dst - 1)}}) {
      CAPTURE(t.name(), a.value(), b.value());
      CHECK(text_of(t, fresh.route(a, b)) == text_of(t, knows_all.route(a, b)));
      far += t.node(t.node_of(a)).host != t.node(t.node_of(b)).host ? 1 : 0;
    }
  }
  CHECK(far > t.rank_count() / 3);
}

}  // namespace rackrail::router_test

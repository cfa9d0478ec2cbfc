#include "topology/topology.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "tests/unit/topology/graphs.hpp"

namespace rackrail::topology_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::add_gpu;
using topology::test::add_switch;
using topology::test::error_of;
using topology::test::join;
using topology::test::join_one_way;

TEST_CASE("parallel links have names of their own, and one for all of them") {
  Topology t("parallel");
  const NodeId a = t.add_node({.name = "a", .kind = NodeKind::kTor});
  const NodeId b = t.add_node({.name = "b", .kind = NodeKind::kTor});
  const NodeId c = t.add_node({.name = "b1", .kind = NodeKind::kTor});
  const LinkId first = t.add_duplex_link({.from = a, .to = b, .bandwidth = 1_GBps});
  const LinkId other = t.add_duplex_link({.from = a, .to = c, .bandwidth = 1_GBps});
  const LinkId second = t.add_duplex_link({.from = a, .to = b, .bandwidth = 2_GBps});
  const LinkId one_way = t.add_link({.from = b, .to = a, .bandwidth = 3_GBps});
  CHECK(t.link_name(first) == "a→b#1");
  CHECK(t.link_name(second) == "a→b#2");
  CHECK(t.link_name(one_way) == "b→a#3");
  CHECK(t.link_name(other) == "a→b1");
  CHECK(links_named(t, "a->b") == std::vector<LinkId>{first, second});
  CHECK(links_named(t, "a→b#2") == std::vector<LinkId>{second});
  CHECK(links_named(t, "a->b1") == std::vector<LinkId>{other});
  CHECK(links_named(t, "b→a").size() == 3);
  CHECK(links_named(t, "a→b#3").empty());
  CHECK(links_named(t, "a").empty());
  CHECK(way_back(t, second) == LinkId(second.index() + 1));
  CHECK(way_back(t, LinkId(second.index() + 1)) == second);
  CHECK_FALSE(way_back(t, one_way).has_value());
}

TEST_CASE("vertices, links and ranks are numbered as they are added") {
  Topology t("pair");
  const NodeId a = add_gpu(t, "a");
  const NodeId s = add_switch(t, "s");
  const NodeId b = add_gpu(t, "b");
  const LinkId first = join(t, a, s, 5_GBps);
  join_one_way(t, s, b, 7_GBps);
  CHECK(t.name() == "pair");
  CHECK(t.node_count() == 3);
  CHECK(t.link_count() == 3);
  CHECK(t.rank_count() == 2);
  CHECK(t.node_of(Rank(1)) == b);
  CHECK(t.rank_of(b) == Rank(1));
  CHECK_FALSE(t.rank_of(s));
  CHECK(t.find_node("s") == s);
  CHECK_FALSE(t.find_node("none"));
  CHECK(first == LinkId(0));
  CHECK(t.link_name(LinkId(1)) == "s→a");
  CHECK(t.link(LinkId(2)).bandwidth == 7_GBps);
  CHECK(t.links_out_of(s).size() == 2);
  CHECK(t.links_into(s).size() == 1);
  CHECK(t.links_into(b)[0] == LinkId(2));
}

TEST_CASE("a copy is independent of the original and equal to it") {
  Topology original = topology::test::star({1_GBps, 2_GBps, 3_GBps});
  Topology copy = original;
  CHECK(copy.digest() == original.digest());
  copy.set_link_rate(LinkId(0), 9_GBps, 3_us);
  CHECK(original.link(LinkId(0)).bandwidth == 1_GBps);
  CHECK(copy.link(LinkId(0)).bandwidth == 9_GBps);
  CHECK(copy.link(LinkId(0)).latency == 3_us);
  CHECK(copy.digest() != original.digest());
  original = copy;
  CHECK(copy.digest() == original.digest());
  add_gpu(copy, "more");
  CHECK(copy.node_count() == original.node_count() + 1);
  const Topology moved = std::move(copy);
  CHECK(moved.find_node("more"));
}

TEST_CASE("the digest tells every property apart, and not the name") {
  const auto base = [] { return topology::test::star({1_GBps, 2_GBps}); };
  const std::string digest = base().digest();
  CHECK(digest.size() == 64);
  Topology t = base();
  t.set_name("other");
  CHECK(t.digest() == digest);
  std::vector<Node> changed(7, base().node(NodeId(1)));
  changed[0].host = "h";
  changed[1].rack = "r";
  changed[2].device_class = "A100";
  changed[3].memory = 1_GiB;
  changed[4].multicasts = true;
  changed[5].reduces = true;
  changed[6].host_staging = 1_GBps;
  for (const Node& node : changed) {
    t = base();
    t.set_node_properties(NodeId(1), node);
    CHECK(t.digest() != digest);
  }
  t = base();
  t.set_processor(Rank(0), LinkId(0));
  CHECK(t.digest() != digest);
  CHECK(t.processor_of(Rank(0)) == LinkId(0));
  CHECK_FALSE(t.processor_of(Rank(1)));
}

TEST_CASE("a burst is part of the digest, and what a link has in hand by it") {
  const auto with_burst = [](Bytes burst) {
    Topology t = topology::test::star({1_GBps, 2_GBps});
    t.add_link({.from = NodeId(0), .to = NodeId(1), .bandwidth = 2_GBps, .burst = burst});
    return t;
  };
  CHECK(with_burst(Bytes(1)).digest() != with_burst(Bytes(2)).digest());
  CHECK(with_burst(Bytes(1)).digest() != with_burst(Bytes()).digest());
  CHECK(longest_burst_time(with_burst(Bytes())) == Duration());
  CHECK(longest_burst_time(with_burst(Bytes(4'000))) == 2_us);
  CHECK_THROWS_AS(with_burst(Bytes(-1)), ConfigError);
}

TEST_CASE("properties may be replaced, the name stays") {
  Topology t = topology::test::star({1_GBps, 1_GBps});
  Node node;
  node.name = "ignored";
  node.device_class = "H100";
  t.set_node_properties(NodeId(1), node);
  CHECK(t.node(NodeId(1)).name == "gpu0");
  CHECK(t.node(NodeId(1)).device_class == "H100");
}

TEST_CASE("what makes no sense is refused with its place") {
  Topology t("bad");
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  CHECK_THAT(error_of([&] { add_gpu(t, "a"); }), Catch::Contains("a second vertex 'a'"));
  CHECK_THAT(error_of([&] { add_gpu(t, ""); }), Catch::Contains("no name"));
  CHECK_THAT(error_of([&] { t.add_rank(a); }), Catch::Contains("'a' as a rank twice"));
  CHECK_THAT(error_of([&] { t.add_rank(NodeId(9)); }), Catch::Contains("vertex number 9"));
  CHECK_THAT(error_of([&] { join(t, a, a, 1_GBps); }), Catch::Contains("from a vertex to itself"));
  CHECK_THAT(error_of([&] { join(t, a, b, Bandwidth(0)); }),
             Catch::Contains("a→b") && Catch::Contains("0 B/s"));
  CHECK_THAT(error_of([&] { join(t, a, b, 1_GBps, Duration(-1)); }), Catch::Contains("latency"));
  CHECK_THAT(error_of([&] { join(t, a, NodeId(7), 1_GBps); }), Catch::Contains("vertex number 7"));
  Link link;
  link.from = a;
  link.to = b;
  link.bandwidth = 1_GBps;
  link.cpu_share = 1.5;
  CHECK_THAT(error_of([&] { t.add_link(link); }), Catch::Contains("cpu_share 1.5"));
  CHECK(t.link_count() == 0);
  CHECK_THROWS_AS(t.set_processor(Rank(0), LinkId(0)), ConfigError);
  CHECK_THROWS_AS(t.node_of(Rank(2)), ConfigError);
  join(t, a, b, 1_GBps);
  CHECK_THROWS_AS(t.set_link_rate(LinkId(0), Bandwidth(0), 1_us), ConfigError);
  CHECK_THROWS_AS(t.set_link_rate(LinkId(2), 1_GBps, 1_us), ConfigError);
}

TEST_CASE("a graph in two parts is named by both") {
  Topology t("halves");
  const NodeId a = add_gpu(t, "a");
  const NodeId b = add_gpu(t, "b");
  const NodeId c = add_gpu(t, "c");
  join(t, a, b, 1_GBps);
  CHECK_THAT(error_of([&] { t.require_connected(); }),
             Catch::Contains("halves") && Catch::Contains("a, b | c (no link names 'c')"));
  SECTION("a resource of a machine is no way") {
    Link shared;
    shared.from = b;
    shared.to = c;
    shared.bandwidth = 1_GBps;
    shared.kind = LinkKind::kShared;
    t.add_duplex_link(shared);
    CHECK_THROWS_AS(t.require_connected(), ConfigError);
  }
  SECTION("one way only is not connected") {
    join_one_way(t, b, c, 1_GBps);
    CHECK_THROWS_AS(t.require_connected(), ConfigError);
    SECTION("a way back closes it") {
      join_one_way(t, c, a, 1_GBps);
      CHECK_NOTHROW(t.require_connected());
    }
  }
}

TEST_CASE("one rank, and none, are connected") {
  Topology t;
  CHECK_NOTHROW(t.require_connected());
  add_gpu(t, "a");
  CHECK_NOTHROW(t.require_connected());
  add_switch(t, "a switch apart does not matter");
  CHECK_NOTHROW(t.require_connected());
}

TEST_CASE("ranks are grouped by host and rack in order of their first rank") {
  Topology t;
  add_gpu(t, "a", "h1", "r1");
  add_gpu(t, "b", "h2", "r1");
  add_gpu(t, "c", "h1", "r1");
  add_gpu(t, "d");
  add_gpu(t, "e");
  const std::vector<RankGroup> hosts = ranks_by_host(t);
  REQUIRE(hosts.size() == 4);
  CHECK(hosts[0].name == "h1");
  CHECK(hosts[0].ranks == std::vector{Rank(0), Rank(2)});
  CHECK(hosts[1].ranks == std::vector{Rank(1)});
  CHECK(hosts[2].name == "d");
  CHECK(hosts[3].ranks == std::vector{Rank(4)});
  CHECK(ranks_by_rack(t).size() == 3);
}

TEST_CASE("names of kinds read back") {
  for (int i = 0; i <= static_cast<int>(NodeKind::kSwitch); ++i) {
    const auto kind = static_cast<NodeKind>(i);
    CHECK(parse_node_kind(to_string(kind)) == kind);
  }
  for (int i = 0; i <= static_cast<int>(LinkKind::kOther); ++i) {
    const auto kind = static_cast<LinkKind>(i);
    CHECK(parse_link_kind(to_string(kind)) == kind);
  }
  CHECK_FALSE(parse_node_kind("toaster"));
  CHECK_FALSE(parse_link_kind(""));
}

}  // namespace rackrail::topology_test

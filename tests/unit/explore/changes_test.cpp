#include "explore/changes.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "explore/altered.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore::changes_test {
namespace {

using topology::LinkKind;
using topology::NodeKind;
using topology::Topology;

TEST_CASE("of parallel cables a bare name means all, and a numbered one itself") {
  Topology topology("parallel");
  const NodeId a = topology.add_node({.name = "a", .kind = NodeKind::kHost, .host = "a"});
  const NodeId b = topology.add_node({.name = "b", .kind = NodeKind::kHost, .host = "b"});
  topology.add_rank(a);
  topology.add_rank(b);
  for (int i = 0; i < 3; ++i) {
    topology.add_duplex_link({.from = a, .to = b, .bandwidth = 1_GBps, .latency = 1_us});
  }
  const auto rates = [&](const char* name, const char* what, const char* by) {
    for (const Change& change : changes_of_links(topology, named_links(topology, name))) {
      if (change.what == what && change.by == by) {
        const Topology after = with_links(topology, change.links);
        std::vector<std::int64_t> all;
        for (std::size_t i = 0; i < after.link_count(); ++i) {
          all.push_back(after.link(LinkId(i)).bandwidth.bytes_per_second() / 1'000'000);
        }
        return all;
      }
    }
    return std::vector<std::int64_t>();
  };
  using Rates = std::vector<std::int64_t>;  // MB/s, there and back in turns
  CHECK(rates("a->b", "a→b bandwidth", "x2") == Rates{2000, 1000, 2000, 1000, 2000, 1000});
  CHECK(rates("a→b#2", "a→b#2 bandwidth", "x2") == Rates{1000, 1000, 2000, 1000, 1000, 1000});
  CHECK(rates("a→b#2", "a→b#2 and back bandwidth", "x2") ==
        Rates{1000, 1000, 2000, 2000, 1000, 1000});
  CHECK(rates("a→b#2", "cables a↔b", "4 instead of 3") == Rates(6, 1333));
  CHECK_THROWS_AS(named_links(topology, "a→c"), ConfigError);
  CHECK_THROWS_AS(named_links(topology, "a→b#4"), ConfigError);
}

TEST_CASE("a change alters what it names and nothing else") {
  for (const std::string& name : topology::shipped_clusters()) {
    const Topology before = topology::read_cluster(name).topology;
    CHECK(with_links(before, [](LinkId, topology::Link&) {}).digest() == before.digest());
    std::vector<std::string> notes;
    for (const Change& change : changes_of(before, notes)) {
      if (!change.links) {
        continue;
      }
      INFO(name << ": " << change.what << " " << change.by);
      const Topology after = with_links(before, change.links);
      std::size_t changed = 0;
      for (std::size_t i = 0; i < before.link_count(); ++i) {
        const topology::Link& a = before.link(LinkId(i));
        const topology::Link& b = after.link(LinkId(i));
        CHECK(a.from == b.from);
        CHECK(a.to == b.to);
        if (a.bandwidth != b.bandwidth || a.latency != b.latency || a.overhead != b.overhead ||
            a.flow_bandwidth != b.flow_bandwidth) {
          ++changed;
          CHECK((change.what.starts_with(a.tier) || change.what == "uplinks" ||
                 change.what == "message overhead" || change.breadth == Breadth::kAll));
        }
      }
      CHECK(changed > 0);
    }
    CHECK(notes.empty());
  }
}

TEST_CASE("one more uplink is that share of what a ToR has") {
  // Four spines per leaf, and of a fat tree's ToR four spines too: 5/4 of the bandwidth.
  for (const char* name : {"a100-8x8", "fat-tree-128-2to1"}) {
    const Topology before = topology::read_cluster(name).topology;
    std::vector<std::string> notes;
    const auto changes = changes_of(before, notes);
    const auto uplinks = std::find_if(changes.begin(), changes.end(),
                                      [](const Change& c) { return c.what == "uplinks"; });
    INFO(name);
    REQUIRE(uplinks != changes.end());
    CHECK(uplinks->by == "5 instead of 4 per ToR");
    const Topology after = with_links(before, uplinks->links);
    for (std::size_t i = 0; i < before.link_count(); ++i) {
      const topology::Link& link = before.link(LinkId(i));
      const bool at_tor = before.node(link.from).kind == NodeKind::kTor ||
                          before.node(link.to).kind == NodeKind::kTor;
      const double factor = at_tor && link.kind == LinkKind::kUplink ? 1.25 : 1;
      CHECK(after.link(LinkId(i)).bandwidth == scaled(link.bandwidth, factor));
    }
  }
}

TEST_CASE("ranks of several device classes have no common codec rate to change") {
  Topology mixed("mixed");
  const NodeId a = mixed.add_node({.name = "a", .kind = NodeKind::kGpu, .device_class = "V100"});
  const NodeId b = mixed.add_node({.name = "b", .kind = NodeKind::kGpu, .device_class = "A100"});
  mixed.add_rank(a);
  mixed.add_rank(b);
  mixed.add_duplex_link({.from = a, .to = b, .bandwidth = 1_GBps});
  std::vector<std::string> notes;
  for (const Change& change : changes_of(mixed, notes)) {
    CHECK_FALSE(change.device_rates.has_value());
    CHECK(change.what.find("latency") == std::string::npos);  // there is none
    CHECK(change.what != "uplinks");
  }
  REQUIRE(notes.size() == 1);
  CHECK(notes.front().find("2 device classes") != std::string::npos);
}

}  // namespace
}  // namespace rackrail::explore::changes_test

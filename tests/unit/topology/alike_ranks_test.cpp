// Ranks that are said to be alike, against max-flows between all of them.
#include "topology/alike_ranks.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology::alike_ranks_test {
namespace {

using test::add_gpu;
using test::add_switch;
using test::join;

/// Two racks of hosts with two GPUs each, rates in order; one ToR a rack, one core.
Topology racks(const std::vector<std::vector<std::int64_t>>& rates) {
  Topology t("racks");
  const NodeId core = add_switch(t, "core");
  int host = 0;
  for (std::size_t r = 0; r < rates.size(); ++r) {
    const std::string rack = "rack" + std::to_string(r);
    const NodeId tor = add_switch(t, "tor" + std::to_string(r), NodeKind::kTor);
    join(t, tor, core, Bandwidth(9));
    for (const std::int64_t rate : rates[r]) {
      const std::string name = "host" + std::to_string(host++);
      for (int g = 0; g < 2; ++g) {
        join(t, add_gpu(t, name + "." + std::to_string(g), name, rack), tor, Bandwidth(rate + g));
      }
    }
  }
  return t;
}

std::vector<std::uint32_t> numbers(const Topology& topology) {
  std::vector<std::uint32_t> first;
  for (const Rank rank : alike_ranks(topology)) {
    first.push_back(rank.value());
  }
  return first;
}

TEST_CASE("machines of a rack, and racks, are alike where a swap keeps all links") {
  using Numbers = std::vector<std::uint32_t>;
  // The GPUs of a host differ.
  CHECK(numbers(racks({{5, 5}, {5, 5}})) == Numbers{0, 1, 0, 1, 0, 1, 0, 1});
  CHECK(numbers(racks({{5, 5}, {5, 6}})) == Numbers{0, 1, 0, 1, 4, 5, 6, 7});
  CHECK(numbers(racks({{5, 6}, {5, 6}})) == Numbers{0, 1, 2, 3, 0, 1, 2, 3});
  CHECK(numbers(racks({{5, 5}, {5}})) == Numbers{0, 1, 0, 1, 4, 5});
}

TEST_CASE("a link that differs, even to a third vertex, parts machines") {
  Topology t = racks({{5, 5}, {5, 5}});
  t.add_link({.from = t.node_of(Rank(2U)), .to = t.node_of(Rank(5U)), .bandwidth = Bandwidth(1)});
  const auto first = numbers(t);
  CHECK(first[2] == 2);
  CHECK(first[5] == 5);
}

TEST_CASE("links are alike where a swap takes one to the other") {
  using Numbers = std::vector<std::uint32_t>;
  const auto of_links = [](const Topology& t) {
    Numbers first;
    for (const LinkId link : alike_parts(t).links) first.push_back(link.value());
    return first;
  };
  // Up to the core and down; of the first GPU, and of the second, to the ToR and back; alike racks.
  CHECK(of_links(racks({{5, 5}, {5, 5}})) ==
        Numbers{0, 1, 2, 3, 4, 5, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 2, 3, 4, 5});
  CHECK(of_links(racks({{5}, {6}})) == Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
}

TEST_CASE(
    "machines whose links in parallel are alike only together are themselves, others are alike") {
  const auto hosts = [](std::int64_t first, std::int64_t second) {
    Topology t("parallel");
    const NodeId tor = add_switch(t, "tor", NodeKind::kTor);
    for (const auto& [name, rate] :
         {std::pair("host0", first), std::pair("host1", second), std::pair("host2", first)}) {
      const NodeId gpu = add_gpu(t, name, name, "rack0");
      join(t, gpu, tor, Bandwidth(rate));
      join(t, gpu, tor, Bandwidth(10 - rate));
    }
    return t;
  };
  const AlikeParts together = alike_parts(hosts(4, 5));
  CHECK(together.ranks == std::vector{Rank(0U), Rank(1U), Rank(0U)});
  CHECK(together.links[4] == LinkId(4U));
  CHECK(together.links[8] == LinkId(0U));
  const AlikeParts each = alike_parts(hosts(4, 6));  // in another order
  CHECK(each.ranks[1] == Rank(0U));
  CHECK(each.links[4] == LinkId(2U));
  CHECK(each.links[6] == LinkId(0U));
}

TEST_CASE("machines whose switches do not add alike are not alike") {
  Topology t("boxes");
  const NodeId spine = add_switch(t, "spine");
  for (int h = 0; h < 2; ++h) {
    const std::string name = "host" + std::to_string(h);
    const NodeId hub = t.add_node(
        {.name = "hub" + name, .kind = NodeKind::kNvSwitch, .host = name, .reduces = h == 1});
    join(t, add_gpu(t, name + ".gpu", name, ""), hub, Bandwidth(5));
    join(t, hub, spine, Bandwidth(5));
  }
  CHECK(numbers(t) == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("on the shipped clusters all machines of a pod are alike, and GPUs of a socket") {
  const std::string name = GENERATE("h100-32x8-rail", "a100-8x8", "fat-tree-128-2to1");
  CAPTURE(name);
  const Topology t = read_cluster(name).topology;
  std::set<std::uint32_t> kinds;
  for (const Rank rank : alike_ranks(t)) {
    kinds.insert(rank.value());
  }
  // The sockets of a host, and where two GPUs share a PCIe switch either; the pods of the fat tree,
  // whose switches are no rack's own.
  CHECK(kinds.size() == (name == "h100-32x8-rail" ? 2 : 4));
}

TEST_CASE("what a rank can send and receive is the same for all that are alike") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  int joined = 0;
  for (int i = 0; i < 10; ++i) {
    std::vector<std::vector<std::int64_t>> rates(2);
    for (auto& rack : rates) {
      for (int h = 0; h < 2; ++h) {
        rack.push_back(3 + static_cast<std::int64_t>(random() % 2));
      }
    }
    const Topology t = racks(rates);
    const auto flows = [&](Rank rank) {
      std::vector<std::int64_t> all;
      for (std::size_t other = 0; other < t.rank_count(); ++other) {
        if (Rank(other) != rank) {
          all.push_back(
              max_flow(t, t.node_of(rank), t.node_of(Rank(other))).value.bytes_per_second());
          all.push_back(
              -max_flow(t, t.node_of(Rank(other)), t.node_of(rank)).value.bytes_per_second());
        }
      }
      std::sort(all.begin(), all.end());
      return all;
    };
    const std::vector<Rank> alike = alike_ranks(t);
    for (std::size_t r = 0; r < alike.size(); ++r) {
      CAPTURE(i, r, alike[r].value());
      CHECK(flows(Rank(r)) == flows(alike[r]));
      joined += alike[r] != Rank(r) ? 1 : 0;
    }
  }
  CHECK(joined > 0);
}

}  // namespace
}  // namespace rackrail::topology::alike_ranks_test

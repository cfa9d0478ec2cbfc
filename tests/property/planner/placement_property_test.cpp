// Placement against every choice of hosts, one by one, on small random clusters; and cases whose
// answer is plain.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"
#include "planner/placement/placement.hpp"
#include "topology/queries.hpp"
#include "topology/remove.hpp"

namespace rackrail::planner::placement_property_test {
namespace {

using topology::Topology;

void join(Topology& topology, NodeId a, NodeId b, std::int64_t gigabytes) {
  topology::Link link;
  link.from = a;
  link.to = b;
  link.bandwidth = Bandwidth(gigabytes * 1'000'000'000);
  link.latency = Duration(1'000'000);
  topology.add_duplex_link(link);
}

NodeId add(Topology& topology, const std::string& name, topology::NodeKind kind,
           const std::string& host = "", const std::string& rack = "") {
  topology::Node node;
  node.name = name;
  node.kind = kind;
  node.host = host;
  node.rack = rack;
  return topology.add_node(node);
}

struct HostShape {
  std::int64_t nic = 10;  // GB/s
  int gpus = 1;
};

/// Hosts on ToRs, ToRs on one core; GPUs of a host on its NIC over 20 GB/s each.
Topology tree(const std::vector<std::vector<HostShape>>& racks,
              const std::vector<std::int64_t>& uplinks) {
  Topology topology("tree");
  const NodeId core = add(topology, "core", topology::NodeKind::kCore);
  int number = 0;
  for (std::size_t r = 0; r < racks.size(); ++r) {
    const std::string rack = "rack" + std::to_string(r);
    const NodeId tor = add(topology, "tor" + std::to_string(r), topology::NodeKind::kTor, "", rack);
    join(topology, tor, core, uplinks[r]);
    for (const HostShape& shape : racks[r]) {
      const std::string host = "host" + std::to_string(number++);
      const NodeId nic = add(topology, host + ".nic", topology::NodeKind::kNic, host, rack);
      join(topology, nic, tor, shape.nic);
      for (int g = 0; g < shape.gpus; ++g) {
        const NodeId gpu =
            add(topology, host + ".gpu" + std::to_string(g), topology::NodeKind::kGpu, host, rack);
        topology.add_rank(gpu);
        join(topology, gpu, nic, 20);
      }
    }
  }
  return topology;
}

/// What the objective says of one choice, by what is left without the other hosts: seconds per
/// byte of a reduce-scatter and an all-gather, and racks.
std::pair<double, std::size_t> objective(const Topology& topology,
                                         const std::vector<std::string>& others) {
  const Topology part = others.empty() ? topology : topology::without(topology, others, {});
  const auto gather = topology::allgather_bound(part);
  const auto scatter = topology::reducescatter_bound(part);
  const auto ratio = [](const auto& bound) {
    return static_cast<double>(bound.p) / static_cast<double>(bound.q);
  };
  return {ratio(gather) + ratio(scatter), ranks_by_rack(part).size()};
}

std::vector<std::string> host_names(const Topology& topology) {
  std::vector<std::string> names;
  for (const auto& group : ranks_by_host(topology)) names.push_back(group.name);
  return names;
}

std::pair<double, std::size_t> best_by_trying_all(const Topology& topology, std::size_t count) {
  const std::vector<std::string> names = host_names(topology);
  std::vector<bool> is_out(names.size(), true);
  std::fill_n(is_out.begin(), count, false);
  std::pair<double, std::size_t> best(1e9, 0);
  do {
    std::vector<std::string> others;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (is_out[i]) others.push_back(names[i]);
    }
    const auto value = objective(topology, others);
    const bool is_equal = std::abs(value.first / best.first - 1) < 1e-9;
    if (is_equal ? value.second < best.second : value.first < best.first) best = value;
  } while (std::next_permutation(is_out.begin(), is_out.end()));
  return best;
}

std::pair<double, std::size_t> value_of(const Topology& topology, const Placement& placement) {
  std::vector<std::string> others = host_names(topology);
  for (const PlacedHost& host : placement.hosts) std::erase(others, host.name);
  return objective(topology, others);
}

std::vector<std::string> placed(const Placement& placement) {
  std::vector<std::string> names;
  for (const PlacedHost& host : placement.hosts) names.push_back(host.name);
  return names;
}

TEST_CASE("a placement is as good as the best of all choices, in bound and in racks") {
  constexpr std::uint64_t kSeed = 20261121;
  constexpr int kCases = 150;
  const std::int64_t rates[] = {5, 10, 10, 25};
  for (std::uint64_t i = 0; i < kCases; ++i) {
    CAPTURE(kSeed, i);
    const std::uint64_t key = kSeed + i;
    std::uint64_t at = 0;
    const auto pick = [&](std::uint64_t below) { return random_bits(key, at++) % below; };
    const int gpus = 1 + static_cast<int>(pick(2));
    std::vector<std::vector<HostShape>> racks(2 + pick(3));
    std::vector<std::int64_t> uplinks;
    std::size_t hosts = 0;
    for (auto& rack : racks) {
      const std::uint64_t size = 1 + pick(3);
      for (std::uint64_t h = 0; h < size; ++h) rack.push_back({rates[pick(4)], gpus});
      uplinks.push_back(rates[pick(4)]);
      hosts += rack.size();
    }
    const Topology topology = tree(racks, uplinks);
    const std::size_t count = 2 + pick(hosts - 1);
    const Placement placement = place(topology, {.hosts = count, .gpus_per_host = {}});
    const auto best = best_by_trying_all(topology, count);
    const auto got = value_of(topology, placement);
    CHECK(got.first == Approx(best.first).epsilon(1e-9));
    CHECK(got.second == best.second);
    CHECK(placement.is_exact);
    CHECK(placement.hosts.size() == count);
    CHECK(placement.cluster.rank_count() == count * static_cast<std::size_t>(gpus));
    CHECK(placement.allgather == topology::allgather_bound(placement.cluster).algbw);
  }
}

TEST_CASE("a job that fits into one rack of an oversubscribed tree is put there") {
  // 2:1: eight hosts of 10 GB/s behind 40 GB/s.
  const std::vector<HostShape> rack(8);
  const Topology topology = tree({{}, rack, rack}, {40, 40, 40});
  const Placement placement = place(topology, {.hosts = 8, .gpus_per_host = {}});
  CHECK(placement.racks == 1);
  std::set<std::string> racks;
  for (const PlacedHost& host : placement.hosts) racks.insert(host.rack);
  CHECK(racks.size() == 1);
  CHECK(placement.compared < 10);  // of 12,870: the rest is the same by symmetry
}

TEST_CASE("a host with a degraded NIC is taken only when all are needed") {
  const std::vector<HostShape> whole(3);
  const Topology topology = tree({{{10}, {2}, {10}, {10}}, whole}, {100, 100});
  for (std::size_t count = 2; count <= 6; ++count) {
    CAPTURE(count);
    const auto names = placed(place(topology, {.hosts = count, .gpus_per_host = {}}));
    CHECK(std::count(names.begin(), names.end(), "host1") == 0);
  }
  CHECK(placed(place(topology, {.hosts = 7, .gpus_per_host = {}})).size() == 7);
}

TEST_CASE("of mixed NICs the fast ones are taken, whatever rack they are in") {
  const Topology topology =
      tree({{{5}, {25}, {5}}, {{25}, {5}, {5}}, {{5}, {5}, {25}}}, {100, 100, 100});
  CHECK(placed(place(topology, {.hosts = 3, .gpus_per_host = {}})) ==
        std::vector<std::string>{"host1", "host3", "host8"});
}

TEST_CASE("many unequal hosts: exchanging finds the fast rack among slow ones") {
  // No two hosts are twins, so there is no way through all choices.
  std::vector<std::vector<HostShape>> racks(8);
  for (int r = 0; r < 8; ++r) {
    for (int h = 0; h < 6; ++h) racks[static_cast<std::size_t>(r)].push_back({10 + r + 7 * h});
  }
  racks[5] = std::vector<HostShape>(6, {100});
  racks[5][3].nic = 99;
  const std::vector<std::int64_t> uplinks{30, 31, 32, 33, 34, 35, 36, 37};
  const Topology topology = tree(racks, uplinks);
  const Placement placement = place(topology, {.hosts = 6, .gpus_per_host = {}});
  CHECK_FALSE(placement.is_exact);
  CHECK(placement.racks == 1);
  CHECK(placement.hosts.front().rack == "rack5");
  // Twenty of them: at least as good as any of two simple rules.
  const Placement many = place(topology, {.hosts = 20, .gpus_per_host = {}});
  const auto value = value_of(topology, many).first;
  for (const std::size_t first : {0U, 12U, 24U, 28U}) {
    std::vector<std::string> others = host_names(topology);
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(first),
                 others.begin() + static_cast<std::ptrdiff_t>(first + 20));
    CHECK(value <= objective(topology, others).first * (1 + 1e-9));
  }
}

TEST_CASE("ranks of a rack and of a PCIe switch are side by side, rails in one order") {
  // Racks are listed in turns, and GPUs 0 and 2, 1 and 3 share a PCIe switch.
  Topology topology("mixed up");
  const NodeId core = add(topology, "core", topology::NodeKind::kCore);
  std::vector<NodeId> tors;
  for (const char* rack : {"a", "b"}) {
    tors.push_back(add(topology, std::string("tor-") + rack, topology::NodeKind::kTor, "", rack));
    join(topology, tors.back(), core, 10);
  }
  for (std::size_t h = 0; h < 4; ++h) {
    const std::string host = "h" + std::to_string(h);
    const std::string rack = h % 2 == 0 ? "a" : "b";
    std::vector<NodeId> switches;
    for (const char* name : {".pcie0", ".pcie1"}) {
      switches.push_back(add(topology, host + name, topology::NodeKind::kPciSwitch, host, rack));
      const NodeId nic = add(topology, host + ".nic" + name, topology::NodeKind::kNic, host, rack);
      join(topology, switches.back(), nic, 10);
      join(topology, nic, tors[h % 2], 10);
    }
    for (std::size_t g = 0; g < 4; ++g) {
      const NodeId gpu =
          add(topology, host + ".gpu" + std::to_string(g), topology::NodeKind::kGpu, host, rack);
      topology.add_rank(gpu);
      join(topology, gpu, switches[g % 2], 20);
    }
  }
  const Placement all = place(topology, {.hosts = 4, .gpus_per_host = {}});
  CHECK(placed(all) == std::vector<std::string>{"h0", "h2", "h1", "h3"});
  CHECK(all.hosts[1].ranks == std::vector<std::string>{"h2.gpu0", "h2.gpu2", "h2.gpu1", "h2.gpu3"});
  for (std::size_t r = 0; r < 16; ++r) {
    CHECK(all.cluster.node(all.cluster.node_of(Rank(r))).name == all.hosts[r / 4].ranks[r % 4]);
  }
  // Two GPUs per host can use both NICs when they are on different switches.
  const Placement half = place(topology, {.hosts = 4, .gpus_per_host = 2});
  for (const PlacedHost& host : half.hosts) {
    CHECK(host.ranks == std::vector<std::string>{host.name + ".gpu0", host.name + ".gpu1"});
  }
}

TEST_CASE("what cannot be placed is said") {
  const Topology topology = tree({{{10, 2}, {10, 1}}, {{10, 1}}}, {10, 10});
  CHECK_THROWS_AS(place(topology, {.hosts = 4, .gpus_per_host = {}}), ConfigError);
  CHECK_THROWS_AS(place(topology, {.hosts = 2, .gpus_per_host = 2}), ConfigError);
  CHECK_THROWS_AS(place(topology, {.hosts = 1, .gpus_per_host = 1}), ConfigError);
  CHECK(place(topology, {.hosts = 1, .gpus_per_host = {}}).cluster.rank_count() == 2);
  CHECK(place(topology, {.hosts = 3, .gpus_per_host = 1}).cluster.rank_count() == 3);
  CHECK(place(topology, {.hosts = 3, .gpus_per_host = {}}).cluster.rank_count() == 4);
}

}  // namespace
}  // namespace rackrail::planner::placement_property_test

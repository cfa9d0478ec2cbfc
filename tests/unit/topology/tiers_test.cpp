#include "topology/tiers.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/unit/topology/graphs.hpp"

namespace rackrail::topology::tiers_test {
namespace {

using test::join;

// Pods of two racks of two hosts of two GPUs, in machines of two sockets or with an NVSwitch.
Topology two_pods(bool has_sockets, bool names_racks) {
  Topology t("two pods");
  const auto add = [&](std::string name, NodeKind kind, std::string host = {},
                       std::string rack = {}) {
    return t.add_node(
        {.name = std::move(name), .kind = kind, .host = std::move(host), .rack = std::move(rack)});
  };
  const NodeId core = add("core", NodeKind::kCore);
  for (int p = 0; p < 2; ++p) {
    const NodeId spine = add(fmt::format("spine{}", p), NodeKind::kSpine);
    join(t, spine, core, 10_GBps);
    for (int r = 0; r < 2; ++r) {
      const std::string rack = fmt::format("rack{}.{}", p, r);
      const NodeId tor = add(rack + "-tor", NodeKind::kTor);
      join(t, tor, spine, 10_GBps);
      for (int h = 0; h < 2; ++h) {
        const std::string host = fmt::format("{}-host{}", rack, h);
        std::vector<NodeId> sockets;
        for (int s = 0; s < 2; ++s) {
          sockets.push_back(add(fmt::format("{}-inside{}", host, s),
                                has_sockets ? NodeKind::kCpu : NodeKind::kNvSwitch, host));
          const NodeId pcie = add(fmt::format("{}-pcie{}", host, s), NodeKind::kPciSwitch, host);
          join(t, sockets.back(), pcie, 30_GBps);
          for (int g = 0; g < 2; ++g) {
            const NodeId gpu = add(fmt::format("{}-gpu{}.{}", host, s, g), NodeKind::kGpu, host,
                                   names_racks ? rack : "");
            t.add_rank(gpu);
            join(t, gpu, pcie, 30_GBps);
          }
        }
        join(t, sockets[0], sockets[1], 20_GBps);
        join(t, sockets[0], tor, 10_GBps);
      }
    }
  }
  return t;
}

std::vector<std::size_t> group_counts(const Topology& topology) {
  std::vector<std::size_t> counts;
  for (const auto& partition : nested_groups(topology)) {
    counts.push_back(partition.size());
    std::size_t ranks = 0;
    for (const RankGroup& group : partition) {
      ranks += group.ranks.size();
      CHECK(group.ranks.size() * partition.size() == topology.rank_count());
    }
    CHECK(ranks == topology.rank_count());
  }
  return counts;
}

TEST_CASE("ranks nest in parts of machines, machines, racks and pods") {
  CHECK(group_counts(two_pods(true, true)) == std::vector<std::size_t>{16, 8, 4, 2, 1});
  CHECK(group_counts(two_pods(false, true)) == std::vector<std::size_t>{8, 4, 2, 1});
}

TEST_CASE("racks without names are what hangs on the same switches") {
  const Topology topology = two_pods(false, false);
  CHECK(group_counts(topology) == std::vector<std::size_t>{8, 4, 2, 1});
  const auto racks = nested_groups(topology)[1];
  const auto named = ranks_by_rack(two_pods(false, true));
  for (std::size_t r = 0; r < racks.size(); ++r) {
    CHECK(racks[r].ranks == named[r].ranks);
  }
}

TEST_CASE("what joins nothing and what parts inner groups is no tier") {
  Topology t("three hosts");
  const NodeId tor = t.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (int h = 0; h < 3; ++h) {
    for (int g = 0; g < 2; ++g) {
      // The racks cut through hosts.
      const NodeId gpu = t.add_node({.name = fmt::format("gpu{}.{}", h, g),
                                     .kind = NodeKind::kGpu,
                                     .host = fmt::format("host{}", h),
                                     .rack = fmt::format("rack{}", g)});
      t.add_rank(gpu);
      join(t, gpu, tor, 10_GBps);
    }
  }
  CHECK(group_counts(t) == std::vector<std::size_t>{3, 1});
  Topology star("star");
  const NodeId middle = star.add_node({.name = "middle", .kind = NodeKind::kTor});
  for (int h = 0; h < 3; ++h) {
    join(star, test::add_gpu(star, fmt::format("gpu{}", h)), middle, 10_GBps);
  }
  CHECK(group_counts(star) == std::vector<std::size_t>{1});
}

}  // namespace
}  // namespace rackrail::topology::tiers_test

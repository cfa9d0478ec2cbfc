#include "planner/groups/rank_groups.hpp"

#include <algorithm>
#include <tuple>

#include "topology/attachments.hpp"
#include "topology/racks.hpp"

namespace rackrail::planner {

std::vector<topology::RankGroup> tier_groups(const topology::Topology& topology) {
  auto hosts = topology::ranks_by_host(topology);
  const auto has_many = [](const topology::RankGroup& group) { return group.ranks.size() > 1; };
  if (std::any_of(hosts.begin(), hosts.end(), has_many)) {
    const std::vector<topology::Attachment> attached = topology::attachments(topology);
    for (topology::RankGroup& host : hosts) {
      std::stable_sort(host.ranks.begin(), host.ranks.end(),
                       [&](Rank a, Rank b) { return attached[a.index()] < attached[b.index()]; });
    }
    return hosts;
  }
  auto racks = topology::ranks_by_rack(topology);
  return std::any_of(racks.begin(), racks.end(), has_many) ? racks : hosts;
}

Rank member_on_line(const topology::RankGroup& group, std::size_t line) {
  return group.ranks[line % group.ranks.size()];
}

std::vector<std::uint32_t> tier_group_by_rank(const topology::Topology& topology) {
  std::vector<std::uint32_t> group_of(topology.rank_count());
  const auto groups = tier_groups(topology);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Rank rank : groups[g].ranks) {
      group_of[rank.index()] = static_cast<std::uint32_t>(g);
    }
  }
  return group_of;
}

std::vector<Rank> near_order(const topology::Topology& topology) {
  std::vector<std::uint32_t> rack(topology.rank_count());
  std::vector<std::uint32_t> host(topology.rank_count());
  const auto number = [](const std::vector<topology::RankGroup>& groups,
                         std::vector<std::uint32_t>& numbers) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const Rank rank : groups[g].ranks) {
        numbers[rank.index()] = static_cast<std::uint32_t>(g);
      }
    }
  };
  number(topology::ranks_by_rack(topology), rack);
  number(topology::ranks_by_host(topology), host);
  const std::vector<topology::Attachment> attached = topology::attachments(topology);
  std::vector<Rank> order;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    order.emplace_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](Rank a, Rank b) {
    return std::tie(rack[a.index()], host[a.index()], attached[a.index()]) <
           std::tie(rack[b.index()], host[b.index()], attached[b.index()]);
  });
  return order;
}

}  // namespace rackrail::planner

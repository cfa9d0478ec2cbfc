#include "sim/rank_turns.hpp"

#include <algorithm>

namespace rackrail::sim {

namespace {

std::vector<topology::RankGroup> groups_of(const topology::Topology& topology) {
  auto hosts = topology::ranks_by_host(topology);
  const bool hosts_have_several = std::any_of(
      hosts.begin(), hosts.end(), [](const topology::RankGroup& h) { return h.ranks.size() > 1; });
  return hosts_have_several ? hosts : topology::ranks_by_rack(topology);
}

}  // namespace

RankTable::RankTable(const topology::Topology& topology) {
  const std::vector<topology::RankGroup> groups = groups_of(topology);
  const bool are_even =
      !groups.empty() && std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
        return group.ranks.size() == groups[0].ranks.size();
      });
  const auto count = static_cast<std::uint32_t>(topology.rank_count());
  groups_ = are_even ? static_cast<std::uint32_t>(groups.size()) : 1;
  members_ = count / groups_;
  places_.resize(count);
  for (const topology::RankGroup& group : groups) {
    for (const Rank rank : group.ranks) {
      places_[rank.index()] = static_cast<std::uint32_t>(ranks_.size());
      ranks_.push_back(rank);
    }
  }
}

Rank RankTable::turned(Rank rank, std::uint32_t by_groups, std::uint32_t by_members) const {
  const std::uint32_t place = places_[rank.index()];
  return at((place / members_ + by_groups) % groups_, (place % members_ + by_members) % members_);
}

Rank RankTable::first(Rank rank, Turns turns) const { return turned_along(rank, rank, turns); }

Rank RankTable::turned_along(Rank other, Rank rank, Turns turns) const {
  const std::uint32_t place = places_[rank.index()];
  const std::uint32_t group = place / members_;
  const std::uint32_t member = place % members_;
  return turned(other, groups_ - (group - group % turns.groups),
                members_ - (member - member % turns.members));
}

}  // namespace rackrail::sim

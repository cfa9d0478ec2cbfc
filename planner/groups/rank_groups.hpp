// Groups of ranks, the members of groups that exchange, and ranks in an order of nearness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.hpp"
#include "topology/hosts.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// The groups that "inside" and "across" speak of: hosts when a host holds several ranks, else
/// racks when a rack does, else every rank alone. Ranks of a host are in the order of their
/// sockets, PCIe switches and NICs, whatever their numbers.
std::vector<topology::RankGroup> tier_groups(const topology::Topology& topology);

/// The member of a group that a line of members goes through: groups of several sizes have as many
/// lines, more than members.
Rank member_on_line(const topology::RankGroup& group, std::size_t line);

/// The number of each rank's group in tier_groups().
std::vector<std::uint32_t> tier_group_by_rank(const topology::Topology& topology);

/// Ranks in an order in which neighbours are near: by rack, then by host, then by socket, PCIe
/// switch and NIC, then by number.
std::vector<Rank> near_order(const topology::Topology& topology);

}  // namespace rackrail::planner

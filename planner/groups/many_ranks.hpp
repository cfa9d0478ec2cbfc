// From how many ranks on searches are less exact, and the router that all of them use.
#pragma once

#include <cstddef>

#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// From here on a simulated step takes seconds, and the search is no longer exact: it leaves out
/// what models say is slower (also search.hpp).
inline constexpr std::size_t kVeryManyRanks = 96;
/// From here on one slice is tried of each schedule, and times at other sizes say what is slower.
inline constexpr std::size_t kRanksOfOneSlice = 32;

/// A router for schedules on this cluster. From kVeryManyRanks on, equal routes are assigned
/// round-robin instead of by a hash. Then flows collide less, and the simulator needs only a part
/// of a symmetric cluster. Where cables between switches have several rates, they count
/// (topology::Distance::kMessage).
topology::Router make_router(const topology::Topology& topology);

}  // namespace rackrail::planner

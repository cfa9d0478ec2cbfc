// Uses the cyclic rank symmetries of a listed schedule, or of whole steps, to simulate only one of
// many symmetric parts. symmetry.hpp does the same for schedules given by formulas.
//
// A cyclic shift of the ranks (Turns, rank_turns.hpp) is a symmetry of a layout when it maps
// - every send queue (Lane) to one with as many transfers, each of the same operation, codec and
//   weight, and in the same relations: what it waits for, shares an encoding with or is added
//   after;
// - links one to one to links of the same properties, route by route, and devices to devices of
//   their class.
//
// Ranks that such shifts map to each other then do the same at the same times, and so do links, as
// max–min fair rates are unique. So it is enough to simulate the first rank of each orbit, with the
// transfers that it sends. A transfer from another rank is replaced by one from the first rank of
// its orbit. A link represents its orbit. Let c shifts map all l links of an orbit to each other.
// Then c / l flows of each orbit of flows use each of its links, so the simulated one takes c / l
// times its rate from it.
//
// The same holds for several layouts at once, for the symmetries that they have in common, as long
// as these map links equally in all of them.
//
// This is exact, with two exceptions. Chunks of equal weight differ by an element where the buffer
// does not divide; those of the first rank represent the others. And where two messages meet at one
// instant, either may be first. A full simulation decides that per rank, a folded one decides it
// once for all of them. On small clusters that changes collectives by up to 1.3 %
// (tests/integration/planner/folded_steps_test.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim/listed_layout.hpp"
#include "sim/rank_turns.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// By link: the link that a shift maps it to; kNoImage for those not in use.
using LinkImage = std::vector<std::uint32_t>;
inline constexpr std::uint32_t kNoImage = UINT32_MAX;

/// The smallest cyclic shifts that are symmetries of a layout.
struct LayoutTurns {
  Turns turns;
  LinkImage by_groups;   ///< of a shift by turns.groups
  LinkImage by_members;  ///< of a shift by turns.members
};

/// O(transfers and what waits for them) per divisor of the table's sides, most of them less. None
/// with groups of transfers (rule 7) or processors, and where no shift is a symmetry.
std::optional<LayoutTurns> find_turns(const ListedLayout& layout, const RankTable& ranks,
                                      const topology::Topology& topology);

/// What stands for what.
struct Fold {
  Turns turns;
  std::uint32_t copies = 1;
  std::vector<LinkId> first_link;           ///< by link: of its orbit
  std::vector<std::uint32_t> flows_on_one;  ///< by link: flows of one orbit that use it
};

/// By the symmetries that all of these layouts have; none where there are none, or where the
/// layouts map links differently.
std::optional<Fold> common_fold(std::span<const LayoutTurns* const> layouts,
                                const RankTable& ranks);

/// The transfers of the first ranks.
std::shared_ptr<const ListedLayout> folded(const ListedLayout& layout, const Fold& fold,
                                           const RankTable& ranks,
                                           const topology::Topology& topology);

}  // namespace rackrail::sim

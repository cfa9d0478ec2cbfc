// Simulating one of many parts of a listed schedule that cannot be told apart; as symmetry.hpp does
// for schedules by formulas, and of whole steps.
//
// A turn of the cluster (rank_turns.hpp) is one that a layout does not notice when it takes
//  - every lane to one with as many transfers, each of the same operation, codec and weight, on the
//    same terms with what it waits for, shares an encoding with or is added after;
//  - links one to one to links like them, route by route, and devices to devices of their class.
// Ranks that such turns take to each other then do the same at the same times, and so do links, as
// max–min fair rates are unique. So the first rank of each orbit is enough, with the transfers that
// it sends; what would come from another rank comes from its first one. A link stands for its
// orbit. Where c turns take all of an orbit of l links to each other, c / l flows of each orbit of
// flows use each of its links: the one that is simulated takes c / l times its rate from it.
//
// The same holds for several layouts at once, for the turns that none of them notices, as long as
// these take links the same way in all of them.
//
// Exact but for two things. Chunks of equal weight differ by an element where the buffer does not
// divide; those of the first rank stand for the others. And where two messages meet at one instant,
// either may be first: in full the ranks decide that for themselves, folded they all do the same.
// On small clusters that changes collectives by up to 1.3 %
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

/// By link: where a turn takes it; kNoImage for those not in use.
using LinkImage = std::vector<std::uint32_t>;
inline constexpr std::uint32_t kNoImage = UINT32_MAX;

/// The smallest turns that a layout does not notice.
struct LayoutTurns {
  Turns turns;
  LinkImage by_groups;   ///< of a turn by turns.groups
  LinkImage by_members;  ///< of a turn by turns.members
};

/// O(transfers and what waits for them) per divisor of the table's sides, most of them less. None
/// with groups of transfers (rule 7) or processors, and where it notices all turns.
std::optional<LayoutTurns> find_turns(const ListedLayout& layout, const RankTable& ranks,
                                      const topology::Topology& topology);

/// What stands for what.
struct Fold {
  Turns turns;
  std::uint32_t copies = 1;
  std::vector<LinkId> first_link;           ///< by link: of its orbit
  std::vector<std::uint32_t> flows_on_one;  ///< by link: flows of one orbit that use it
};

/// By the turns that none of these layouts notices; none where there are none, or they take links
/// different ways.
std::optional<Fold> common_fold(std::span<const LayoutTurns* const> layouts,
                                const RankTable& ranks);

/// The transfers of the first ranks.
std::shared_ptr<const ListedLayout> folded(const ListedLayout& layout, const Fold& fold,
                                           const RankTable& ranks,
                                           const topology::Topology& topology);

}  // namespace rackrail::sim

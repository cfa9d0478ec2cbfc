// Sums over groups of ranks (hosts) along a ring of them, past members that have slow links.
//
// Model. Members l of all groups form rail l (a line, as in group_exchanges.hpp). Every group but a
// piece's root sends it once, so whatever paths pieces take, in a time T group i sends 1 − w_i of
// the buffer, where w_i is the share of the pieces whose root it is. With C_i the rates of its
// members together,
//   T = (k − 1) / Σ C_i   and   w_i = 1 − C_i·T
// have all links of all k groups full for all of the time; where some w_i would be negative, it is
// 0, and T is what the others need. Pieces that leave a group by any line that has room are not
// enough for that: where a member has the rate b and its neighbours on the line r, of these r − b
// lie idle. So on each line the members of a higher rate have a ring of their own for what is above
// b, which passes the slow one by. A piece that takes such a hop begins once more at the group
// after the one that it left: the groups that it passed by send their part along the ring to where
// the hop ends. Where the slow member has most of the others' rate, such a hop needs a rate of its
// own: two flows from one member share it evenly, and the one past others would take more than its
// part. Where routes cannot have rates, what others have above the slow one is left idle then.
//
// What goes where is found by events: a link that is free takes of what waits at its group the
// piece that has the longest way before it, rather one that came by the link's line. In the
// beginning those wait that have the first hop of their way here, as many as the root before this
// group has, and what arrives is as much behind them as they take. So where slow members are alone,
// with whole groups before and behind them, no link is idle although rates of groups differ, all
// end at about the same time, and nothing is urgent: a message may be late by w_i/(1 − w_i) of the
// time, and what changes its line waits for its way inside the group.
//
// Where slow groups are side by side, a hop can end at the second one and another pass it by. What
// was passed by begins once all that others sent to it past earlier groups is there, so it may
// wait, and links with it. Near a group that is slow on all lines links stay idle: w_i is large,
// and what has its root there cannot take the hops past it. The time over T by number of pieces:
// results/planner-notes.md, section 'Slow NICs on rails'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "planner/groups/line_rates.hpp"

namespace rackrail::planner {

/// From a group to its parent, by their members on a line.
struct BypassArc {
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t line = 0;
  Bandwidth rate;  ///< that it must not exceed; 0: no limit
  // As shares of the time of all trees.
  double start = 0;
  double end = 0;  ///< when all of it is there
};

/// What sums a piece at its root.
struct BypassTree {
  std::size_t root = 0;
  std::size_t number = 0;       ///< among those of the root
  double share = 0;             ///< of the buffer, from 0 to 1
  std::vector<BypassArc> arcs;  ///< of each group but the root, children first
  double end = 0;               ///< as a share of the time of all trees
};

/// Whether hops past others may have rates.
enum class PassingHops : std::uint8_t { kUnrated, kRated };

/// T of a buffer of one byte in seconds (a Duration counts picoseconds, of which that is few), if
/// all links are as full as shares of roots leave them. Nothing where a group does not reach the
/// next one by any line.
std::optional<double> seconds_of_sums(const LineRates& rates,
                                      PassingHops hops = PassingHops::kUnrated);
/// w by group; their sum is 1. Precondition: seconds_of_sums() is something.
std::vector<double> shares_of_roots(const LineRates& rates,
                                    PassingHops hops = PassingHops::kUnrated);

/// Trees without their arcs, by root: of each root as many as its share, `pieces` for each line and
/// mean share; the first ones, one for each line, are smaller, as nothing goes before they are
/// summed. A root of less than half a piece has none, so shares may sum to less than 1.
/// Precondition as above.
std::vector<BypassTree> bypass_pieces(const LineRates& rates, std::size_t pieces,
                                      PassingHops hops = PassingHops::kUnrated);
/// Such pieces with their arcs.
std::vector<BypassTree> bypass_trees(const LineRates& rates, std::vector<BypassTree> pieces,
                                     PassingHops hops = PassingHops::kUnrated);

}  // namespace rackrail::planner

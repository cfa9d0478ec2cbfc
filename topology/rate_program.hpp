// The best rates of trees over a topology's links: a linear program over cuts.
//
// Model. Of every byte, x_v is summed at rank v or broadcast from it (X = Σ x_v bytes per second in
// all). Link e carries a_e of the broadcast and r_e of the reduction, a_e + r_e ≤ b_e, or one of
// them alone. A broadcast of these rates exists iff every cut lets enough through:
//     Σ a over links that leave S ≥ Σ x_v over ranks in S,   for every S without some rank,
// and the same for r on the reversed graph. This is Edmonds' branching theorem. Switches that
// cannot copy must pass on exactly what they receive, and edge splitting then keeps the condition
// (Zhao et al., "ForestColl", arXiv 2402.06787). A switch that multicasts is free of the
// conservation of a, one that reduces of that of r. With such switches the cuts around ranks are
// necessary. They are sufficient where each switch that passes on more than it receives is itself
// reached by X (Bang-Jensen, Frank, Jackson, "Preserving and increasing local edge-connectivity in
// mixed graphs", 1995), or where the links decompose into rails with that property.
//
// Method. The cuts are too many to write down, so violated ones are added step by step (cutting
// planes). Solve the linear program with the known cuts. For each rank, find a smallest cut between
// the roots and it by a max-flow on the solution's rates. Add those that are too small, and repeat.
// Every intermediate optimum is a relaxation and hence a valid bound, so stopping early costs
// tightness only. The cuts around ranks, machines and racks are there from the start.
//
// Equivalent ranks and links (alike_ranks.hpp) may share a variable. The mean of an optimum over
// all symmetries is an optimum, too, and a cut and its images are then one row. So clusters of many
// identical hosts are as small a program as one of few.
//
// Precision: rates are scaled to the widest link, and the solver's result is exact to about 1e-6.
// The prices of its rows, made whole numbers, prove a bound in integers, which is the answer where
// it is as near as that can tell (1e-9).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "topology/alike_ranks.hpp"
#include "topology/flow_network.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {

/// Of rates, relatively: the solver itself keeps rows to 1e-7.
inline constexpr double kRateTolerance = 1e-6;

/// Which switches can work on what passes, by vertex; ranks always can.
struct Abilities {
  std::vector<bool> multicasts;
  std::vector<bool> reduces;
};
/// None without `in_network`. With it, those that say so; where none says so, all that stand in the
/// network or in a GPU fabric.
Abilities abilities_of(const Topology& topology, bool in_network);

/// X ≤ capacity / price, in bytes per second.
struct ExactRate {
  Capacity capacity = 0;
  Capacity price = 1;
  std::optional<LinkId> widest;  ///< the link that is worth most
};
/// Divided by what both have in common; none where they are too large for 64 bits.
std::optional<std::pair<std::int64_t, std::int64_t>> reduced(Capacity p, Capacity q);

class RateProgram {
 public:
  enum class Trees : std::uint8_t {
    kBroadcast,  ///< of an all-gather: every rank is the root of as much
    kReduction,  ///< of a reduce-scatter: likewise
    kBoth,       ///< of an all-reduce, whose roots are free
  };
  /// `is_folded`: equivalent ranks and links share a variable.
  RateProgram(const Topology& topology, Trees trees, const Abilities& able, bool is_folded = false);

  /// The largest X, in bytes per second, or a bound of it; none when the solver gave up. Nothing
  /// below `reachable` is looked for.
  std::optional<double> solve(double reachable);
  /// Whether no cut is in the way of what solve() found: else it was broken off, at a bound.
  bool is_reached() const { return is_reached_; }
  /// The cuts that the last optimum is bound by, those first that would give most if they let more
  /// through; what is on both lists of a cut and its complement is there once.
  std::vector<std::string> binding_cuts() const;
  /// The same in words: "bound by …; …; and 3 more cuts", or nothing.
  std::string binding_cuts_text() const;
  /// The optimum as a fraction, by prices that prove it: none where they are no fractions of small
  /// whole numbers, or the solver is off by more than they can be.
  std::optional<ExactRate> exact() const;
  /// Rates that have the last optimum.
  JointAllReduce rates() const;

 private:
  /// Broadcast, or reduction as a broadcast on the reversed graph.
  struct Half {
    Half(const Topology& topology, bool reversed);
    NodeId from(const Link& link) const { return is_reversed ? link.to : link.from; }
    NodeId to(const Link& link) const { return is_reversed ? link.from : link.to; }

    bool is_reversed;
    FlowNetwork network;
    FlowNetwork::Vertex source;
    std::vector<FlowNetwork::Arc> root_arcs;
    std::vector<int> rates;                    // variable of each link
    std::vector<std::optional<int>> balances;  // row of each vertex that passes on what it receives
    std::unordered_set<std::vector<bool>> cut_off;  // sides of its cuts in the program
    std::set<LinearProgram::Terms> rows;            // of its cuts and balances, where it is folded
  };

  /// Which cuts rates violate: such as are in the program where the mean of solutions does, as the
  /// first may come from before they were.
  enum class Separation { kNone, kKnown, kNew };

  struct CutRow {
    int row;
    std::vector<bool> side;
    std::size_t half;
  };

  std::optional<std::int64_t> common_factor() const;
  double rate(std::size_t link) const;
  void add_roots(bool are_equal);
  bool is_new_row(Half& half, const LinearProgram::Terms& terms) const;
  void conserve(Half& half, const std::vector<bool>& is_free);
  bool add_cut(std::size_t half, const std::vector<bool>& side);
  void add_natural_cuts();
  void take_solution();
  double rate_of(int variable) const;
  Separation separate(double total);
  Separation separate(std::size_t half, double total);

  const Topology& topology_;
  const bool is_folded_;
  const AlikeParts alike_;
  LinearProgram program_;
  double scale_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
  bool is_reached_ = false;
  std::vector<double> rates_;  // of variables, scaled
  double solutions_ = 0;       // that rates_ is the mean of
  std::vector<CutRow> cuts_;
  std::vector<int> roots_;  // variable of each rank
  std::vector<Half> halves_;
};

}  // namespace rackrail::topology

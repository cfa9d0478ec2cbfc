// Cheapest trees that must reach some vertices of a directed graph and may pass the others.
//
// Model. Vertices below `terminals` are reached from a root, each over one arc; the others are, if
// that makes the tree cheaper (Steiner arborescences: Hwang, Richards, Winter, "The Steiner Tree
// Problem", 1992, 2.5). Once it is settled which of the others are passed, the tree is a spanning
// one (arborescence.hpp), less those at which it ends.
//
// Method. All choices are tried where six vertices may be passed at most, which is exact. Among
// more, one vertex is added, left out or, among up to twelve, put in another's place as long as the
// tree gets cheaper and there is work left, beginning with those of the last tree, which differ
// little from one root to the next, and for the first root at other prices with all.
//
// Complexity: a spanning tree for each choice that is looked at.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "planner/packing/arborescence.hpp"

namespace rackrail::planner {

struct SteinerTree {
  static constexpr std::uint32_t kNoArc = 0xffffffff;

  std::vector<std::uint32_t> in;  ///< by vertex: index of the arc into it, kNoArc at the root and
                                  ///< where the tree does not lead
  double price = 0;
};

class SteinerTrees {
 public:
  /// Beyond `most_work`, trees are no longer improved.
  SteinerTrees(std::size_t terminals, std::size_t size,
               double most_work = std::numeric_limits<double>::infinity())
      : terminals_(terminals), size_(size), most_work_(most_work) {}

  /// None where the root, which is a terminal, does not reach all others.
  std::optional<SteinerTree> cheapest(std::uint32_t root, const std::vector<PricedArc>& arcs);

  /// Prices are others from now on: the next search begins with all vertices, too, those after it
  /// with what was found last.
  void begin_anew() { is_new_ = true; }

  /// Arcs that were looked at so far, for all choices: what the searches took.
  double work() const { return work_; }

 private:
  using Choice = std::vector<bool>;  // by vertex: whether it is reached

  Choice reached_from(std::uint32_t root, const std::vector<PricedArc>& arcs) const;
  Choice choice_of(const SteinerTree& tree, std::uint32_t root) const;
  std::optional<SteinerTree> tree_over(std::uint32_t root, const std::vector<PricedArc>& arcs,
                                       const Choice& choice);
  void prune(const std::vector<PricedArc>& arcs, SteinerTree& tree) const;
  std::optional<SteinerTree> best_of_all(std::uint32_t root, const std::vector<PricedArc>& arcs,
                                         const std::vector<std::uint32_t>& others);
  std::optional<SteinerTree> improved(std::uint32_t root, const std::vector<PricedArc>& arcs,
                                      const std::vector<std::uint32_t>& others,
                                      const Choice& start);

  std::size_t terminals_;
  std::size_t size_;
  double most_work_;
  Choice last_;
  bool is_new_ = true;
  double work_ = 0;
};

}  // namespace rackrail::planner

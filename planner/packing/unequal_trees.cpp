#include "planner/packing/unequal_trees.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>

#include "topology/linear_program.hpp"

namespace rackrail::planner {

namespace {

constexpr std::int64_t kUnitsPerRank = 1000;  // of which shares are multiples
constexpr double kNoShare = 1e-7;

class SharesOfTrees {
 public:
  SharesOfTrees(const topology::Topology& topology, const std::vector<Forest>& pool)
      : topology_(topology), by_rank_(topology.rank_count()) {
    for (const Forest& forest : pool) {
      add(forest);
    }
  }

  /// False where the program has no solution.
  bool thin_out(std::size_t most_per_rank) {
    while (solve()) {
      bool is_thin = true;
      for (std::vector<Candidate>& trees : by_rank_) {
        std::stable_sort(trees.begin(), trees.end(),
                         [](const Candidate& a, const Candidate& b) { return a.share > b.share; });
        while (trees.size() > 1 && trees.back().share < kNoShare) {
          trees.pop_back();
        }
        if (trees.size() > most_per_rank) {
          trees.pop_back();
          is_thin = false;
        }
      }
      if (is_thin) {
        return true;
      }
    }
    return false;
  }

  Forest take() {
    Forest forest;
    forest.routes = std::move(routes_);
    forest.trees_per_rank = kUnitsPerRank;
    for (std::vector<Candidate>& trees : by_rank_) {
      std::int64_t left = kUnitsPerRank;
      for (std::size_t t = trees.size(); t-- > 0;) {
        // The first one, of the largest share, has what is left.
        const auto units =
            t == 0 ? left : std::llround(trees[t].share * static_cast<double>(kUnitsPerRank));
        left -= units;
        if (units > 0) {
          trees[t].tree.units = units;
          forest.trees.push_back(std::move(trees[t].tree));
        }
      }
    }
    return forest;
  }

 private:
  struct Candidate {
    Tree tree;
    double share = 0;
  };

  void add(const Forest& forest) {
    for (Tree tree : forest.trees) {
      for (TreeArc& arc : tree.arcs) {
        const auto [number, is_new] = numbers_.try_emplace(
            forest.routes[arc.route], static_cast<std::uint32_t>(routes_.size()));
        if (is_new) {
          routes_.push_back(forest.routes[arc.route]);
        }
        arc.route = number->second;
      }
      std::vector<Candidate>& trees = by_rank_[tree.root.index()];
      if (std::none_of(trees.begin(), trees.end(),
                       [&](const Candidate& other) { return other.tree.arcs == tree.arcs; })) {
        trees.push_back({std::move(tree), 0});
      }
    }
  }

  /// Shares of all trees that are left. The objective is the seconds of the fullest link, in units
  /// of what one tree of every rank takes of the widest.
  bool solve() {
    topology::LinearProgram program;
    double widest = 0;
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      widest = std::max(widest, rate(l));
    }
    const int seconds = program.add_variable(1e12, -1);
    std::vector<topology::LinearProgram::Terms> loads(topology_.link_count());
    std::vector<std::vector<int>> variables;
    for (const std::vector<Candidate>& trees : by_rank_) {
      topology::LinearProgram::Terms whole;
      variables.emplace_back();
      for (const Candidate& candidate : trees) {
        const int share = program.add_variable(1, 0);
        variables.back().push_back(share);
        whole.emplace_back(share, 1);
        std::map<std::size_t, double> uses;
        for (const TreeArc& arc : candidate.tree.arcs) {
          for (const LinkId link : routes_[arc.route]) {
            ++uses[link.index()];
          }
        }
        for (const auto& [link, times] : uses) {
          loads[link].emplace_back(share, -times);
        }
      }
      program.add_row(whole, 1, true);
    }
    for (std::size_t l = 0; l < loads.size(); ++l) {
      if (!loads[l].empty()) {
        loads[l].emplace_back(seconds, rate(l) / widest);
        program.add_row(loads[l], 0);
      }
    }
    if (!program.maximise()) {
      return false;
    }
    for (std::size_t r = 0; r < by_rank_.size(); ++r) {
      for (std::size_t t = 0; t < by_rank_[r].size(); ++t) {
        by_rank_[r][t].share = program.value(variables[r][t]);
      }
    }
    return true;
  }

  double rate(std::size_t link) const {
    return static_cast<double>(topology_.link(LinkId(link)).bandwidth.bytes_per_second());
  }

  const topology::Topology& topology_;
  std::vector<topology::Route> routes_;
  std::map<topology::Route, std::uint32_t> numbers_;
  std::vector<std::vector<Candidate>> by_rank_;
};

}  // namespace

std::optional<Forest> unequal_trees(const topology::Topology& topology,
                                    const std::vector<Forest>& pool, std::size_t most_per_rank) {
  if (!topology::LinearProgram::is_available()) {
    return std::nullopt;
  }
  SharesOfTrees shares(topology, pool);
  if (!shares.thin_out(most_per_rank)) {
    return std::nullopt;
  }
  return shares.take();
}

}  // namespace rackrail::planner

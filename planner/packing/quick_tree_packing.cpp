#include <algorithm>
#include <deque>

#include "planner/packing/tree_packing.hpp"

namespace rackrail::planner {

namespace {

/// Trees of one shape that are not complete yet.
struct Growing {
  TreeBundle bundle;
  std::vector<bool> has;             // vertices
  std::vector<std::uint32_t> level;  // vertices that joined in the last round
  std::vector<std::uint32_t> next_level;
};

class QuickPacking {
 public:
  explicit QuickPacking(const PackingProblem& problem) : n_(problem.size), left_(problem.capacity) {
    for (std::uint32_t root = 0; root < n_; ++root) {
      if (problem.roots[root] > 0) {
        Growing tree{{root, problem.roots[root], {}}, std::vector<bool>(n_), {root}, {}};
        tree.has[root] = true;
        growing_.push_back(std::move(tree));
      }
    }
  }

  /// One bundle after the other.
  bool grow_in_turn() {
    while (!growing_.empty()) {
      Growing tree = std::move(growing_.front());
      growing_.pop_front();
      while (!is_complete(tree)) {
        if (!add_vertex(tree) && !next_level(tree)) {
          return false;
        }
      }
      done_.push_back(std::move(tree.bundle));
    }
    return true;
  }

  /// All bundles level by level, a vertex each at a time.
  bool grow_together() {
    while (!growing_.empty()) {
      bool has_grown = false;
      for (std::size_t count = growing_.size(); count > 0; --count) {
        Growing tree = std::move(growing_.front());
        growing_.pop_front();
        has_grown = add_vertex(tree) || has_grown;
        if (is_complete(tree)) {
          done_.push_back(std::move(tree.bundle));
        } else {
          growing_.push_back(std::move(tree));
        }
      }
      if (!has_grown) {
        bool has_level = false;
        for (Growing& tree : growing_) {
          has_level = next_level(tree) || has_level;
        }
        if (!has_level) {
          return growing_.empty();
        }
      }
    }
    return true;
  }

  std::vector<TreeBundle> take() { return std::move(done_); }

 private:
  bool is_complete(const Growing& tree) const { return tree.bundle.arcs.size() + 1 == n_; }

  static bool next_level(Growing& tree) {
    tree.level = std::exchange(tree.next_level, {});
    return !tree.level.empty();
  }

  /// By the widest arc out of the current level; the vertex after the root comes first.
  bool add_vertex(Growing& tree) {
    std::int64_t widest = 0;
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    for (const std::uint32_t x : tree.level) {
      for (std::uint32_t i = 1; i < n_; ++i) {
        const auto y = static_cast<std::uint32_t>((tree.bundle.root + i) % n_);
        const std::int64_t width = tree.has[y] ? 0 : std::min(left_[x * n_ + y], most(tree));
        if (width > widest) {
          widest = width;
          from = x;
          to = y;
          if (widest == most(tree)) break;
        }
      }
      if (widest == most(tree)) break;
    }
    if (widest == 0) {
      return false;
    }
    if (widest < tree.bundle.units) {
      Growing rest = tree;
      rest.bundle.units -= widest;
      growing_.push_front(std::move(rest));
      tree.bundle.units = widest;
    }
    left_[from * n_ + to] -= tree.bundle.units;
    tree.bundle.arcs.emplace_back(from, to);
    tree.has[to] = true;
    tree.next_level.push_back(to);
    return true;
  }

  static std::int64_t most(const Growing& tree) { return tree.bundle.units; }

  std::size_t n_;
  std::vector<std::int64_t> left_;
  std::deque<Growing> growing_;
  std::vector<TreeBundle> done_;
};

}  // namespace

std::optional<std::vector<TreeBundle>> pack_quickly(const PackingProblem& problem) {
  QuickPacking in_turn(problem);
  if (in_turn.grow_in_turn()) {
    return in_turn.take();
  }
  QuickPacking together(problem);
  if (together.grow_together()) {
    return together.take();
  }
  return std::nullopt;
}

}  // namespace rackrail::planner

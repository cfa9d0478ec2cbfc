#include <algorithm>
#include <deque>
#include <numeric>

#include "planner/packing/tree_packing.hpp"
#include "topology/flow_network.hpp"

namespace rackrail::planner {

namespace {

class ExactPacking {
 public:
  explicit ExactPacking(const PackingProblem& problem)
      : n_(problem.size),
        problem_(problem),
        flow_(problem.size),
        arcs_(n_ * n_),
        others_(flow_.add_vertex()),
        demand_(std::accumulate(problem.roots.begin(), problem.roots.end(), std::int64_t{0})) {
    for (std::uint32_t x = 0; x < n_; ++x) {
      for (std::uint32_t y = 0; y < n_; ++y) {
        if (problem.capacity[x * n_ + y] > 0) {
          arcs_[x * n_ + y] = flow_.add_arc(x, y, problem.capacity[x * n_ + y]);
        }
      }
    }
    for (std::uint32_t v = 0; v < n_; ++v) {
      root_arcs_.push_back(flow_.add_arc(others_, v, problem.roots[v]));
      from_arcs_.push_back(flow_.add_arc(v, others_, 0));
    }
  }

  bool run() {
    for (std::uint32_t root = 0; root < n_; ++root) {
      if (problem_.roots[root] == 0) {
        continue;
      }
      flow_.set_capacity(root_arcs_[root], 0);
      unfinished_.push_back(start(root));
      while (!unfinished_.empty()) {
        Growing tree = std::move(unfinished_.front());
        unfinished_.pop_front();
        if (tree.aux != kNone) {
          flow_.set_capacity(tree.aux_arc, 0);
        }
        if (!grow(tree)) {
          return false;
        }
        demand_ -= tree.bundle.units;
        done_.push_back(std::move(tree.bundle));
      }
    }
    return true;
  }

  std::vector<TreeBundle> take() { return std::move(done_); }

 private:
  using Flow = topology::UnitFlowNetwork;
  static constexpr Flow::Vertex kNone = 0xffffffff;

  struct Growing {
    TreeBundle bundle;
    std::vector<bool> has;
    std::vector<std::uint32_t> order;     // vertices as they joined
    std::size_t expanded = 0;             // of `order`, those whose arcs were all looked at
    std::uint32_t next = 0;               // arc of order[expanded] to look at
    std::vector<std::vector<bool>> full;  // sides whose arcs to the other the other trees need
    Flow::Vertex aux = kNone;             // stands for it while it waits
    Flow::Arc aux_arc = 0;
  };

  Growing start(std::uint32_t root) const {
    Growing tree;
    tree.bundle.root = root;
    tree.bundle.units = problem_.roots[root];
    tree.has.resize(n_);
    tree.has[root] = true;
    tree.order = {root};
    return tree;
  }

  /// An arc that may not be taken may not be taken later either, so each is looked at once.
  bool grow(Growing& tree) {
    while (tree.order.size() < n_) {
      if (tree.expanded == tree.order.size()) {
        return false;
      }
      const std::uint32_t from = tree.order[tree.expanded];
      if (tree.next == n_) {
        ++tree.expanded;
        tree.next = 0;
        continue;
      }
      const auto to = static_cast<std::uint32_t>((from + tree.next++) % n_);
      if (tree.has[to] || capacity(from, to) == 0 || is_full(tree, from, to)) {
        continue;
      }
      const std::int64_t units = room(tree, from, to);
      if (units == 0) {
        tree.full.push_back(flow_.reachable_from(from));
        continue;
      }
      if (units < tree.bundle.units) {
        set_aside(tree, tree.bundle.units - units);
        tree.bundle.units = units;
      }
      flow_.set_capacity(arcs_[from * n_ + to], capacity(from, to) - units);
      tree.bundle.arcs.emplace_back(from, to);
      tree.has[to] = true;
      tree.order.push_back(to);
    }
    return true;
  }

  std::int64_t capacity(std::uint32_t from, std::uint32_t to) const {
    return problem_.capacity[from * n_ + to] == 0 ? 0 : flow_.capacity(arcs_[from * n_ + to]);
  }

  /// Whether a cut is known by which other trees need all arcs like this one. It stays so while the
  /// tree grows: it takes none of them, and trees that are set aside need as much as they bring.
  static bool is_full(const Growing& tree, std::uint32_t from, std::uint32_t to) {
    return std::ranges::any_of(
        tree.full, [&](const std::vector<bool>& side) { return side[from] && !side[to]; });
  }

  /// Trees of the bundle that may take the arc: what flows beyond the demand of all other trees.
  std::int64_t room(const Growing& tree, std::uint32_t from, std::uint32_t to) {
    const std::int64_t others = demand_ - tree.bundle.units;
    const std::int64_t most = std::min(tree.bundle.units, capacity(from, to));
    flow_.set_capacity(from_arcs_[from], others);
    flow_.reset();
    const std::int64_t flow = flow_.augment(from, to, others + most);
    flow_.set_capacity(from_arcs_[from], 0);
    return std::max<std::int64_t>(0, flow - others);
  }

  void set_aside(Growing& tree, std::int64_t units) {
    auto full = std::move(tree.full);  // of this tree alone
    Growing rest = tree;
    tree.full = std::move(full);
    rest.bundle.units = units;
    rest.aux = flow_.add_vertex();
    rest.aux_arc = flow_.add_arc(others_, rest.aux, units);
    for (const std::uint32_t v : rest.order) {
      flow_.add_arc(rest.aux, v, units);
    }
    unfinished_.push_front(std::move(rest));
  }

  std::size_t n_;
  const PackingProblem& problem_;
  Flow flow_;
  std::vector<Flow::Arc> arcs_;
  Flow::Vertex others_;
  std::int64_t demand_;  // trees that are not finished
  std::vector<Flow::Arc> root_arcs_;
  std::vector<Flow::Arc> from_arcs_;
  std::deque<Growing> unfinished_;
  std::vector<TreeBundle> done_;
};

}  // namespace

std::optional<std::vector<TreeBundle>> pack_exactly(const PackingProblem& problem) {
  ExactPacking packing(problem);
  if (!packing.run()) {
    return std::nullopt;
  }
  return packing.take();
}

}  // namespace rackrail::planner

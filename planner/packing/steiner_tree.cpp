#include "planner/packing/steiner_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostTriedAll = 6;   // vertices that may be passed: all choices are tried
constexpr std::size_t kMostSwapped = 12;   // or each is put in each other's place
constexpr double kCheaperTree = 1 - 1e-9;  // times the price so far: what rounding does not explain

}  // namespace

std::optional<SteinerTree> SteinerTrees::cheapest(std::uint32_t root,
                                                  const std::vector<PricedArc>& arcs) {
  const Choice all = reached_from(root, arcs);
  std::vector<std::uint32_t> others;
  for (std::size_t v = 0; v < size_; ++v) {
    if (v < terminals_ && !all[v]) {
      return std::nullopt;
    }
    if (v >= terminals_ && all[v]) {
      others.push_back(static_cast<std::uint32_t>(v));
    }
  }
  if (others.size() <= kMostTriedAll) {
    return best_of_all(root, arcs, others);
  }
  std::optional<SteinerTree> best;
  if (!last_.empty()) {
    best = improved(root, arcs, others, last_);
  }
  if (!best || is_new_) {
    auto other = improved(root, arcs, others, all);
    if (other && (!best || other->price < best->price * kCheaperTree)) {
      best = std::move(other);
    }
  }
  if (best) {
    last_ = choice_of(*best, root);
    is_new_ = false;
  }
  return best;
}

SteinerTrees::Choice SteinerTrees::reached_from(std::uint32_t root,
                                                const std::vector<PricedArc>& arcs) const {
  std::vector<std::vector<std::uint32_t>> out(size_);
  for (const PricedArc& arc : arcs) {
    out[arc.from].push_back(arc.to);
  }
  Choice reached(size_);
  std::vector<std::uint32_t> open{root};
  reached[root] = true;
  while (!open.empty()) {
    const std::uint32_t v = open.back();
    open.pop_back();
    for (const std::uint32_t next : out[v]) {
      if (!reached[next]) {
        reached[next] = true;
        open.push_back(next);
      }
    }
  }
  return reached;
}

SteinerTrees::Choice SteinerTrees::choice_of(const SteinerTree& tree, std::uint32_t root) const {
  Choice choice(size_);
  for (std::size_t v = 0; v < size_; ++v) {
    choice[v] = tree.in[v] != SteinerTree::kNoArc;
  }
  choice[root] = true;
  return choice;
}

/// Over these vertices, less those of the others at which it would end.
std::optional<SteinerTree> SteinerTrees::tree_over(std::uint32_t root,
                                                   const std::vector<PricedArc>& arcs,
                                                   const Choice& choice) {
  work_ += static_cast<double>(arcs.size());
  std::vector<std::uint32_t> number(size_);
  std::uint32_t count = 0;
  for (std::size_t v = 0; v < size_; ++v) {
    if (choice[v]) {
      number[v] = count++;
    }
  }
  std::vector<PricedArc> inner;
  std::vector<std::uint32_t> arc_of;
  for (std::uint32_t a = 0; a < arcs.size(); ++a) {
    const PricedArc& arc = arcs[a];
    if (choice[arc.from] && choice[arc.to]) {
      inner.push_back({number[arc.from], number[arc.to], arc.price});
      arc_of.push_back(a);
    }
  }
  const auto in = cheapest_tree(count, number[root], inner);
  if (!in) {
    return std::nullopt;
  }
  SteinerTree tree{std::vector<std::uint32_t>(size_, SteinerTree::kNoArc), 0};
  for (std::size_t v = 0; v < size_; ++v) {
    if (choice[v] && v != root) {
      tree.in[v] = arc_of[(*in)[number[v]]];
    }
  }
  prune(arcs, tree);
  for (const std::uint32_t arc : tree.in) {
    tree.price += arc != SteinerTree::kNoArc ? arcs[arc].price : 0;
  }
  return tree;
}

void SteinerTrees::prune(const std::vector<PricedArc>& arcs, SteinerTree& tree) const {
  std::vector<std::size_t> children(size_);
  for (const std::uint32_t arc : tree.in) {
    if (arc != SteinerTree::kNoArc) {
      ++children[arcs[arc].from];
    }
  }
  for (std::size_t v = terminals_; v < size_; ++v) {
    for (std::size_t end = v;
         end >= terminals_ && children[end] == 0 && tree.in[end] != SteinerTree::kNoArc;) {
      const std::uint32_t parent = arcs[tree.in[end]].from;
      tree.in[end] = SteinerTree::kNoArc;
      --children[parent];
      end = parent;
    }
  }
}

std::optional<SteinerTree> SteinerTrees::best_of_all(std::uint32_t root,
                                                     const std::vector<PricedArc>& arcs,
                                                     const std::vector<std::uint32_t>& others) {
  std::optional<SteinerTree> best;
  for (std::size_t mask = 0; mask < std::size_t{1} << others.size(); ++mask) {
    Choice choice(size_);
    std::fill_n(choice.begin(), terminals_, true);
    for (std::size_t i = 0; i < others.size(); ++i) {
      choice[others[i]] = (mask >> i & 1U) != 0;
    }
    auto tree = tree_over(root, arcs, choice);
    if (tree && (!best || tree->price < best->price * kCheaperTree)) {
      best = std::move(tree);
    }
  }
  return best;
}

/// With one vertex more, or less, or with one instead of another, as long as that is cheaper.
std::optional<SteinerTree> SteinerTrees::improved(std::uint32_t root,
                                                  const std::vector<PricedArc>& arcs,
                                                  const std::vector<std::uint32_t>& others,
                                                  const Choice& start) {
  std::optional<SteinerTree> best = tree_over(root, arcs, start);
  if (!best) {
    return best;
  }
  Choice now = choice_of(*best, root);
  const auto is_cheaper = [&](std::uint32_t one, std::uint32_t other) {
    Choice choice = now;
    choice[one] = !choice[one];
    if (other != one) {
      choice[other] = !choice[other];
    }
    auto found = tree_over(root, arcs, choice);
    if (!found || found->price >= best->price * kCheaperTree) {
      return false;
    }
    best = std::move(found);
    now = choice_of(*best, root);
    return true;
  };
  std::size_t in_vain = 0;  // vertices in a row
  for (std::size_t i = 0; in_vain < others.size() && work_ < most_work_;
       i = (i + 1) % others.size()) {
    const std::uint32_t v = others[i];
    bool is_better = is_cheaper(v, v);
    for (std::size_t j = 0; others.size() <= kMostSwapped && j < others.size(); ++j) {
      if (now[v] != now[others[j]]) {
        is_better = is_cheaper(v, others[j]) || is_better;
      }
    }
    in_vain = is_better ? 0 : in_vain + 1;
  }
  return best;
}

}  // namespace rackrail::planner

#include "planner/algorithms/exchange_ways.hpp"

#include <algorithm>
#include <utility>

#include "planner/algorithms/binary_tree.hpp"

namespace rackrail::planner {

namespace {

/// One number at a time goes the whole way.
std::vector<ExchangeArc> ring_arcs(std::size_t members, std::size_t owner, bool gathers,
                                   bool is_back) {
  std::vector<ExchangeArc> arcs;
  for (std::size_t step = 0; step + 1 < members; ++step) {
    const std::size_t away = step + (gathers ? 0 : 1);
    const std::size_t from = (owner + (is_back ? members - away : away)) % members;
    arcs.push_back({0, from, (from + (is_back ? members - 1 : 1)) % members, step, 0});
  }
  return arcs;
}

std::vector<ExchangeArc> path_arcs(std::size_t members, std::size_t owner, bool gathers) {
  std::vector<ExchangeArc> arcs;
  for (std::size_t at = 0; at < members; ++at) {
    if (at == owner) {
      continue;
    }
    const bool is_before = at < owner;
    const std::size_t next = is_before ? at + 1 : at - 1;
    const std::size_t left = (is_before ? owner - at : at - owner) - 1;
    const std::size_t from_end = is_before ? at : members - 1 - at;
    arcs.push_back(gathers ? ExchangeArc{0, next, at, left, 0}
                           : ExchangeArc{0, at, next, from_end, left});
  }
  return arcs;
}

std::vector<ExchangeArc> tree_arcs(std::size_t members, bool is_second, bool gathers) {
  const BinaryTree tree = make_binary_tree(members, is_second);
  std::vector<std::size_t> depth(members);
  std::vector<std::size_t> height(members);
  for (const std::size_t at : tree.from_root) {
    depth[at] = tree.parent[at] == at ? 0 : depth[tree.parent[at]] + 1;
  }
  std::vector<ExchangeArc> arcs;
  for (auto at = tree.from_root.rbegin(); at != tree.from_root.rend(); ++at) {
    const std::size_t parent = tree.parent[*at];
    if (parent != *at) {
      height[parent] = std::max(height[parent], height[*at] + 1);
      arcs.push_back(gathers ? ExchangeArc{0, parent, *at, depth[parent], 0}
                             : ExchangeArc{0, *at, parent, height[*at], 0});
    }
  }
  return arcs;
}

}  // namespace

std::vector<ExchangeArc> arcs_of(Way way, std::size_t members, const std::vector<DigitRun>& runs,
                                 bool gathers, bool is_back) {
  std::vector<ExchangeArc> all;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::size_t owner = runs[r].owner;
    std::vector<ExchangeArc> arcs;
    switch (way) {
      case Way::kDirect:
        for (std::size_t offset = 1; offset < members; ++offset) {
          const std::size_t other = (owner + members - offset) % members;
          arcs.push_back(gathers ? ExchangeArc{0, owner, other, offset - 1, 0}
                                 : ExchangeArc{0, other, owner, offset - 1, 0});
        }
        break;
      case Way::kRing:
        arcs = ring_arcs(members, owner, gathers, is_back);
        break;
      case Way::kPath:
        arcs = path_arcs(members, owner, gathers);
        break;
      case Way::kTree:
        arcs = tree_arcs(members, r == 1, gathers);
        break;
    }
    for (ExchangeArc& arc : arcs) {
      arc.run = r;
    }
    all.insert(all.end(), arcs.begin(), arcs.end());
  }
  std::ranges::stable_sort(all, [](const ExchangeArc& a, const ExchangeArc& b) {
    return std::pair(a.step, b.left) < std::pair(b.step, a.left);
  });
  return all;
}

std::size_t distance(Way way, std::size_t members, std::size_t member, std::size_t owner,
                     bool gathers, bool is_back) {
  if (way == Way::kPath) {
    return member < owner ? owner - member : member - owner;
  }
  const bool is_after_owner = way == Way::kRing ? gathers != is_back : !gathers;
  return (is_after_owner ? member + members - owner : owner + members - member) % members;
}

std::size_t block_at(std::size_t distance, std::uint32_t growth) {
  if (growth < 2) {
    return growth * distance;
  }
  std::size_t block = 0;
  for (std::size_t end = 1; end <= distance; end *= growth) {
    ++block;
  }
  return block;
}

}  // namespace rackrail::planner

#include "planner/packing/arborescence.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::planner {

namespace {

constexpr std::uint32_t kUnset = 0xffffffff;

/// The cheapest arc into each vertex.
std::vector<std::uint32_t> cheapest_in(std::size_t size, std::uint32_t root,
                                       const std::vector<PricedArc>& arcs) {
  std::vector<std::uint32_t> in(size, kUnset);
  for (std::uint32_t a = 0; a < arcs.size(); ++a) {
    const PricedArc& arc = arcs[a];
    if (arc.to != root && (in[arc.to] == kUnset || arc.price < arcs[in[arc.to]].price)) {
      in[arc.to] = a;
    }
  }
  return in;
}

/// Vertices of one cycle of arcs `in` have one number, all others their own; how many there are.
struct Contraction {
  std::vector<std::uint32_t> number;
  std::vector<bool> is_on_cycle;
  std::size_t count = 0;
};

Contraction contract_cycles(std::uint32_t root, const std::vector<std::uint32_t>& in,
                            const std::vector<PricedArc>& arcs) {
  const std::size_t size = in.size();
  Contraction made{std::vector<std::uint32_t>(size, kUnset), std::vector<bool>(size), 0};
  std::vector<std::uint32_t> seen_from(size, kUnset);
  for (std::uint32_t start = 0; start < size; ++start) {
    std::uint32_t v = start;
    while (v != root && seen_from[v] == kUnset) {
      seen_from[v] = start;
      v = arcs[in[v]].from;
    }
    if (v == root || seen_from[v] != start || made.is_on_cycle[v]) {
      continue;
    }
    for (std::uint32_t on = v; !made.is_on_cycle[on]; on = arcs[in[on]].from) {
      made.is_on_cycle[on] = true;
      made.number[on] = static_cast<std::uint32_t>(made.count);
    }
    ++made.count;
  }
  for (std::uint32_t& number : made.number) {
    if (number == kUnset) {
      number = static_cast<std::uint32_t>(made.count++);
    }
  }
  return made;
}

}  // namespace

std::optional<std::vector<std::uint32_t>> cheapest_tree(std::size_t size, std::uint32_t root,
                                                        const std::vector<PricedArc>& arcs) {
  std::vector<std::uint32_t> in = cheapest_in(size, root, arcs);
  for (std::uint32_t v = 0; v < size; ++v) {
    if (v != root && in[v] == kUnset) {
      return std::nullopt;
    }
  }
  const Contraction smaller = contract_cycles(root, in, arcs);
  if (smaller.count == size) {
    return in;
  }
  std::vector<PricedArc> left;
  std::vector<std::uint32_t> arc_of;  // of `arcs`, by arc that is left
  for (std::uint32_t a = 0; a < arcs.size(); ++a) {
    const PricedArc& arc = arcs[a];
    if (smaller.number[arc.from] != smaller.number[arc.to] && arc.to != root) {
      const double saved = smaller.is_on_cycle[arc.to] ? arcs[in[arc.to]].price : 0;
      left.push_back({smaller.number[arc.from], smaller.number[arc.to], arc.price - saved});
      arc_of.push_back(a);
    }
  }
  const auto tree = cheapest_tree(smaller.count, smaller.number[root], left);
  if (!tree) {
    return std::nullopt;
  }
  for (std::uint32_t v = 0; v < smaller.count; ++v) {
    if (v != smaller.number[root]) {
      const std::uint32_t arc = arc_of[(*tree)[v]];
      in[arcs[arc].to] = arc;
    }
  }
  return in;
}

}  // namespace rackrail::planner

// Cheapest trees that may pass vertices against all that there are.
#include "planner/packing/steiner_tree.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace rackrail::planner::steiner_tree_test {
namespace {

/// The least price over every set of others, each as a spanning tree of its own; infinite where
/// there is none.
double least_price(std::size_t terminals, std::size_t size, std::uint32_t root,
                   const std::vector<PricedArc>& arcs) {
  double least = std::numeric_limits<double>::infinity();
  for (std::uint32_t mask = 0; mask < 1U << (size - terminals); ++mask) {
    std::vector<std::uint32_t> number(size);
    std::uint32_t count = 0;
    const auto is_in = [&](std::uint32_t v) {
      return v < terminals || (mask >> (v - terminals) & 1U) != 0;
    };
    for (std::uint32_t v = 0; v < size; ++v) {
      if (is_in(v)) number[v] = count++;
    }
    std::vector<PricedArc> inner;
    for (const PricedArc& arc : arcs) {
      if (is_in(arc.from) && is_in(arc.to)) {
        inner.push_back({number[arc.from], number[arc.to], arc.price});
      }
    }
    const auto in = cheapest_tree(count, number[root], inner);
    if (!in) continue;
    double price = 0;
    for (std::uint32_t v = 0; v < count; ++v) {
      if (v != number[root]) price += inner[(*in)[v]].price;
    }
    least = std::min(least, price);
  }
  return least;
}

/// Whether it reaches all terminals, each vertex from one that it reaches, and ends at terminals.
bool is_right(std::size_t terminals, std::uint32_t root, const std::vector<PricedArc>& arcs,
              const SteinerTree& tree) {
  std::vector<std::size_t> children(tree.in.size());
  for (std::uint32_t v = 0; v < tree.in.size(); ++v) {
    if (v == root || tree.in[v] == SteinerTree::kNoArc) {
      if (v < terminals && v != root) return false;
      continue;
    }
    ++children[arcs[tree.in[v]].from];
    std::uint32_t at = v;
    for (std::size_t steps = 0; at != root; ++steps) {
      if (steps == tree.in.size() || tree.in[at] == SteinerTree::kNoArc ||
          arcs[tree.in[at]].to != at) {
        return false;
      }
      at = arcs[tree.in[at]].from;
    }
  }
  for (std::size_t v = terminals; v < tree.in.size(); ++v) {
    if (tree.in[v] != SteinerTree::kNoArc && children[v] == 0) return false;
  }
  return true;
}

struct Graph {
  std::size_t terminals;
  std::size_t size;
  std::uint32_t root;
  std::vector<PricedArc> arcs;
};

Graph random_graph(std::uint64_t seed, std::size_t most_others) {
  std::mt19937_64 random(seed);
  Graph graph;
  graph.terminals = 1 + random() % 5;
  graph.size = graph.terminals + random() % (most_others + 1);
  graph.root = static_cast<std::uint32_t>(random() % graph.terminals);
  for (std::uint32_t from = 0; from < graph.size; ++from) {
    for (std::uint32_t to = 0; to < graph.size; ++to) {
      if (from != to && random() % 3 != 0) {
        graph.arcs.push_back({from, to, static_cast<double>(random() % 20)});
      }
    }
  }
  return graph;
}

TEST_CASE("where few vertices may be passed no tree is cheaper") {
  std::size_t found = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const auto [terminals, size, root, arcs] = random_graph(seed, 6);
    const auto tree = SteinerTrees(terminals, size).cheapest(root, arcs);
    const double least = least_price(terminals, size, root, arcs);
    REQUIRE(tree.has_value() == (least < std::numeric_limits<double>::infinity()));
    if (tree) {
      ++found;
      CHECK(is_right(terminals, root, arcs, *tree));
      CHECK(tree->price == Approx(least));
    }
  }
  CHECK(found > 200);
}

TEST_CASE("where many may be passed trees are nearly always the cheapest") {
  std::size_t found = 0;
  std::size_t dearer = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const auto [terminals, size, root, arcs] = random_graph(seed, 10);
    SteinerTrees trees(terminals, size);
    const auto first = trees.cheapest(root, arcs);
    const auto tree = trees.cheapest(root, arcs);  // begins with the last one, too
    const double least = least_price(terminals, size, root, arcs);
    if (tree) {
      ++found;
      CHECK(is_right(terminals, root, arcs, *tree));
      CHECK(tree->price >= least - 1e-9);
      CHECK(tree->price <= first->price + 1e-9);
      dearer += tree->price > least + 1e-9 ? 1 : 0;
    }
  }
  CHECK(found > 150);
  CHECK(dearer * 20 <= found);
}

}  // namespace
}  // namespace rackrail::planner::steiner_tree_test

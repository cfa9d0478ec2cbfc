// Cheapest spanning trees against all that there are.
#include "planner/packing/arborescence.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <random>

namespace rackrail::planner::arborescence_test {
namespace {

/// Whether every vertex leads back to the root along its arc in.
bool spans(std::size_t size, std::uint32_t root, const std::vector<PricedArc>& arcs,
           const std::vector<std::uint32_t>& in) {
  for (std::uint32_t v = 0; v < size; ++v) {
    std::uint32_t at = v;
    for (std::size_t steps = 0; at != root; ++steps) {
      if (steps == size || arcs[in[at]].to != at) return false;
      at = arcs[in[at]].from;
    }
  }
  return true;
}

double price_of(std::uint32_t root, const std::vector<PricedArc>& arcs,
                const std::vector<std::uint32_t>& in) {
  double price = 0;
  for (std::uint32_t v = 0; v < in.size(); ++v) {
    if (v != root) price += arcs[in[v]].price;
  }
  return price;
}

/// The least over every choice of an arc into each vertex; infinite where no choice spans.
double least_price(std::size_t size, std::uint32_t root, const std::vector<PricedArc>& arcs) {
  std::vector<std::vector<std::uint32_t>> into(size);
  for (std::uint32_t a = 0; a < arcs.size(); ++a) {
    into[arcs[a].to].push_back(a);
  }
  into[root] = {0};
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> chosen(size);
  for (const auto& some : into) {
    if (some.empty()) return least;
  }
  for (bool is_done = false; !is_done;) {
    std::vector<std::uint32_t> in;
    for (std::size_t v = 0; v < size; ++v) in.push_back(into[v][chosen[v]]);
    if (spans(size, root, arcs, in)) least = std::min(least, price_of(root, arcs, in));
    std::size_t v = 0;
    while (v < size && ++chosen[v] == into[v].size()) chosen[v++] = 0;
    is_done = v == size;
  }
  return least;
}

TEST_CASE("no spanning tree is cheaper") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const std::size_t size = 2 + random() % 4;
    const auto root = static_cast<std::uint32_t>(random() % size);
    std::vector<PricedArc> arcs;
    for (std::uint32_t from = 0; from < size; ++from) {
      for (std::uint32_t to = 0; to < size; ++to) {
        if (from != to && random() % 10 < 7) {
          arcs.push_back({from, to, static_cast<double>(random() % 9)});
        }
      }
    }
    const double least =
        arcs.empty() ? std::numeric_limits<double>::infinity() : least_price(size, root, arcs);
    const auto in = cheapest_tree(size, root, arcs);
    REQUIRE(in.has_value() == (least < std::numeric_limits<double>::infinity()));
    if (in) {
      CHECK(spans(size, root, arcs, *in));
      CHECK(price_of(root, arcs, *in) == Approx(least));
    }
  }
}

}  // namespace
}  // namespace rackrail::planner::arborescence_test

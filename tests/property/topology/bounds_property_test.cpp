// Bounds on random graphs against other methods: Boost's push-relabel, and all cuts one by one.
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>
#include <catch2/catch.hpp>
#include <limits>
#include <optional>

#include "base/random.hpp"
#include "tests/property/topology/random_topology.hpp"
#include "topology/queries.hpp"
#include "topology/widening.hpp"

namespace rackrail::bounds_property_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::random_topology;

namespace {

constexpr std::uint64_t kSeed = 987654321;

std::int64_t boost_max_flow(const Topology& t, NodeId from, NodeId to) {
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  using Flow = boost::adjacency_list<
      boost::vecS, boost::vecS, boost::directedS, boost::no_property,
      boost::property<
          boost::edge_capacity_t, std::int64_t,
          boost::property<boost::edge_residual_capacity_t, std::int64_t,
                          boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>>;
  Flow graph(t.node_count());
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Link& link = t.link(LinkId(l));
    const auto there = boost::add_edge(link.from.index(), link.to.index(), graph).first;
    const auto back = boost::add_edge(link.to.index(), link.from.index(), graph).first;
    boost::put(boost::edge_capacity, graph, there, link.bandwidth.bytes_per_second());
    boost::put(boost::edge_capacity, graph, back, 0);
    boost::put(boost::edge_reverse, graph, there, back);
    boost::put(boost::edge_reverse, graph, back, there);
  }
  return boost::push_relabel_max_flow(graph, from.index(), to.index());
}

/// What leaves a vertex set, and the ranks in it.
struct Side {
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::int64_t ranks = 0;
};

Side side_of(const Topology& t, std::uint32_t set) {
  Side side;
  const auto has = [set](NodeId v) { return (set >> v.value() & 1U) != 0; };
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Link& link = t.link(LinkId(l));
    if (has(link.from) && !has(link.to)) side.out += link.bandwidth.bytes_per_second();
    if (!has(link.from) && has(link.to)) side.in += link.bandwidth.bytes_per_second();
  }
  for (std::size_t r = 0; r < t.rank_count(); ++r) side.ranks += has(t.node_of(Rank(r))) ? 1 : 0;
  return side;
}

template <typename Visit>
void for_each_cut(const Topology& t, Visit visit) {
  const auto n = static_cast<std::int64_t>(t.rank_count());
  for (std::uint32_t set = 1; set + 1 < (1U << t.node_count()); ++set) {
    const Side side = side_of(t, set);
    if (side.ranks > 0 && side.ranks < n) visit(side);
  }
}

void check_certificate(const Topology& t, const Cut& cut, bool is_entering) {
  std::uint32_t set = 0;
  for (const NodeId v : cut.source_side) set |= 1U << v.value();
  const Side side = side_of(t, set);
  CHECK(static_cast<std::int64_t>(cut.ranks_inside) == side.ranks);
  CHECK(cut.capacity.bytes_per_second() == (is_entering ? side.in : side.out));
  std::int64_t sum = 0;
  for (const LinkId link : cut.links) sum += t.link(link).bandwidth.bytes_per_second();
  CHECK(sum == cut.capacity.bytes_per_second());
}

}  // namespace

TEST_CASE("max-flow equals push-relabel's, and its cut proves it") {
  for (std::uint64_t i = 0; i < 150; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = random_topology(kSeed + i, 12, 8, 1 + static_cast<std::int64_t>(i) * 7919);
    const NodeId from = t.node_of(Rank(0U));
    const NodeId to = t.node_of(Rank(t.rank_count() - 1));
    const MaxFlow flow = max_flow(t, from, to);
    REQUIRE(flow.value.bytes_per_second() == boost_max_flow(t, from, to));
    REQUIRE(flow.cut.capacity == flow.value);
    check_certificate(t, flow.cut, false);
  }
}

TEST_CASE("the all-gather bound is the worst of all cuts, exactly") {
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = random_topology(kSeed + i, 7, 4);
    // The largest ratio p/q by comparing products.
    std::int64_t gather_p = 0;
    std::int64_t gather_q = 1;
    std::int64_t scatter_p = 0;
    std::int64_t scatter_q = 1;
    for_each_cut(t, [&](const Side& side) {
      if (side.ranks * (gather_q / 1000) > gather_p * (side.out / 1000)) {
        gather_p = side.ranks;
        gather_q = side.out;
      }
      if (side.ranks * (scatter_q / 1000) > scatter_p * (side.in / 1000)) {
        scatter_p = side.ranks;
        scatter_q = side.in;
      }
    });
    const AllGatherBound gather = allgather_bound(t);
    REQUIRE(gather.p * (gather_q / 1000) == gather_p * (gather.q / 1000));
    check_certificate(t, gather.cut, false);
    const AllGatherBound scatter = reducescatter_bound(t);
    REQUIRE(scatter.p * (scatter_q / 1000) == scatter_p * (scatter.q / 1000));
    check_certificate(t, scatter.cut, true);
  }
}

TEST_CASE("with reduction in the network all-reduce is bounded by the smallest cut") {
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = random_topology(kSeed + i, 7, 4);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for_each_cut(t, [&](const Side& side) { least = std::min(least, side.out); });
    const AllReduceBound bound = allreduce_bound(t, true);
    REQUIRE(bound.algbw.bytes_per_second() == least);
    REQUIRE(bound.cut.capacity == bound.algbw);
    check_certificate(t, bound.cut, false);
    CHECK(allreduce_bound(t).algbw <= bound.algbw);
  }
}

namespace {

/// The cluster with one link, and its other way, doubled: written out, so that what the library
/// does is not taken for granted.
Topology doubled(const Topology& t, LinkId link) {
  const Link& one = t.link(link);
  std::optional<LinkId> back;
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Link& other = t.link(LinkId(l));
    const bool is_back = other.from == one.to && other.to == one.from;
    if (is_back &&
        (!back || (t.link(*back).bandwidth != one.bandwidth && other.bandwidth == one.bandwidth))) {
      back = LinkId(l);
    }
  }
  Topology wider(t.name());
  for (std::size_t v = 0; v < t.node_count(); ++v) wider.add_node(t.node(NodeId(v)));
  for (std::size_t r = 0; r < t.rank_count(); ++r) wider.add_rank(t.node_of(Rank(r)));
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    Link copy = t.link(LinkId(l));
    if (LinkId(l) == link || LinkId(l) == back) copy.bandwidth = copy.bandwidth * 2;
    wider.add_link(copy);
  }
  return wider;
}

/// Of all-gather (or, reversed, reduce-scatter), by all cuts one by one, in bytes per second.
double bound_by_cuts(const Topology& t, bool reversed) {
  double least = std::numeric_limits<double>::infinity();
  for_each_cut(t, [&](const Side& side) {
    least = std::min(least, static_cast<double>(reversed ? side.in : side.out) /
                                static_cast<double>(side.ranks));
  });
  return least * static_cast<double>(t.rank_count());
}

}  // namespace

TEST_CASE("the link of a cut whose width buys most, and what it buys, are those of all cuts") {
  int gains = 0;
  int later = 0;  // not the first link of the cut
  int together = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const Topology t = random_topology(kSeed + i, 6, 3);
    for (const bool reversed : {false, true}) {
      CAPTURE(kSeed, i, reversed);
      const auto bound_of = [reversed](const Topology& wider) {
        return (reversed ? reducescatter_bound(wider) : allgather_bound(wider)).algbw;
      };
      const AllGatherBound bound = reversed ? reducescatter_bound(t) : allgather_bound(t);
      const LinkWidening widening = best_widening(t, bound.cut.links, bound.algbw, bound_of);
      const auto stated = static_cast<double>(widening.algbw.bytes_per_second());
      CHECK(stated == Approx(bound_by_cuts(doubled(t, widening.link), reversed)).epsilon(1e-8));
      for (const LinkId link : bound.cut.links) {
        CHECK(bound_by_cuts(doubled(t, link), reversed) <= stated * (1 + 1e-8));
      }
      gains += widening.algbw > bound.algbw ? 1 : 0;
      later += widening.link != bound.cut.links.front() ? 1 : 0;
      if (widening.algbw > bound.algbw) continue;
      const auto all = joint_widening(t, bound.cut.links, bound.algbw, bound_of);
      // All links of these graphs are of one tier.
      REQUIRE(all);
      const auto whole = static_cast<double>(all->algbw.bytes_per_second());
      CHECK(whole > static_cast<double>(bound.algbw.bytes_per_second()));
      if (all->links.size() == t.link_count()) {
        CHECK(whole == Approx(2 * bound_by_cuts(t, reversed)).epsilon(1e-8));
      }
      ++together;
    }
  }
  CHECK(gains > 100);
  CHECK(later > 10);
  CHECK(together > 10);
}

TEST_CASE("all-reduce by reduce-scatter and all-gather respects the bound of all-reduce") {
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = random_topology(kSeed + i, 9, 6);
    const auto seconds_per_byte = [](Bandwidth b) {
      return 1.0 / static_cast<double>(b.bytes_per_second());
    };
    const double reached =
        seconds_per_byte(allgather_bound(t).algbw) + seconds_per_byte(reducescatter_bound(t).algbw);
    CHECK(seconds_per_byte(allreduce_bound(t).algbw) <= reached * (1 + 1e-6));
  }
}

}  // namespace rackrail::bounds_property_test

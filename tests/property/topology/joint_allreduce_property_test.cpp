// The optimum of all-gather, reduce-scatter and all-reduce against the same program written out in
// two ways: with one flow per rank, and with a row for every cut there is.
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "tests/property/topology/random_topology.hpp"
#include "tests/support/skip.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"

namespace rackrail::joint_allreduce_property_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::random_topology;

namespace {

constexpr std::uint64_t kSeed = 31415926;
constexpr std::int64_t kUnit = 1'000'000'000;
constexpr double kUnbounded = 1e6;

/// Adds to the program: from every rank to `sink` flows the root weight of each, inside `rates`.
void add_flow(LinearProgram& program, const Topology& t, const std::vector<int>& roots,
              const std::vector<int>& rates, std::size_t sink, bool reversed) {
  std::vector<LinearProgram::Terms> balance(t.node_count());
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Link& link = t.link(LinkId(l));
    const int flow = program.add_variable(kUnbounded, 0);
    program.add_row({{rates[l], 1}, {flow, -1}}, 0);
    balance[(reversed ? link.to : link.from).index()].emplace_back(flow, -1.0);
    balance[(reversed ? link.from : link.to).index()].emplace_back(flow, 1.0);
  }
  for (std::size_t v = 0; v < t.node_count(); ++v) {
    const std::optional<Rank> rank = t.rank_of(NodeId(v));
    if (rank && rank->index() == sink) continue;
    if (rank) balance[v].emplace_back(roots[rank->index()], 1.0);
    program.add_row(balance[v], 0, true);
  }
}

double rate_of(const Link& link) {
  return static_cast<double>(link.bandwidth.bytes_per_second()) / kUnit;
}

/// Whether a switch must pass on what it receives.
using Passes = bool (*)(const Node&);
bool always(const Node&) { return true; }
bool never(const Node&) { return false; }
bool unless_it_multicasts(const Node& node) { return !node.multicasts; }
bool unless_it_reduces(const Node& node) { return !node.reduces; }

/// Such switches pass on what they receive.
void conserve(LinearProgram& program, const Topology& t, const std::vector<int>& rates,
              Passes passes = always) {
  for (std::size_t v = 0; v < t.node_count(); ++v) {
    if (t.rank_of(NodeId(v)) || !passes(t.node(NodeId(v)))) continue;
    LinearProgram::Terms terms;
    for (const LinkId l : t.links_into(NodeId(v))) terms.emplace_back(rates[l.index()], 1.0);
    for (const LinkId l : t.links_out_of(NodeId(v))) terms.emplace_back(rates[l.index()], -1.0);
    program.add_row(terms, 0, true);
  }
}

/// Adds to the program: what the ranks of any set of vertices are roots of, its links bring out, or
/// in, at `rates`. None is tried that has no rank or all of them.
void add_cuts(LinearProgram& program, const Topology& t, const std::vector<int>& roots,
              const std::vector<int>& rates, bool reversed) {
  for (std::uint32_t set = 1; set + 1 < (1U << t.node_count()); ++set) {
    const auto has = [set](NodeId v) { return (set >> v.value() & 1U) != 0; };
    std::size_t ranks = 0;
    std::map<int, double> of_roots;  // which may all be one variable
    for (std::size_t r = 0; r < t.rank_count(); ++r) {
      if (!has(t.node_of(Rank(r)))) continue;
      of_roots[roots[r]] -= 1;
      ++ranks;
    }
    if (ranks == 0 || ranks == t.rank_count()) continue;
    LinearProgram::Terms terms(of_roots.begin(), of_roots.end());
    for (std::size_t l = 0; l < t.link_count(); ++l) {
      const Link& link = t.link(LinkId(l));
      const NodeId inside = reversed ? link.to : link.from;
      const NodeId outside = reversed ? link.from : link.to;
      if (has(inside) && !has(outside)) terms.emplace_back(rates[l], 1.0);
    }
    program.add_row(terms, 0);
  }
}

/// In which way the data of roots is seen to arrive.
enum class By : std::uint8_t { kFlows, kAllCuts };

void add_arrival(LinearProgram& program, const Topology& t, const std::vector<int>& roots,
                 const std::vector<int>& rates, bool reversed, By by) {
  if (by == By::kAllCuts) {
    add_cuts(program, t, roots, rates, reversed);
    return;
  }
  for (std::size_t sink = 0; sink < t.rank_count(); ++sink) {
    add_flow(program, t, roots, rates, sink, reversed);
  }
}

/// Of every rank's own data, what reaches all others per second; reversed, of what is summed at
/// every rank.
double gather_optimum(const Topology& t, By by, Passes passes = always, bool reversed = false) {
  LinearProgram program;
  const std::vector<int> roots(t.rank_count(), program.add_variable(kUnbounded, 1));
  std::vector<int> rates;
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    rates.push_back(program.add_variable(rate_of(t.link(LinkId(l))), 0));
  }
  conserve(program, t, rates, passes);
  add_arrival(program, t, roots, rates, reversed, by);
  return program.maximise().value();
}

double joint_optimum(const Topology& t, By by, Passes of_broadcast, Passes of_reduction) {
  LinearProgram program;
  std::vector<int> roots;
  std::vector<int> a;
  std::vector<int> r;
  for (std::size_t i = 0; i < t.rank_count(); ++i) {
    roots.push_back(program.add_variable(kUnbounded, 1));
  }
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const double rate = rate_of(t.link(LinkId(l)));
    a.push_back(program.add_variable(rate, 0));
    r.push_back(program.add_variable(rate, 0));
    program.add_row({{a.back(), -1}, {r.back(), -1}}, -rate);
  }
  conserve(program, t, a, of_broadcast);
  conserve(program, t, r, of_reduction);
  add_arrival(program, t, roots, a, false, by);
  add_arrival(program, t, roots, r, true, by);
  return program.maximise().value();
}

}  // namespace

/// The same with every link as wide the other way.
Topology both_ways(Topology t) {
  for (std::size_t l = t.link_count(); l-- > 0;) {
    Link back = t.link(LinkId(l));
    std::swap(back.from, back.to);
    t.add_link(back);
  }
  return t;
}

/// All links the other way.
Topology turned_round(const Topology& t) {
  Topology turned(t.name());
  for (std::size_t v = 0; v < t.node_count(); ++v) turned.add_node(t.node(NodeId(v)));
  for (std::size_t r = 0; r < t.rank_count(); ++r) turned.add_rank(t.node_of(Rank(r)));
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    Link link = t.link(LinkId(l));
    std::swap(link.from, link.to);
    turned.add_link(link);
  }
  return turned;
}

double rate(const AllGatherBound& bound) {
  return static_cast<double>(bound.q) / static_cast<double>(bound.p) / kUnit;
}

TEST_CASE("all cuts and flows give the same bound of all-gather and reduce-scatter") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  int beyond_cuts = 0;
  int copies_gain = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = random_topology(kSeed + i, 7, 4, kUnit);
    // Where a switch can send more than it receives, or the other way round, cuts do not tell all.
    const AllGatherBound optimum = allgather_optimum(t);
    CHECK_FALSE(optimum.may_be_out_of_reach);
    REQUIRE(optimum.p > 0);
    CHECK(rate(optimum) == Approx(gather_optimum(t, By::kFlows)).epsilon(1e-6));
    CHECK(rate(optimum) == Approx(gather_optimum(t, By::kAllCuts)).epsilon(1e-6));
    CHECK(rate(allgather_bound(t)) >= rate(optimum) * (1 - 1e-9));
    CHECK(optimum.reason.empty() == (allgather_bound(t).algbw == optimum.algbw));
    CHECK(allgather_optimum(with_wider_link(t, optimum.widest)).algbw >= optimum.algbw);
    beyond_cuts += optimum.reason.empty() ? 0 : 1;

    const AllGatherBound scatter = reducescatter_optimum(t);
    CHECK(rate(scatter) == Approx(gather_optimum(t, By::kFlows, always, true)).epsilon(1e-6));
    CHECK(rate(scatter) == Approx(gather_optimum(t, By::kAllCuts, always, true)).epsilon(1e-6));
    const AllGatherBound turned = reducescatter_optimum(turned_round(t));
    CHECK(turned.p == optimum.p);
    CHECK(turned.q == optimum.q);

    // Switches that multicast gain where they cannot pass on all that they could send.
    const AllGatherBound with_copies = allgather_optimum(t, true);
    CHECK(rate(with_copies) == Approx(gather_optimum(t, By::kFlows, never)).epsilon(1e-6));
    CHECK(rate(with_copies) == Approx(gather_optimum(t, By::kAllCuts, never)).epsilon(1e-6));
    CHECK(rate(with_copies) >= rate(optimum) * (1 - 1e-9));
    CHECK(rate(with_copies) <= rate(allgather_bound(t)) * (1 + 1e-9));
    const AllGatherBound with_sums = reducescatter_optimum(turned_round(t), true);
    CHECK(with_sums.p == with_copies.p);
    CHECK(with_sums.q == with_copies.q);
    copies_gain += rate(with_copies) > rate(optimum) * 1.001 ? 1 : 0;

    const Topology even = both_ways(t);
    CHECK_FALSE(allgather_bound(even).may_be_out_of_reach);
    CHECK(rate(allgather_bound(even)) == Approx(gather_optimum(even, By::kFlows)).epsilon(1e-6));
  }
  CHECK(beyond_cuts > 0);
  CHECK(copies_gain > 0);
}

TEST_CASE("all cuts and flows give the same joint optimum") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  for (std::uint64_t i = 0; i < 200; ++i) {
    for (const bool in_network : {false, true}) {
      CAPTURE(kSeed, i, in_network);
      const Topology t = random_topology(kSeed + i, 6, 4, kUnit);
      const Passes passes = in_network ? never : always;
      const double expected = joint_optimum(t, By::kFlows, passes, passes);
      CHECK(joint_optimum(t, By::kAllCuts, passes, passes) == Approx(expected).epsilon(1e-7));
      const double simple =
          static_cast<double>(allreduce_bound(t, in_network).algbw.bytes_per_second()) / kUnit;
      const AllReduceBound bound = joint_allreduce_bound(t, in_network);
      const double found = static_cast<double>(bound.algbw.bytes_per_second()) / kUnit;
      // The simple bounds hold for every all-reduce, so also for the best one.
      CHECK(expected <= simple * (1 + 1e-6));
      CHECK(found == Approx(expected).epsilon(1e-6));
      REQUIRE(bound.p > 0);
      CHECK(std::gcd(bound.p, bound.q) == 1);
      CHECK(static_cast<double>(bound.q) / static_cast<double>(bound.p) / kUnit ==
            Approx(expected).epsilon(1e-9));
      REQUIRE(bound.widest.has_value());
      CHECK(joint_allreduce_bound(with_wider_link(t, *bound.widest), in_network).algbw >=
            bound.algbw);
    }
  }
}

/// Each switch multicasts, reduces, both or neither.
Topology with_abilities(Topology t, std::uint64_t seed) {
  std::uint64_t counter = 0;
  for (std::size_t v = 0; v < t.node_count(); ++v) {
    if (t.rank_of(NodeId(v))) continue;
    Node node = t.node(NodeId(v));
    const std::uint64_t bits = random_bits(seed, counter++);
    node.multicasts = (bits & 1U) != 0;
    node.reduces = (bits & 2U) != 0;
    t.set_node_properties(NodeId(v), node);
  }
  return t;
}

TEST_CASE("where each switch has abilities of its own, all cuts and flows give the same bounds") {
  if (!LinearProgram::is_available()) RACKRAIL_SKIP("no solver for linear programs in this build");
  int mixed = 0;
  int between = 0;  // more than without abilities, less than with all of them
  for (std::uint64_t i = 0; i < 200; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = with_abilities(random_topology(kSeed + i, 6, 4, kUnit), kSeed + i);
    if (!says_what_switches_do(t)) continue;
    ++mixed;
    const auto rate_of_all = [](const AllReduceBound& bound) {
      return static_cast<double>(bound.algbw.bytes_per_second()) / kUnit;
    };
    const AllGatherBound gather = allgather_optimum(t, true);
    const AllGatherBound scatter = reducescatter_optimum(t, true);
    const double found = rate_of_all(joint_allreduce_bound(t, true));
    for (const By by : {By::kFlows, By::kAllCuts}) {
      CHECK(rate(gather) == Approx(gather_optimum(t, by, unless_it_multicasts)).epsilon(1e-6));
      CHECK(rate(scatter) == Approx(gather_optimum(t, by, unless_it_reduces, true)).epsilon(1e-6));
      CHECK(found ==
            Approx(joint_optimum(t, by, unless_it_multicasts, unless_it_reduces)).epsilon(1e-6));
    }
    const double none = rate_of_all(joint_allreduce_bound(t));
    const double all = joint_optimum(t, By::kFlows, never, never);
    CHECK(found >= none * (1 - 1e-6));
    CHECK(found <= all * (1 + 1e-6));
    between += found > none * 1.001 && found < all * 0.999 ? 1 : 0;
  }
  CHECK(mixed > 100);
  CHECK(between > 0);
}

}  // namespace rackrail::joint_allreduce_property_test

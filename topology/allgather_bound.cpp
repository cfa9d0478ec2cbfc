// The exact bound of all-gather and reduce-scatter.
//
// Model. Each of n ranks holds M/n bytes that all others need. The shards born inside a vertex set
// S that lacks some rank must leave it, so T ≥ (M/n) · |ranks in S| / B⁺(S); the bound is the
// largest such ratio p/q, and a packing of trees reaches it (Zhao et al., "ForestColl", arXiv
// 2402.06787). Reduce-scatter is all-gather on the reversed graph.
//
// Oracle. Give every rank an arc of capacity q from a new source and multiply the links by p. A cut
// that separates rank v carries q · (ranks outside S) + p · B⁺(S), which is below n·q exactly when
// |ranks in S| / B⁺(S) > p/q. So the ratio is large enough for v iff maxflow(source → v) ≥ n·q.
//
// Discrete Newton. Start with the cut around all vertices but the rank with the least capacity into
// it. Whenever a max-flow falls short, its source side is a cut with a larger ratio; take that one.
// A larger ratio only makes the links wider against the sources, so a rank that passed stays
// passed: a flow for every rank that is not like one before (alike_ranks.hpp) and one more for each
// step, all on one structure, each capped at n·q. In integers throughout; the last cut is the
// certificate.
//
// A switch passes on what it receives, once: where its links into it and out of it differ in sum,
// no trees may be there that fill the binding cut. What is, is the optimum of a linear program
// (rate_program.hpp), in which switches that multicast, or reduce for a reduce-scatter, may pass on
// more or less. Every shard leaves a set through its cut all the same, so cuts hold for them, too.
#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "topology/alike_ranks.hpp"
#include "topology/cuts.hpp"
#include "topology/queries.hpp"
#include "topology/rate_program.hpp"

namespace rackrail::topology {
namespace {

/// Whether each switch can send just as much as it can receive.
bool switches_send_what_they_receive(const Topology& topology) {
  std::vector<std::int64_t> surplus(topology.node_count(), 0);
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    surplus[link.to.index()] += link.bandwidth.bytes_per_second();
    surplus[link.from.index()] -= link.bandwidth.bytes_per_second();
  }
  for (std::size_t v = 0; v < surplus.size(); ++v) {
    if (surplus[v] != 0 && !topology.rank_of(NodeId(v))) {
      return false;
    }
  }
  return true;
}

struct Ratio {
  std::int64_t p = 0;  // ranks behind the cut
  std::int64_t q = 1;  // its capacity
};

Ratio ratio_of(const Cut& cut) {
  const auto ranks = static_cast<std::int64_t>(cut.ranks_inside);
  const std::int64_t capacity = cut.capacity.bytes_per_second();
  const std::int64_t common = std::gcd(ranks, capacity);
  return {ranks / common, capacity / common};
}

bool is_larger(const Ratio& a, const Ratio& b) {
  return static_cast<Capacity>(a.p) * b.q > static_cast<Capacity>(b.p) * a.q;
}

/// The cut around everything but the rank that least can enter.
Cut narrowest_rank(const Topology& topology, bool reversed) {
  Bandwidth least(std::numeric_limits<std::int64_t>::max());
  std::vector<bool> side;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId v = topology.node_of(Rank(r));
    Bandwidth sum;
    for (const LinkId id : reversed ? topology.links_out_of(v) : topology.links_into(v)) {
      const Link& link = topology.link(id);
      if (link.kind != LinkKind::kShared) sum = sum + link.bandwidth;
    }
    if (sum < least) {
      least = sum;
      side.assign(topology.node_count(), true);
      side[v.index()] = false;
    }
  }
  return cut_around(topology, side, reversed);
}

class BoundSearch {
 public:
  BoundSearch(const Topology& topology, bool reversed)
      : topology_(topology),
        reversed_(reversed),
        network_(flow_network_of(topology, 1, reversed)),
        source_(network_.add_vertex()) {
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      source_arcs_.push_back(network_.add_arc(source_, topology.node_of(Rank(r)).value(), 0));
    }
    take(narrowest_rank(topology, reversed));
  }

  AllGatherBound run() {
    const auto n = static_cast<Capacity>(topology_.rank_count());
    const std::vector<Rank> alike = alike_ranks(topology_);
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      if (alike[r] != Rank(r)) {
        continue;  // that one has passed, so this one does
      }
      const auto sink = topology_.node_of(Rank(r)).value();
      for (bool has_passed = false; !has_passed;) {
        network_.reset();
        has_passed = network_.augment(source_, sink, n * ratio_.q) == n * ratio_.q;
        if (!has_passed) step();
      }
    }
    AllGatherBound bound;
    bound.p = ratio_.p;
    bound.q = ratio_.q;
    bound.cut = cut_;
    const Capacity algbw = n * ratio_.q / ratio_.p;
    bound.algbw = Bandwidth(static_cast<std::int64_t>(
        std::min(algbw, static_cast<Capacity>(std::numeric_limits<std::int64_t>::max()))));
    bound.trees_per_root = trees_per_root();
    bound.widest = cut_.links.front();
    bound.may_be_out_of_reach = !switches_send_what_they_receive(topology_);
    return bound;
  }

 private:
  void step() {
    std::vector<bool> side = network_.reachable_from(source_);
    side.pop_back();  // the source itself
    Cut cut = cut_around(topology_, side, reversed_);
    if (!is_larger(ratio_of(cut), ratio_)) {
      throw Error("all-gather bound: a flow fell short without a tighter cut");
    }
    take(std::move(cut));
  }

  void take(Cut cut) {
    cut_ = std::move(cut);
    ratio_ = ratio_of(cut_);
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      if (link.kind == LinkKind::kShared) continue;
      network_.set_capacity(static_cast<FlowNetwork::Arc>(2 * l),
                            static_cast<Capacity>(link.bandwidth.bytes_per_second()) * ratio_.p);
    }
    for (const FlowNetwork::Arc arc : source_arcs_) network_.set_capacity(arc, ratio_.q);
  }

  // With U = p / gcd(q, all bandwidths), every link's bandwidth times U is an integer number of
  // trees, and U · q/p of them are rooted at each rank.
  std::int64_t trees_per_root() const {
    std::int64_t common = ratio_.q;
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      if (link.kind != LinkKind::kShared) {
        common = std::gcd(common, link.bandwidth.bytes_per_second());
      }
    }
    return ratio_.q / common;
  }

  const Topology& topology_;
  bool reversed_;
  FlowNetwork network_;
  FlowNetwork::Vertex source_;
  std::vector<FlowNetwork::Arc> source_arcs_;
  Cut cut_;
  Ratio ratio_;
};

constexpr std::size_t kMostRanksOfProgram = 256;

/// `bound`, or what less than it is the most that trees reach.
AllGatherBound optimum_below(AllGatherBound bound, const Topology& topology,
                             RateProgram::Trees trees, bool in_network) {
  const std::size_t ranks = topology.rank_count();
  if (!bound.may_be_out_of_reach || ranks > kMostRanksOfProgram || !LinearProgram::is_available()) {
    return bound;
  }
  RateProgram program(topology, trees, abilities_of(topology, in_network));
  const std::optional<double> optimum = program.solve(0);
  if (!optimum) return bound;
  bound.may_be_out_of_reach = !program.is_reached();
  JointAllReduce rates = program.rates();
  bound.rates =
      std::move(trees == RateProgram::Trees::kReduction ? rates.reduction : rates.broadcast);
  if (in_network) {
    bound.trees_per_root = 0;  // counted for switches that pass on what they receive
  }
  if (*optimum >= static_cast<double>(bound.algbw.bytes_per_second()) * (1 - kRateTolerance)) {
    return bound;
  }
  // n ranks receive X bytes per second of M: M/n · n/X seconds.
  bound.algbw = Bandwidth(static_cast<std::int64_t>(*optimum));
  bound.p = 0;
  bound.q = 1;
  if (const std::optional<ExactRate> exact = program.exact()) {
    bound.widest = exact->widest.value_or(bound.widest);
    if (const auto fraction =
            reduced(exact->price * static_cast<Capacity>(ranks), exact->capacity)) {
      std::tie(bound.p, bound.q) = *fraction;
      bound.algbw =
          Bandwidth(static_cast<std::int64_t>(static_cast<Capacity>(ranks) * bound.q / bound.p));
    }
  }
  bound.trees_per_root = 0;
  bound.reason = "what switches pass on: " + to_string(bound.algbw);
  if (const std::string cuts = program.binding_cuts_text(); !cuts.empty()) {
    bound.reason += "; " + cuts;
  }
  return bound;
}

}  // namespace

AllGatherBound allgather_bound(const Topology& topology) {
  require_collective(topology);
  return BoundSearch(topology, false).run();
}

AllGatherBound reducescatter_bound(const Topology& topology) {
  require_collective(topology);
  return BoundSearch(topology, true).run();
}

AllGatherBound allgather_optimum(const Topology& topology, bool in_network) {
  return optimum_below(allgather_bound(topology), topology, RateProgram::Trees::kBroadcast,
                       in_network);
}

AllGatherBound reducescatter_optimum(const Topology& topology, bool in_network) {
  return optimum_below(reducescatter_bound(topology), topology, RateProgram::Trees::kReduction,
                       in_network);
}

}  // namespace rackrail::topology

// The joint optimum of all-reduce: reduction and broadcast share the links and choose their roots.
//
// Model. Of every byte, x_v is summed at rank v and broadcast from it (X = Σ x_v bytes per second
// in all). Link e carries r_e of the reduction and a_e of the broadcast, a_e + r_e ≤ b_e. A
// broadcast of these rates exists iff every cut lets enough through (Edmonds' branchings; switches
// that cannot copy must pass on exactly what they receive, and splitting off then keeps the
// condition; Zhao et al., "ForestColl", arXiv 2402.06787):
//     Σ a over links that leave S ≥ Σ x_v over ranks in S,   for every S without some rank,
// and the same for r on the reversed graph. A switch that multicasts is free of the conservation of
// a, one that reduces of that of r. The largest X bounds the algorithm bandwidth of all-reduce.
//
// Method. The cuts are too many to write down, so they are added when they are violated: solve the
// linear program with those that are known, find for each rank a smallest cut between the roots and
// it (a max-flow on the solution's rates), add those that are too small, repeat. Every intermediate
// optimum is a relaxation and hence a valid bound, so stopping early costs tightness only. The cuts
// around ranks, machines and racks are there from the start.
//
// Reduce-scatter followed by all-gather reaches a rate of its own, where every switch can send as
// much as it receives; where the simple bounds or an intermediate optimum come down to it, the
// answer is found. That is so on most symmetric clusters, of any size, before the first linear
// program.
//
// Precision: rates are scaled to the widest link, and the solver's result is exact to about 1e-6.
// The prices of its rows, made whole numbers, prove a bound in integers, which is the answer where
// it is as near as that can tell (1e-9).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "topology/cuts.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"
#include "topology/tiers.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kMostRanks = 256;
constexpr std::size_t kMostRanksOfRates = 64;     // from which trees are packed
constexpr std::size_t kMostRanksLookedAt = 1024;  // whether the simple bound can be reached
// Effort is counted in entries of the linear programs solved, so that it is the same on every
// machine: seconds for the largest, milliseconds for the small ones, which always run to the end.
constexpr double kMostWork = 1e7;
constexpr double kTolerance = 1e-6;  // the solver itself keeps rows to 1e-7
constexpr double kFlowUnits = 1e15;  // integers per scaled rate in the max-flows

bool is_way(const Link& link) { return link.kind != LinkKind::kShared; }

/// Which switches can work on what passes. Where no vertex says that it can, all can that stand in
/// the network or in a GPU fabric.
struct Abilities {
  std::vector<bool> multicasts;  // by vertex; ranks always
  std::vector<bool> reduces;
};

Abilities abilities_of(const Topology& topology, bool in_network) {
  Abilities able{std::vector<bool>(topology.node_count()),
                 std::vector<bool>(topology.node_count())};
  const bool is_said = says_what_switches_do(topology);
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const Node& node = topology.node(NodeId(v));
    const bool is_rank = topology.rank_of(NodeId(v)).has_value();
    const bool is_switch = node.kind == NodeKind::kNvSwitch || node.kind == NodeKind::kTor ||
                           node.kind == NodeKind::kSpine || node.kind == NodeKind::kCore ||
                           node.kind == NodeKind::kSwitch;
    able.multicasts[v] = is_rank || (in_network && (is_said ? node.multicasts : is_switch));
    able.reduces[v] = is_rank || (in_network && (is_said ? node.reduces : is_switch));
  }
  return able;
}

/// X ≤ capacity / price, in bytes per second.
struct ExactOptimum {
  Capacity capacity = 0;
  Capacity price = 1;
  std::optional<LinkId> widest;  ///< the link that is worth most
};

class JointOptimum {
 public:
  JointOptimum(const Topology& topology, bool in_network)
      : topology_(topology), broadcast_(topology, false), reduction_(topology, true) {
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      scale_ = std::max(scale_, rate(l));
    }
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      roots_.push_back(program_.add_variable(kUnbounded, 1));
    }
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const double upper = is_way(topology.link(LinkId(l))) ? rate(l) / scale_ : 0;
      const int a = program_.add_variable(upper, 0);
      const int r = program_.add_variable(upper, 0);
      broadcast_.rates.push_back(a);
      reduction_.rates.push_back(r);
      program_.add_row({{a, -1}, {r, -1}}, -upper);
    }
    const Abilities able = abilities_of(topology, in_network);
    conserve(broadcast_, able.multicasts);
    conserve(reduction_, able.reduces);
    add_natural_cuts();
  }

  /// Bytes per second; none when the solver gave up. Nothing below `reachable` is looked for.
  std::optional<double> solve(double reachable) {
    for (double work = 0; work < kMostWork;) {
      const std::optional<double> total = program_.maximise();
      if (!total) return std::nullopt;
      const double optimum = *total * scale_;
      if (optimum <= reachable * (1 + kTolerance)) {
        best_ = optimum;
        is_reached_ = true;
        return reachable;
      }
      if (optimum < best_ * (1 - kTolerance)) solutions_ = 0;
      best_ = optimum;
      take_solution();
      Separation cuts = separate(*total);
      if (cuts == Separation::kKnown) {
        solutions_ = 0;
        take_solution();
        cuts = separate(*total);
      }
      if (cuts != Separation::kNew) {
        is_reached_ = true;
        break;
      }
      work += static_cast<double>(cuts_.size()) * static_cast<double>(2 * topology_.link_count());
    }
    return best_;
  }

  /// Whether no cut is in the way of what solve() found: else it was broken off, at a bound.
  bool is_reached() const { return is_reached_; }

  /// The cuts that the last optimum is bound by, those first that would give most if they let more
  /// through; what is on both lists of a cut and its complement is there once.
  std::vector<std::string> binding_cuts() const {
    std::map<std::string, double> prices;
    for (const CutRow& cut : cuts_) {
      if (const double price = program_.price(cut.row); price > kTolerance) {
        prices[describe(topology_, cut_around(topology_, cut.side, cut.is_reversed),
                        cut.is_reversed)] += price;
      }
    }
    std::vector<std::string> names;
    for (const auto& [name, price] : prices) {
      names.push_back(name);
    }
    std::ranges::stable_sort(names, std::greater<>(),
                             [&](const std::string& name) { return prices.at(name); });
    return names;
  }

  /// The optimum as a fraction, by prices that prove it: none where they are no fractions of small
  /// whole numbers, or the solver is off by more than they can be.
  ///
  /// With a price for each cut, and for what a switch passes on more than it receives (of either
  /// sign), a link is worth the larger of what a unit of broadcast and one of reduction cost on it.
  /// If every root pays at least m for the cuts that it is in, X ≤ Σ worth · capacity / m (weak
  /// duality). That holds for any prices; those of the optimum, made whole numbers by a common
  /// factor, reach it.
  std::optional<ExactOptimum> exact() const {
    const std::optional<std::int64_t> factor = common_factor();
    if (!factor) return std::nullopt;
    const auto whole = [&](int row) {
      return static_cast<Capacity>(
          std::llround(program_.price(row) * static_cast<double>(*factor)));
    };
    std::vector<Capacity> broadcast(topology_.link_count());
    std::vector<Capacity> reduction(topology_.link_count());
    std::vector<Capacity> paid(roots_.size());
    for (const CutRow& cut : cuts_) {
      const Capacity price = std::max<Capacity>(0, whole(cut.row));
      if (price == 0) continue;
      const Half& half = cut.is_reversed ? reduction_ : broadcast_;
      std::vector<Capacity>& on_links = cut.is_reversed ? reduction : broadcast;
      for (std::size_t l = 0; l < on_links.size(); ++l) {
        const Link& link = topology_.link(LinkId(l));
        if (cut.side[half.from(link).index()] && !cut.side[half.to(link).index()]) {
          on_links[l] += price;
        }
      }
      for (std::size_t r = 0; r < paid.size(); ++r) {
        if (cut.side[topology_.node_of(Rank(r)).index()]) paid[r] += price;
      }
    }
    const Capacity least = *std::min_element(paid.begin(), paid.end());
    if (least <= 0) return std::nullopt;
    ExactOptimum optimum{0, least, std::nullopt};
    Capacity most = 0;
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      if (!is_way(link)) continue;
      const auto balance = [&](const Half& half, NodeId v) {
        const std::optional<int> row = half.balances[v.index()];
        return row ? whole(*row) : Capacity{0};
      };
      const auto worth = [&](const Half& half, Capacity cuts) {
        return cuts + balance(half, link.to) - balance(half, link.from);
      };
      const Capacity price =
          std::max({Capacity{0}, worth(broadcast_, broadcast[l]), worth(reduction_, reduction[l])});
      optimum.capacity += price * link.bandwidth.bytes_per_second();
      if (price > most) {
        most = price;
        optimum.widest = LinkId(l);
      }
    }
    constexpr double kSame = 1e-9;
    const double rate = static_cast<double>(optimum.capacity) / static_cast<double>(least);
    if (!(std::abs(rate - best_) <= kSame * best_)) return std::nullopt;
    return optimum;
  }

  /// Rates that have the last optimum.
  JointAllReduce rates() const {
    JointAllReduce rates;
    for (const int root : roots_) {
      rates.roots.push_back(rate_of(root) * scale_);
      rates.algbw += rates.roots.back();
    }
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      rates.broadcast.push_back(rate_of(broadcast_.rates[l]) * scale_);
      rates.reduction.push_back(rate_of(reduction_.rates[l]) * scale_);
    }
    return rates;
  }

 private:
  static constexpr double kUnbounded = 1e6;  // no rank can root more than all links carry

  /// Broadcast, or reduction as a broadcast on the reversed graph.
  struct Half {
    Half(const Topology& topology, bool reversed)
        : is_reversed(reversed),
          network(flow_network_of(topology, 0, reversed)),
          source(network.add_vertex()) {
      for (std::size_t r = 0; r < topology.rank_count(); ++r) {
        root_arcs.push_back(network.add_arc(source, topology.node_of(Rank(r)).value(), 0));
      }
    }
    NodeId from(const Link& link) const { return is_reversed ? link.to : link.from; }
    NodeId to(const Link& link) const { return is_reversed ? link.from : link.to; }

    bool is_reversed;
    FlowNetwork network;
    FlowNetwork::Vertex source;
    std::vector<FlowNetwork::Arc> root_arcs;
    std::vector<int> rates;                    // variable of each link
    std::vector<std::optional<int>> balances;  // row of each vertex that passes on what it receives
    std::set<std::vector<bool>> cut_off;       // sides of its cuts in the program
  };

  /// Which cuts rates violate: such as are in the program where the mean of solutions does, as the
  /// first may come from before they were.
  enum class Separation { kNone, kKnown, kNew };

  struct CutRow {
    int row;
    std::vector<bool> side;
    bool is_reversed;
  };

  /// The least number by which all prices become whole.
  std::optional<std::int64_t> common_factor() const {
    constexpr std::int64_t kMostFactor = 5000;
    constexpr double kWhole = 1e-6;
    std::vector<double> prices;
    const auto add = [&](int row) {
      if (std::abs(program_.price(row)) > kWhole) prices.push_back(program_.price(row));
    };
    for (const CutRow& cut : cuts_) add(cut.row);
    for (const Half* half : {&broadcast_, &reduction_}) {
      for (const std::optional<int>& row : half->balances) {
        if (row) add(*row);
      }
    }
    for (std::int64_t factor = 1; factor <= kMostFactor; ++factor) {
      const auto n = static_cast<double>(factor);
      if (std::ranges::all_of(prices, [n](double price) {
            return std::abs(price * n - std::round(price * n)) <= kWhole * n;
          })) {
        return factor;
      }
    }
    return std::nullopt;
  }

  double rate(std::size_t link) const {
    return static_cast<double>(topology_.link(LinkId(link)).bandwidth.bytes_per_second());
  }

  void conserve(Half& half, const std::vector<bool>& is_free) {
    std::vector<LinearProgram::Terms> balance(topology_.node_count());
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      if (!is_way(link)) continue;
      balance[link.from.index()].emplace_back(half.rates[l], -1.0);
      balance[link.to.index()].emplace_back(half.rates[l], 1.0);
    }
    for (std::size_t v = 0; v < balance.size(); ++v) {
      half.balances.emplace_back();
      if (!is_free[v] && !balance[v].empty()) {
        half.balances.back() = program_.add_row(balance[v], 0, true);
      }
    }
  }

  /// False where it is there.
  bool add_cut(Half& half, const std::vector<bool>& side) {
    if (!half.cut_off.insert(side).second) return false;
    LinearProgram::Terms terms;
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      if (is_way(link) && side[half.from(link).index()] && !side[half.to(link).index()]) {
        terms.emplace_back(half.rates[l], 1.0);
      }
    }
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      if (side[topology_.node_of(Rank(r)).index()]) terms.emplace_back(roots_[r], -1.0);
    }
    cuts_.push_back({program_.add_row(terms, 0), side, half.is_reversed});
    return true;
  }

  /// Cuts around each rank, machine, rack and pod, and around all but it: most of those that bind.
  void add_natural_cuts() {
    std::set<std::vector<bool>> sides;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      const NodeId rank = topology_.node_of(Rank(r));
      const Node& node = topology_.node(rank);
      std::vector<bool> alone(topology_.node_count());
      alone[rank.index()] = true;
      sides.insert(std::move(alone));
      for (std::string Node::*const field : {&Node::host, &Node::rack}) {
        if ((node.*field).empty()) continue;
        std::vector<bool> group(topology_.node_count());
        for (std::size_t v = 0; v < group.size(); ++v) {
          group[v] = topology_.node(NodeId(v)).*field == node.*field;
        }
        sides.insert(std::move(group));
      }
    }
    for (const bool with_spines : {false, true}) {
      const std::vector<std::uint32_t> parts = network_parts(topology_, with_spines);
      for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
        std::vector<bool> part(topology_.node_count());
        for (std::size_t v = 0; v < part.size(); ++v) {
          part[v] = parts[v] == parts[topology_.node_of(Rank(r)).index()];
        }
        sides.insert(std::move(part));
      }
    }
    for (std::vector<bool> side : sides) {
      const bool has_all_ranks = std::all_of(roots_.begin(), roots_.end(), [&](int root) {
        return side[topology_.node_of(Rank(root)).index()];
      });
      if (has_all_ranks) continue;
      for (const bool is_complement : {false, true}) {
        if (is_complement) side.flip();
        add_cut(broadcast_, side);
        add_cut(reduction_, side);
      }
    }
  }

  /// Rates are the mean of the solutions with the last optimum. Those are corners of a face that is
  /// large on symmetric clusters: each corner violates cuts that others do not, so that their mean
  /// is done long before a corner is, and its violated cuts are those that matter.
  void take_solution() {
    rates_.resize(roots_.size() + 2 * topology_.link_count());
    ++solutions_;
    for (std::size_t v = 0; v < rates_.size(); ++v) {
      rates_[v] += (program_.value(static_cast<int>(v)) - rates_[v]) / solutions_;
    }
  }

  double rate_of(int variable) const {
    return std::max(0.0, rates_[static_cast<std::size_t>(variable)]);
  }

  /// Adds the cuts that rates_ violates.
  Separation separate(double total) {
    return std::max(separate(broadcast_, total), separate(reduction_, total));
  }

  Separation separate(Half& half, double total) {
    const auto units = [this](int variable) {
      return static_cast<Capacity>(rate_of(variable) * kFlowUnits);
    };
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      half.network.set_capacity(static_cast<FlowNetwork::Arc>(2 * l), units(half.rates[l]));
    }
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      half.network.set_capacity(half.root_arcs[r], units(roots_[r]));
    }
    const auto wanted = static_cast<Capacity>(total * (1 - kTolerance) * kFlowUnits);
    Separation found = Separation::kNone;
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      half.network.reset();
      const auto sink = topology_.node_of(Rank(r)).value();
      if (half.network.augment(half.source, sink, wanted) >= wanted) continue;
      std::vector<bool> side = half.network.reachable_from(half.source);
      side.pop_back();
      found = std::max(found, add_cut(half, side) ? Separation::kNew : Separation::kKnown);
    }
    return found;
  }

  const Topology& topology_;
  LinearProgram program_;
  double scale_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
  bool is_reached_ = false;
  std::vector<double> rates_;  // of variables, scaled
  double solutions_ = 0;       // that rates_ is the mean of
  std::vector<CutRow> cuts_;
  std::vector<int> roots_;
  Half broadcast_;
  Half reduction_;
};

/// Bytes per second of the best reduce-scatter followed by the best all-gather; 0 where their
/// bounds may be out of reach.
double rate_of_two_halves(const Topology& topology) {
  if (!switches_send_what_they_receive(topology)) return 0;
  const auto gather = static_cast<double>(allgather_bound(topology).algbw.bytes_per_second());
  const auto scatter = static_cast<double>(reducescatter_bound(topology).algbw.bytes_per_second());
  return 1 / (1 / gather + 1 / scatter);
}

/// What the bound is exactly, or that it is not known.
void set_exactly(AllReduceBound& bound, const std::optional<ExactOptimum>& exact) {
  bound.p = 0;
  bound.q = 1;
  bound.widest.reset();
  if (!exact) return;
  bound.widest = exact->widest;
  Capacity divisor = exact->price;
  for (Capacity rest = exact->capacity; rest != 0;) {
    divisor = std::exchange(rest, divisor % rest);
  }
  const Capacity q = exact->capacity / divisor;
  if (q > std::numeric_limits<std::int64_t>::max()) return;
  bound.p = static_cast<std::int64_t>(exact->price / divisor);
  bound.q = static_cast<std::int64_t>(q);
  bound.algbw = Bandwidth(bound.q / bound.p);
}

}  // namespace

bool says_what_switches_do(const Topology& topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const Node& node = topology.node(NodeId(v));
    if (node.multicasts || node.reduces) return true;
  }
  return false;
}

AllReduceBound joint_allreduce_bound(const Topology& topology, bool in_network) {
  AllReduceBound bound = allreduce_bound(topology, in_network);
  if (topology.rank_count() > kMostRanksLookedAt) {
    bound.may_be_out_of_reach = true;
    return bound;
  }
  const auto simple = static_cast<double>(bound.algbw.bytes_per_second());
  const double reachable = rate_of_two_halves(topology);
  if (reachable >= simple * (1 - kTolerance)) {
    return bound;
  }
  if (topology.rank_count() > kMostRanks || !LinearProgram::is_available()) {
    bound.reason += fmt::format(
        " (the joint optimum{} is not known: {})",
        reachable > 0 ? fmt::format(", {} at least,",
                                    to_string(Bandwidth(static_cast<std::int64_t>(reachable))))
                      : "",
        LinearProgram::is_available() ? fmt::format("more than {} ranks", kMostRanks)
                                      : "this build has no solver");
    bound.may_be_out_of_reach = true;
    return bound;
  }
  JointOptimum search(topology, in_network);
  const std::optional<double> optimum = search.solve(reachable);
  bound.may_be_out_of_reach = !search.is_reached();
  if (!optimum || *optimum >= simple * (1 - kTolerance)) return bound;
  bound.algbw = Bandwidth(static_cast<std::int64_t>(*optimum));
  set_exactly(bound, search.exact());
  bound.reason = "joint optimum of reduction and broadcast: " + to_string(bound.algbw);
  constexpr std::size_t kNamed = 3;
  const std::vector<std::string> cuts = search.binding_cuts();
  if (!cuts.empty()) {
    bound.reason += fmt::format(
        "; bound by {}{}",
        fmt::join(cuts.begin(), cuts.begin() + std::min(kNamed, cuts.size()), "; "),
        cuts.size() > kNamed ? fmt::format("; and {} more cuts", cuts.size() - kNamed) : "");
  }
  bound.cut = Cut{};
  return bound;
}

std::optional<JointAllReduce> joint_allreduce(const Topology& topology) {
  if (topology.rank_count() > kMostRanksOfRates || !LinearProgram::is_available()) {
    return std::nullopt;
  }
  const AllReduceBound bound = allreduce_bound(topology, false);
  const double reachable = rate_of_two_halves(topology);
  if (reachable >= static_cast<double>(bound.algbw.bytes_per_second()) * (1 - kTolerance)) {
    return std::nullopt;
  }
  JointOptimum search(topology, false);
  const std::optional<double> optimum = search.solve(reachable);
  if (!optimum || *optimum <= reachable * (1 + kTolerance)) return std::nullopt;
  return search.rates();
}

}  // namespace rackrail::topology

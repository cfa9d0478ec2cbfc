#include "topology/rate_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "topology/cuts.hpp"
#include "topology/tiers.hpp"

namespace rackrail::topology {
namespace {

// Effort is counted in entries of the linear programs solved, so that it is the same on every
// machine: seconds for the largest, milliseconds for the small ones, which always run to the end.
constexpr double kMostWork = 1e7;
constexpr double kMostWorkFolded = 5e7;  // with one variable for alike links
constexpr double kFlowUnits = 1e15;      // integers per scaled rate in the max-flows
constexpr double kUnbounded = 1e6;       // no rank can root more than all links carry

bool is_way(const Link& link) { return link.kind != LinkKind::kShared; }

/// Each variable once, in the order in which they came.
LinearProgram::Terms merged(const LinearProgram::Terms& terms) {
  LinearProgram::Terms result;
  std::map<int, std::size_t> place;
  for (const auto& [variable, coefficient] : terms) {
    const auto [found, is_new] = place.try_emplace(variable, result.size());
    if (is_new) {
      result.emplace_back(variable, coefficient);
    } else {
      result[found->second].second += coefficient;
    }
  }
  std::erase_if(result, [](const auto& term) { return term.second == 0; });
  return result;
}

}  // namespace

bool says_what_switches_do(const Topology& topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const Node& node = topology.node(NodeId(v));
    if (node.multicasts || node.reduces) return true;
  }
  return false;
}

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

std::optional<std::pair<std::int64_t, std::int64_t>> reduced(Capacity p, Capacity q) {
  Capacity divisor = q;
  for (Capacity rest = p; rest != 0;) {
    divisor = std::exchange(rest, divisor % rest);
  }
  p /= divisor;
  q /= divisor;
  constexpr Capacity kMost = std::numeric_limits<std::int64_t>::max();
  if (p > kMost || q > kMost) return std::nullopt;
  return std::pair(static_cast<std::int64_t>(p), static_cast<std::int64_t>(q));
}

RateProgram::Half::Half(const Topology& topology, bool reversed)
    : is_reversed(reversed),
      network(flow_network_of(topology, 0, reversed)),
      source(network.add_vertex()) {
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    root_arcs.push_back(network.add_arc(source, topology.node_of(Rank(r)).value(), 0));
  }
}

RateProgram::RateProgram(const Topology& topology, Trees trees, const Abilities& able,
                         bool is_folded)
    : topology_(topology),
      is_folded_(is_folded),
      alike_(is_folded ? alike_parts(topology) : only_themselves(topology)) {
  if (trees != Trees::kReduction) halves_.emplace_back(topology, false);
  if (trees != Trees::kBroadcast) halves_.emplace_back(topology, true);
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    scale_ = std::max(scale_, rate(l));
  }
  add_roots(trees != Trees::kBoth);
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    if (const std::size_t first = alike_.links[l].index(); first != l) {
      for (Half& half : halves_) half.rates.push_back(half.rates[first]);
      continue;
    }
    const double upper = is_way(topology.link(LinkId(l))) ? rate(l) / scale_ : 0;
    LinearProgram::Terms both;
    for (Half& half : halves_) {
      half.rates.push_back(program_.add_variable(upper, 0));
      both.emplace_back(half.rates.back(), -1.0);
    }
    if (both.size() > 1) program_.add_row(both, -upper);
  }
  for (Half& half : halves_) {
    conserve(half, half.is_reversed ? able.reduces : able.multicasts);
  }
  add_natural_cuts();
}

/// What ranks are the roots of: one variable for all where they are equal, else for those alike.
void RateProgram::add_roots(bool are_equal) {
  const std::size_t ranks = topology_.rank_count();
  std::vector<std::size_t> first(ranks);
  std::vector<double> count(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    first[r] = are_equal ? 0 : alike_.ranks[r].index();
    ++count[first[r]];
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    roots_.push_back(first[r] == r ? program_.add_variable(kUnbounded, count[r])
                                   : roots_[first[r]]);
  }
}

std::optional<double> RateProgram::solve(double reachable) {
  const std::set<LinkId> kinds(alike_.links.begin(), alike_.links.end());
  for (double work = 0; work < (is_folded_ ? kMostWorkFolded : kMostWork);) {
    const std::optional<double> total = program_.maximise();
    if (!total) return std::nullopt;
    const double optimum = *total * scale_;
    if (optimum <= reachable * (1 + kRateTolerance)) {
      best_ = optimum;
      is_reached_ = true;
      return reachable;
    }
    if (optimum < best_ * (1 - kRateTolerance)) solutions_ = 0;
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
    work += static_cast<double>(cuts_.size()) * static_cast<double>(halves_.size() * kinds.size());
  }
  return best_;
}

std::vector<std::string> RateProgram::binding_cuts() const {
  std::map<std::string, double> prices;
  for (const CutRow& cut : cuts_) {
    if (const double price = program_.price(cut.row); price > kRateTolerance) {
      const bool is_reversed = halves_[cut.half].is_reversed;
      prices[describe(topology_, cut_around(topology_, cut.side, is_reversed), is_reversed)] +=
          price;
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

std::string RateProgram::binding_cuts_text() const {
  constexpr std::size_t kNamed = 3;
  const std::vector<std::string> cuts = binding_cuts();
  if (cuts.empty()) return {};
  return fmt::format(
      "bound by {}{}", fmt::join(cuts.begin(), cuts.begin() + std::min(kNamed, cuts.size()), "; "),
      cuts.size() > kNamed ? fmt::format("; and {} more cuts", cuts.size() - kNamed) : "");
}

// With a price for each cut, and for what a switch passes on more than it receives (of either
// sign), a link is worth the larger of what a unit of broadcast and one of reduction cost on it. If
// every root pays at least m for the cuts that it is in, X ≤ Σ worth · capacity / m (weak duality).
// That holds for any prices; those of the optimum, made whole numbers by a common factor, reach it.
// Links with one variable are worth what they are together, and roots with one pay m each in the
// mean.
std::optional<ExactRate> RateProgram::exact() const {
  const std::optional<std::int64_t> factor = common_factor();
  if (!factor) return std::nullopt;
  const auto whole = [&](int row) {
    return static_cast<Capacity>(std::llround(program_.price(row) * static_cast<double>(*factor)));
  };
  std::vector<std::vector<Capacity>> costs(halves_.size(),
                                           std::vector<Capacity>(topology_.link_count()));
  std::map<int, Capacity> paid;  // by variable of roots
  std::map<int, std::int64_t> count;
  for (const int root : roots_) ++count[root];
  for (const CutRow& cut : cuts_) {
    const Capacity price = std::max<Capacity>(0, whole(cut.row));
    if (price == 0) continue;
    const Half& half = halves_[cut.half];
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      if (cut.side[half.from(link).index()] && !cut.side[half.to(link).index()]) {
        costs[cut.half][alike_.links[l].index()] += price;
      }
    }
    for (std::size_t r = 0; r < roots_.size(); ++r) {
      if (cut.side[topology_.node_of(Rank(r)).index()]) paid[roots_[r]] += price;
    }
  }
  for (std::size_t h = 0; h < halves_.size(); ++h) {
    const auto balance = [&](NodeId v) {
      const std::optional<int> row = halves_[h].balances[v.index()];
      return row ? whole(*row) : Capacity{0};
    };
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      costs[h][alike_.links[l].index()] += balance(link.to) - balance(link.from);
    }
  }
  std::int64_t common = 1;  // multiple of how many roots have one variable
  constexpr std::int64_t kMostCommon = 1'000'000'000;
  for (const auto& [root, number] : count) {
    common = std::lcm(common, number);
    if (common > kMostCommon) return std::nullopt;
  }
  ExactRate optimum{.capacity = 0, .price = std::numeric_limits<Capacity>::max(), .widest = {}};
  for (const auto& [root, number] : count) {
    optimum.price = std::min(optimum.price, paid[root] * (common / number));
  }
  if (optimum.price <= 0) return std::nullopt;
  std::vector<Capacity> like(topology_.link_count());
  for (const LinkId first : alike_.links) ++like[first.index()];
  Capacity most = 0;  // that a link is worth, times `of`
  Capacity of = 1;
  for (std::size_t l = 0; l < topology_.link_count(); ++l) {
    const Link& link = topology_.link(LinkId(l));
    if (!is_way(link) || alike_.links[l].index() != l) continue;
    Capacity worth = 0;
    for (const std::vector<Capacity>& cost : costs) worth = std::max(worth, cost[l]);
    optimum.capacity += common * worth * link.bandwidth.bytes_per_second();
    if (worth * of > most * like[l]) {
      most = worth;
      of = like[l];
      optimum.widest = LinkId(l);
    }
  }
  constexpr double kSame = 1e-9;
  const double found = static_cast<double>(optimum.capacity) / static_cast<double>(optimum.price);
  if (!(std::abs(found - best_) <= kSame * best_)) return std::nullopt;
  return optimum;
}

JointAllReduce RateProgram::rates() const {
  JointAllReduce rates;
  for (const int root : roots_) {
    rates.roots.push_back(rate_of(root) * scale_);
    rates.algbw += rates.roots.back();
  }
  for (const Half& half : halves_) {
    std::vector<double>& of_half = half.is_reversed ? rates.reduction : rates.broadcast;
    for (const int variable : half.rates) {
      of_half.push_back(rate_of(variable) * scale_);
    }
  }
  return rates;
}

/// The least number by which all prices become whole.
std::optional<std::int64_t> RateProgram::common_factor() const {
  constexpr std::int64_t kMostFactor = 5000;
  constexpr double kWhole = 1e-6;
  std::vector<double> prices;
  const auto add = [&](int row) {
    if (std::abs(program_.price(row)) > kWhole) prices.push_back(program_.price(row));
  };
  for (const CutRow& cut : cuts_) add(cut.row);
  for (const Half& half : halves_) {
    for (const std::optional<int>& row : half.balances) {
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

double RateProgram::rate(std::size_t link) const {
  return static_cast<double>(topology_.link(LinkId(link)).bandwidth.bytes_per_second());
}

void RateProgram::conserve(Half& half, const std::vector<bool>& is_free) {
  std::vector<LinearProgram::Terms> balance(topology_.node_count());
  for (std::size_t l = 0; l < topology_.link_count(); ++l) {
    const Link& link = topology_.link(LinkId(l));
    if (!is_way(link)) continue;
    balance[link.from.index()].emplace_back(half.rates[l], -1.0);
    balance[link.to.index()].emplace_back(half.rates[l], 1.0);
  }
  for (std::size_t v = 0; v < balance.size(); ++v) {
    half.balances.emplace_back();
    if (is_free[v] || balance[v].empty()) continue;
    if (const LinearProgram::Terms terms = merged(balance[v]); is_new_row(half, terms)) {
      half.balances.back() = program_.add_row(terms, 0, true);
    }
  }
}

/// Whether no alike cut or vertex has the same.
bool RateProgram::is_new_row(Half& half, const LinearProgram::Terms& terms) const {
  if (!is_folded_) return true;
  LinearProgram::Terms sorted = terms;
  std::ranges::sort(sorted);
  return half.rows.insert(std::move(sorted)).second;
}

/// False where it is there, or one that is alike.
bool RateProgram::add_cut(std::size_t number, const std::vector<bool>& side) {
  Half& half = halves_[number];
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
  terms = merged(terms);
  if (!is_new_row(half, terms)) return false;
  cuts_.push_back({program_.add_row(terms, 0), side, number});
  return true;
}

/// Cuts around each rank, machine, rack and pod, and around all but it: most of those that bind.
void RateProgram::add_natural_cuts() {
  // As bytes, which are compared much faster than bits.
  std::set<std::string> sides;
  const auto add_side = [&](auto contains) {
    std::string side(topology_.node_count(), '\0');
    for (std::size_t v = 0; v < side.size(); ++v) {
      side[v] = contains(v) ? '\1' : '\0';
    }
    sides.insert(std::move(side));
  };
  for (std::string Node::*const field : {&Node::host, &Node::rack}) {
    std::set<std::string> known;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      const std::string& name = topology_.node(topology_.node_of(Rank(r))).*field;
      if (name.empty() || !known.insert(name).second) continue;
      add_side([&](std::size_t v) { return topology_.node(NodeId(v)).*field == name; });
    }
  }
  for (const bool with_spines : {false, true}) {
    const std::vector<std::uint32_t> parts = network_parts(topology_, with_spines);
    std::set<std::uint32_t> known;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      const std::uint32_t part = parts[topology_.node_of(Rank(r)).index()];
      if (!known.insert(part).second) continue;
      add_side([&](std::size_t v) { return parts[v] == part; });
    }
  }
  for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
    add_side([&](std::size_t v) { return v == topology_.node_of(Rank(r)).index(); });
  }
  for (const std::string& bytes : sides) {
    std::vector<bool> side(bytes.begin(), bytes.end());
    bool has_all_ranks = true;
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      has_all_ranks = has_all_ranks && side[topology_.node_of(Rank(r)).index()];
    }
    if (has_all_ranks) continue;
    for (const bool is_complement : {false, true}) {
      if (is_complement) side.flip();
      for (std::size_t half = 0; half < halves_.size(); ++half) add_cut(half, side);
    }
  }
}

/// Rates are the mean of the solutions with the last optimum. Those are corners of a face that is
/// large on symmetric clusters: each corner violates cuts that others do not, so that their mean is
/// done long before a corner is, and its violated cuts are those that matter.
void RateProgram::take_solution() {
  rates_.resize(static_cast<std::size_t>(program_.variable_count()));
  ++solutions_;
  for (std::size_t v = 0; v < rates_.size(); ++v) {
    rates_[v] += (program_.value(static_cast<int>(v)) - rates_[v]) / solutions_;
  }
}

double RateProgram::rate_of(int variable) const {
  return std::max(0.0, rates_[static_cast<std::size_t>(variable)]);
}

/// Adds the cuts that rates_ violates.
RateProgram::Separation RateProgram::separate(double total) {
  Separation found = Separation::kNone;
  for (std::size_t half = 0; half < halves_.size(); ++half) {
    found = std::max(found, separate(half, total));
  }
  return found;
}

RateProgram::Separation RateProgram::separate(std::size_t number, double total) {
  Half& half = halves_[number];
  const auto units = [this](int variable) {
    return static_cast<Capacity>(rate_of(variable) * kFlowUnits);
  };
  for (std::size_t l = 0; l < topology_.link_count(); ++l) {
    half.network.set_capacity(static_cast<FlowNetwork::Arc>(2 * l), units(half.rates[l]));
  }
  for (std::size_t r = 0; r < roots_.size(); ++r) {
    half.network.set_capacity(half.root_arcs[r], units(roots_[r]));
  }
  const auto wanted = static_cast<Capacity>(total * (1 - kRateTolerance) * kFlowUnits);
  Separation found = Separation::kNone;
  for (std::size_t r = 0; r < roots_.size(); ++r) {
    if (alike_.ranks[r].index() != r) continue;
    half.network.reset();
    const auto sink = topology_.node_of(Rank(r)).value();
    if (half.network.augment(half.source, sink, wanted) >= wanted) continue;
    std::vector<bool> side = half.network.reachable_from(half.source);
    side.pop_back();
    found = std::max(found, add_cut(number, side) ? Separation::kNew : Separation::kKnown);
  }
  return found;
}

}  // namespace rackrail::topology

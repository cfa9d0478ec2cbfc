#include "planner/packing/switch_packing.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "plan/cost_model.hpp"
#include "planner/packing/pair_shares.hpp"
#include "planner/packing/priced_paths.hpp"
#include "planner/packing/steiner_tree.hpp"
#include "topology/linear_program.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostRootsAtOnce = 8;  // that are looked at with the same prices
constexpr int kMostSwitchPricings = 400;
constexpr std::size_t kMostPairs = 4000;
constexpr double kMostTreeWork = 3e7;  // arcs looked at for trees: a few seconds
constexpr double kTowardsBest = 0.7;   // share of the best prices in those looked at
constexpr double kCheaperPair = 1e-6;  // by how much a pair must be, to be added
// Of a pair's price: what it costs more if all its arcs leave ranks, and what all arcs cost more.
constexpr double kPriceOfRelays = 3e-3;
constexpr double kPriceOfArcs = 1e-3;
// Without such a gain in so many pricings the search ends; with such a share of what is enough,
// too, from so many pairs on less of it, as programs become slow.
constexpr double kWorthLookingAtPacking = 1e-4;
constexpr int kPricingPatience = 40;
constexpr double kPackedEnough = 0.998;
constexpr std::size_t kFewPairs = 800;
constexpr double kNearEnoughOfMany = 0.99;
constexpr double kWorthTheTrees = 0.9985;  // of the rate: what fewer trees must have
constexpr double kNoRate = 1e-7;           // of all rates
constexpr double kAddedSlice = 1 << 20;    // an addition's fixed cost is of a slice like this
constexpr double kNeverBinds = 1e4;        // times the widest link
constexpr double kHighestPrice = 1e6;

using topology::LinearProgram;

/// Bytes per second of links and, behind them, of what ranks add, over the widest link.
std::vector<double> capacities(const topology::Topology& topology, double widest) {
  std::vector<double> capacity;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    capacity.push_back(static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second()) /
                       widest);
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const plan::DeviceRates rates = plan::device_rates(topology, Rank(r));
    const double seconds = 1 / static_cast<double>(rates.reduce.bytes_per_second()) +
                           rates.launch.seconds() / kAddedSlice;
    capacity.push_back(std::min(kNeverBinds, 1 / seconds / widest));
  }
  return capacity;
}

double widest_link(const topology::Topology& topology) {
  double widest = 0;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    widest = std::max(widest,
                      static_cast<double>(topology.link(LinkId(l)).bandwidth.bytes_per_second()));
  }
  return widest;
}

/// What a byte of a pair takes of each resource.
LinearProgram::Terms loads_of_pair(const SwitchPair& pair, const topology::Topology& topology) {
  std::map<int, double> loads;
  for (const auto* half : {&pair.reduction, &pair.broadcast}) {
    for (const SwitchOperation& operation : *half) {
      for (const LinkId link : operation.links) {
        loads[static_cast<int>(link.index())] += 1;
      }
    }
  }
  for (const SwitchOperation& sum : pair.reduction) {
    loads[static_cast<int>(topology.link_count() + sum.root.index())] += 1;
  }
  return {loads.begin(), loads.end()};
}

double price_of(const LinearProgram::Terms& loads, const std::vector<double>& prices) {
  return std::accumulate(loads.begin(), loads.end(), 0.0, [&](double sum, const auto& term) {
    return sum + term.second * prices[static_cast<std::size_t>(term.first)];
  });
}

/// The pairs so far as a linear program: its variables are the prices of the resources, its rows
/// the pairs, whose prices in turn are the bytes per second that take them.
class PairProgram {
 public:
  explicit PairProgram(const std::vector<double>& capacity) {
    for (const double of_one : capacity) {
      program_.add_variable(kHighestPrice, -of_one);
    }
  }

  void add(const LinearProgram::Terms& loads) { program_.add_row(loads, 1); }

  /// The rate of all pairs together.
  std::optional<double> solve() {
    const auto value = program_.maximise();
    return value ? std::optional(-*value) : std::nullopt;
  }
  std::vector<double> prices() const {
    std::vector<double> prices;
    for (int variable = 0; variable < program_.variable_count(); ++variable) {
      prices.push_back(std::max(0.0, program_.value(variable)));
    }
    return prices;
  }
  double rate_of(std::size_t pair) const {
    return std::max(0.0, program_.price(static_cast<int>(pair)));
  }

 private:
  LinearProgram program_;
};

/// Cheapest pairs at prices.
class PairSearch {
 public:
  explicit PairSearch(const topology::Topology& topology)
      : topology_(topology),
        ways_{PricedPaths(topology, PricedPaths::Over::kRanksAndSwitches, false),
              PricedPaths(topology, PricedPaths::Over::kRanksAndSwitches, true)},
        trees_{SteinerTrees(topology.rank_count(), ways_[0].size(), kMostTreeWork),
               SteinerTrees(topology.rank_count(), ways_[1].size(), kMostTreeWork)} {}

  /// From now on pairs are the cheapest at these prices; unless `is_strict`, those that pass few
  /// ranks and few links are a little cheaper.
  void look_at(const std::vector<double>& prices, bool is_strict) {
    const double relay =
        is_strict ? 0 : kPriceOfRelays / static_cast<double>(2 * topology_.rank_count());
    for (std::size_t half = 0; half < 2; ++half) {
      ways_[half].find(prices);
      trees_[half].begin_anew();
      arcs_[half] = ways_[half].arcs();
      for (PricedArc& arc : arcs_[half]) {
        arc.price += is_strict ? 0 : kPriceOfArcs / static_cast<double>(2 * ways_[half].size());
        if (arc.from < topology_.rank_count()) {
          const double addition = prices[topology_.link_count() + arc.from];
          arc.price += relay + (ways_[half].is_reversed() ? addition : 0);
        }
      }
    }
  }

  std::optional<SwitchPair> cheapest(Rank root) {
    SwitchPair pair;
    pair.root = root;
    for (std::size_t half = 0; half < 2; ++half) {
      const auto tree = trees_[half].cheapest(root.value(), arcs_[half]);
      if (!tree) {
        return std::nullopt;
      }
      (ways_[half].is_reversed() ? pair.reduction : pair.broadcast) =
          operations_of(topology_, ways_[half], *tree, root);
    }
    return pair;
  }

  bool is_spent() const { return trees_[0].work() + trees_[1].work() > kMostTreeWork; }

 private:
  const topology::Topology& topology_;
  PricedPaths ways_[2];
  SteinerTrees trees_[2];
  std::vector<PricedArc> arcs_[2];
};

class SwitchPacker {
 public:
  explicit SwitchPacker(const topology::Topology& topology)
      : topology_(topology),
        widest_(widest_link(topology)),
        capacity_(capacities(topology, widest_)),
        search_(topology),
        program_(capacity_) {}

  /// False where there are no pairs.
  bool run(Bandwidth enough) {
    enough_ = static_cast<double>(enough.bytes_per_second()) / widest_;
    std::vector<double> best;
    for (const double of_one : capacity_) {
      best.push_back(1 / of_one);
    }
    search_.look_at(best, true);
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      if (!look_for(Rank(r), best, std::numeric_limits<double>::infinity())) {
        return false;
      }
    }
    bound_ = normalise(best);
    best_ = std::move(best);
    return price_pairs();
  }

  /// None where no pair has a rate.
  std::optional<SwitchPacking> take() {
    const std::vector<double> rates = few_rates();
    if (std::ranges::all_of(rates, [](double rate) { return rate <= 0; })) {
      return std::nullopt;
    }
    const std::vector<std::int64_t> units = units_of(rates);
    SwitchPacking packing;
    std::vector<double> load(capacity_.size());
    double whole = 0;
    for (std::size_t p = 0; p < pairs_.size(); ++p) {
      if (units[p] > 0) {
        pairs_[p].units = units[p];
        packing.pairs.push_back(std::move(pairs_[p]));
        whole += static_cast<double>(units[p]);
        for (const auto& [resource, times] : rows_[p]) {
          load[static_cast<std::size_t>(resource)] += times * static_cast<double>(units[p]);
        }
      }
    }
    double rate = std::numeric_limits<double>::infinity();
    for (std::size_t resource = 0; resource < load.size(); ++resource) {
      if (load[resource] > 0) {
        rate = std::min(rate, capacity_[resource] * widest_ * whole / load[resource]);
      }
    }
    packing.algbw = Bandwidth(static_cast<std::int64_t>(rate));
    return packing;
  }

 private:
  /// Adds pairs until they have the rate that is enough, or none is cheaper than those there are.
  bool price_pairs() {
    double before = 0;
    int since = 0;
    bool is_strict = false;
    for (int pricing = 0; pricing < kMostSwitchPricings; ++pricing) {
      const auto rate = program_.solve();
      if (!rate) {
        return false;
      }
      since = *rate > before * (1 + kWorthLookingAtPacking) ? 0 : since + 1;
      before = since == 0 ? *rate : before;
      if (*rate >= (rows_.size() <= kFewPairs ? kPackedEnough : kNearEnoughOfMany) * enough_ ||
          since > kPricingPatience || search_.is_spent() || rows_.size() >= kMostPairs) {
        return true;
      }
      if (!add_cheaper_pairs(is_strict)) {
        if (is_strict) {
          return true;  // of those that are found none is cheaper
        }
        is_strict = true;
      }
    }
    return program_.solve().has_value();
  }

  /// Looks between the last prices and the best so far, where pairs are better, and at the last
  /// ones if that finds none that these are too high for.
  bool add_cheaper_pairs(bool is_strict) {
    const std::vector<double> last = program_.prices();
    std::vector<double> between(last.size());
    for (std::size_t i = 0; i < last.size(); ++i) {
      between[i] = kTowardsBest * best_[i] + (1 - kTowardsBest) * last[i];
    }
    const std::size_t before = rows_.size();
    look_at(std::move(between), is_strict);
    const bool is_cut_off =
        std::any_of(rows_.begin() + static_cast<std::ptrdiff_t>(before), rows_.end(),
                    [&](const auto& row) { return price_of(row, last) < 1 - kCheaperPair; });
    if (!is_cut_off) {
      look_at(last, is_strict);
    }
    return rows_.size() > before;
  }

  /// Adds the pairs of some roots that are cheaper than 1; where these have none, of more roots.
  void look_at(std::vector<double> prices, bool is_strict) {
    search_.look_at(prices, is_strict);
    cheapest_ = std::numeric_limits<double>::infinity();
    const std::size_t ranks = topology_.rank_count();
    const std::size_t before = rows_.size();
    for (std::size_t i = 0; i < ranks; ++i) {
      if (search_.is_spent() || (i >= kMostRootsAtOnce && rows_.size() > before)) {
        break;
      }
      look_for(Rank(next_root_), prices, 1 - kCheaperPair);
      next_root_ = (next_root_ + 1) % ranks;
    }
    if (cheapest_ <= 0) {
      return;
    }
    if (const double proved = normalise(prices); proved < bound_) {
      bound_ = proved;
      best_ = std::move(prices);
    }
  }

  /// Adds the pair of a root that is cheapest at the prices looked at, if it is below the limit.
  bool look_for(Rank root, const std::vector<double>& prices, double limit) {
    auto pair = search_.cheapest(root);
    if (!pair) {
      return false;
    }
    LinearProgram::Terms loads = loads_of_pair(*pair, topology_);
    const double price = price_of(loads, prices);
    cheapest_ = std::min(cheapest_, price);
    if (price < limit && known_.insert(loads).second) {
      program_.add(loads);
      rows_.push_back(std::move(loads));
      pairs_.push_back(std::move(*pair));
    }
    return true;
  }

  /// Divides prices by what the cheapest pair costs at them; what all resources cost then.
  double normalise(std::vector<double>& prices) const {
    double whole = 0;
    for (std::size_t i = 0; i < prices.size(); ++i) {
      prices[i] /= cheapest_;
      whole += prices[i] * capacity_[i];
    }
    return whole;
  }

  /// By pair; 0 for those that are not worth their trees.
  std::vector<double> few_rates() {
    std::vector<std::size_t> kept;
    double whole = 0;
    std::vector<double> rates(pairs_.size());
    for (std::size_t p = 0; p < rates.size(); ++p) {
      rates[p] = program_.rate_of(p);
      whole += rates[p];
    }
    for (std::size_t p = 0; p < rates.size(); ++p) {
      if (rates[p] > kNoRate * whole) {
        kept.push_back(p);
      } else {
        rates[p] = 0;
      }
    }
    while (kept.size() > 1) {
      const auto thinnest =
          std::min_element(kept.begin(), kept.end(),
                           [&](std::size_t a, std::size_t b) { return rates[a] < rates[b]; });
      kept.erase(thinnest);
      const auto fewer = rates_of(kept);
      if (std::accumulate(fewer.begin(), fewer.end(), 0.0) < kWorthTheTrees * whole) {
        break;
      }
      rates = fewer;
      std::erase_if(kept, [&](std::size_t p) { return rates[p] <= kNoRate * whole; });
    }
    return rates;
  }

  /// The best rates of these pairs alone; all 0 where there is no solution.
  std::vector<double> rates_of(const std::vector<std::size_t>& kept) const {
    PairProgram program(capacity_);
    for (const std::size_t p : kept) {
      program.add(rows_[p]);
    }
    std::vector<double> rates(pairs_.size());
    if (program.solve()) {
      for (std::size_t i = 0; i < kept.size(); ++i) {
        rates[kept[i]] = program.rate_of(i);
      }
    }
    return rates;
  }

  const topology::Topology& topology_;
  double widest_;
  std::vector<double> capacity_;
  PairSearch search_;
  PairProgram program_;
  std::vector<SwitchPair> pairs_;
  std::vector<LinearProgram::Terms> rows_;  // by pair: its loads
  std::set<LinearProgram::Terms> known_;    // the same
  // Prices at which all resources cost least, the cheapest pair that was found at 1; and that cost,
  // which proves nothing unless all roots were looked at: others may have cheaper pairs.
  std::vector<double> best_;
  double bound_ = 0;
  double cheapest_ = std::numeric_limits<double>::infinity();  // at the prices looked at last
  double enough_ = 0;
  std::size_t next_root_ = 0;
};

}  // namespace

std::optional<SwitchPacking> pack_switch_trees(const topology::Topology& topology,
                                               Bandwidth enough) {
  if (!LinearProgram::is_available() || topology.rank_count() > kMostRanksOfSwitchTrees ||
      topology.rank_count() < 2 || topology.link_count() > kMostLinksOfSwitchTrees) {
    return std::nullopt;
  }
  SwitchPacker packer(topology);
  if (!packer.run(enough)) {
    return std::nullopt;
  }
  return packer.take();
}

}  // namespace rackrail::planner

#include "planner/packing/joint_forest.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>

#include "planner/packing/forest_building.hpp"
#include "planner/packing/priced_packing.hpp"
#include "planner/packing/settled_pairs.hpp"

namespace rackrail::planner {

namespace {

// Trees in all that are tried in turn, and the room left for rounding at each.
constexpr std::int64_t kTreeCounts[] = {1,  2,  3,  4,  6,  8,   12,  16,
                                        24, 32, 48, 64, 96, 128, 192, 256};
constexpr double kJointRoom[] = {1, 1.02, 1.1, 1.3};
constexpr double kNearlyAll = 0.995;  // what is looked for when trees are priced
constexpr std::size_t kMostRanksOfPrices = 16;
constexpr std::size_t kMostRanksProgrammed = 64;  // in linear programs over cuts, or over pairs
constexpr double kHalvesNearEnough = 0.99;        // of the bound: nothing is worth its time then
constexpr std::size_t kSettledPairs = 128;
constexpr std::size_t kMostSettledPairs = 256;
constexpr double kSettledWell = 0.98;  // of the bound
// Roots in the middle have the shallowest trees; where links have unlike rates each way, it may
// take others.
constexpr double kRootsInTheMiddle = 1.5;
constexpr double kAnyRoots = std::numeric_limits<double>::infinity();
constexpr double kEnoughSettled = 0.985;  // of the bound, by equal shares
constexpr double kNearlyWhole = 1e-4;     // rates of a linear program are not quite integers

double share_of(Bandwidth rate, Bandwidth bound) {
  return static_cast<double>(rate.bytes_per_second()) /
         static_cast<double>(bound.bytes_per_second());
}

/// Seconds per byte of the buffer on the busiest link.
double busiest(const AllReduceForests& forests, const topology::Topology& topology) {
  std::vector<double> share(topology.link_count());
  for (const Forest* forest : {&forests.reduction, &forests.broadcast}) {
    const std::vector<std::int64_t> loads = loads_of(*forest, topology.link_count());
    std::int64_t trees = 0;
    for (const Tree& tree : forest->trees) {
      trees += tree.units;
    }
    for (std::size_t l = 0; l < loads.size(); ++l) {
      share[l] += static_cast<double>(loads[l]) / static_cast<double>(trees);
    }
  }
  double most = 0;
  for (std::size_t l = 0; l < share.size(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    most = std::max(most, share[l] / static_cast<double>(link.bandwidth.bytes_per_second()));
  }
  return most;
}

AllReduceForests two_halves(const topology::Topology& topology, const ForestOptions& options) {
  AllReduceForests forests;
  forests.broadcast = make_forest(topology, options);
  auto mirror = mirrored(forests.broadcast, topology);
  forests.reduction = mirror ? std::move(*mirror) : make_forest(topology, options, true);
  set_rate(forests, topology);
  return forests;
}

/// Integers in proportion to `shares` that sum to `total`: the largest remainders are rounded up.
std::vector<std::int64_t> apportion(const std::vector<double>& shares, std::int64_t total) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> units;
  std::vector<std::pair<double, std::size_t>> remainders;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double exact = shares[i] / sum * static_cast<double>(total);
    units.push_back(static_cast<std::int64_t>(exact + kNearlyWhole));
    remainders.emplace_back(static_cast<double>(units.back()) - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());
  std::int64_t left = total - std::accumulate(units.begin(), units.end(), std::int64_t{0});
  for (std::size_t i = 0; left > 0; ++i, --left) {
    ++units[remainders[i % remainders.size()].second];
  }
  return units;
}

class JointForestSearch {
 public:
  JointForestSearch(const topology::Topology& topology, const topology::JointAllReduce& rates,
                    Pairs pairs)
      : topology_(topology), rates_(rates), pairs_(pairs) {}

  std::optional<AllReduceForests> with_trees(std::int64_t count, double room) const {
    const std::vector<std::int64_t> roots = apportion(rates_.roots, count);
    const double scale = static_cast<double>(count) / rates_.algbw * room;
    AllReduceForests forests;
    for (const bool is_reversed : {false, true}) {
      auto forest = build_forest(network(roots, scale, is_reversed), topology_, is_reversed,
                                 removals_for(topology_, pairs_));
      if (!forest) {
        return std::nullopt;
      }
      forest->trees_per_rank = 1;
      (is_reversed ? forests.reduction : forests.broadcast) = std::move(*forest);
    }
    set_rate(forests, topology_);
    return forests;
  }

 private:
  LogicalNetwork network(const std::vector<std::int64_t>& roots, double scale,
                         bool is_reversed) const {
    std::vector<std::int64_t> at(topology_.node_count());
    std::vector<bool> is_terminal(topology_.node_count());
    for (std::size_t r = 0; r < roots.size(); ++r) {
      at[topology_.node_of(Rank(r)).index()] = roots[r];
      is_terminal[topology_.node_of(Rank(r)).index()] = true;
    }
    LogicalNetwork network(std::move(at), std::move(is_terminal));
    const std::vector<double>& rates = is_reversed ? rates_.reduction : rates_.broadcast;
    for (std::size_t l = 0; l < rates.size(); ++l) {
      const topology::Link& link = topology_.link(LinkId(l));
      const auto units = static_cast<std::int64_t>(rates[l] * scale + kNearlyWhole);
      if (units > 0) {
        network.add_link((is_reversed ? link.to : link.from).value(),
                         (is_reversed ? link.from : link.to).value(), units, LinkId(l));
      }
    }
    return network;
  }

  const topology::Topology& topology_;
  const topology::JointAllReduce& rates_;
  Pairs pairs_;
};

/// The best forests of some, as far as their rate matters.
class BestForests {
 public:
  BestForests(double optimum, double least) : optimum_(optimum), rate_(least) {}

  bool reaches(double share) const { return rate_ >= share * optimum_; }
  void keep(std::optional<AllReduceForests> forests) {
    if (forests && static_cast<double>(forests->algbw.bytes_per_second()) > rate_) {
      rate_ = static_cast<double>(forests->algbw.bytes_per_second());
      best_ = std::move(forests);
    }
  }
  /// What was kept since the last time.
  std::optional<AllReduceForests> take() { return std::exchange(best_, std::nullopt); }

 private:
  double optimum_;
  double rate_;
  std::optional<AllReduceForests> best_;
};

void search_few_trees(BestForests& best, const topology::Topology& topology,
                      const topology::JointAllReduce& rates, const ForestOptions& options) {
  const JointForestSearch search(topology, rates, options.pairs);
  for (const double room : kJointRoom) {
    for (const std::int64_t count : kTreeCounts) {
      if (best.reaches(options.good_enough) || best.reaches((1 - kNearlyWhole) / room)) {
        break;  // no more than that is left to find with so much room
      }
      best.keep(search.with_trees(count, room));
    }
  }
}

/// How many pairs settle. Where ranks hang on switches it is one for each: each link of a rank
/// carries few trees but its own. Elsewhere 256 among 256 ranks fill 99.6 % of what 128 fill 98.5 %
/// of, but in half as many pieces.
std::size_t settled_count(const topology::Topology& topology, bool may_be_many) {
  const bool has_switches = topology.node_count() > topology.rank_count();
  return has_switches || may_be_many
             ? std::clamp(topology.rank_count(), kSettledPairs, kMostSettledPairs)
             : kSettledPairs;
}

}  // namespace

void set_rate(AllReduceForests& forests, const topology::Topology& topology) {
  forests.algbw = Bandwidth(static_cast<std::int64_t>(1 / busiest(forests, topology)));
}

std::vector<AllReduceForests> priced_forests(const topology::Topology& topology) {
  std::vector<AllReduceForests> found;
  if (topology.rank_count() <= kMostRanksOfPrices) {
    if (auto forests = pack_by_prices(topology, kNearlyAll)) {
      set_rate(*forests, topology);
      found.push_back(std::move(*forests));
    }
  }
  return found;
}

std::vector<AllReduceForests> allreduce_forests(const topology::Topology& topology,
                                                const ForestOptions& options) {
  std::vector<AllReduceForests> found{two_halves(topology, options)};
  if (const auto rates = topology::joint_allreduce(topology)) {
    BestForests best(rates->algbw, static_cast<double>(found[0].algbw.bytes_per_second()));
    search_few_trees(best, topology, *rates, options);
    const auto add_best = [&] {
      if (auto forests = best.take()) {
        found.push_back(std::move(*forests));
      }
    };
    add_best();
    if (const double enough = std::min(options.good_enough, kNearlyAll); !best.reaches(enough)) {
      if (auto forests = pack_by_prices(topology, enough)) {
        set_rate(*forests, topology);
        best.keep(std::move(forests));
        add_best();
      }
    }
  }
  return found;
}

Bandwidth rate_of_halves(const topology::Topology& topology) {
  const auto seconds_per_byte = [](const topology::AllGatherBound& bound) {
    return 1 / static_cast<double>(bound.algbw.bytes_per_second());
  };
  return Bandwidth(
      static_cast<std::int64_t>(1 / (seconds_per_byte(topology::allgather_bound(topology)) +
                                     seconds_per_byte(topology::reducescatter_bound(topology)))));
}

namespace {

std::vector<AllReduceForests> settle(const topology::Topology& topology, std::size_t pairs) {
  std::vector<AllReduceForests> found;
  const Bandwidth bound = topology::allreduce_bound(topology).algbw;
  const Bandwidth of_halves = rate_of_halves(topology);
  if (share_of(of_halves, bound) >= kHalvesNearEnough) {
    return found;
  }
  BestForests best(static_cast<double>(bound.bytes_per_second()),
                   static_cast<double>(of_halves.bytes_per_second()));
  for (const double most_far : {kRootsInTheMiddle, kAnyRoots}) {
    auto settled = settled_pairs(topology, {.pairs = pairs,
                                            .bound = static_cast<double>(bound.bytes_per_second()),
                                            .good_enough = kEnoughSettled,
                                            .most_far = most_far});
    if (!settled) {
      continue;
    }
    set_rate(settled->forests, topology);
    best.keep(std::move(settled->forests));
    if (best.reaches(kSettledWell) || settled->are_all_roots) {
      break;
    }
  }
  if (auto forests = best.take()) {
    found.push_back(std::move(*forests));
  }
  return found;
}

/// What settled last: a plan's search and the table of schedules beside it ask for the same, which
/// takes seconds.
class LastSettled {
 public:
  std::vector<AllReduceForests> of(const topology::Topology& topology, std::size_t pairs) {
    const Key key{topology.digest(), pairs};
    {
      const std::lock_guard lock(mutex_);
      if (key_ == key) {
        return forests_;
      }
    }
    std::vector<AllReduceForests> forests = settle(topology, pairs);
    const std::lock_guard lock(mutex_);
    key_ = key;
    forests_ = forests;
    return forests;
  }

 private:
  using Key = std::pair<std::string, std::size_t>;  // digest of the cluster, pairs
  std::mutex mutex_;
  Key key_;
  std::vector<AllReduceForests> forests_;
};

}  // namespace

std::vector<AllReduceForests> settled_forests(const topology::Topology& topology,
                                              bool may_be_many) {
  if (topology.rank_count() <= kMostRanksProgrammed) {
    return {};
  }
  static LastSettled last;
  return last.of(topology, settled_count(topology, may_be_many));
}

AllReduceForests make_allreduce_forests(const topology::Topology& topology,
                                        const ForestOptions& options) {
  std::vector<AllReduceForests> found = settled_forests(topology);
  return std::move(found.empty() ? allreduce_forests(topology, options).back() : found.back());
}

}  // namespace rackrail::planner

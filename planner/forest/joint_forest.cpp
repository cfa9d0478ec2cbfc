#include "planner/forest/joint_forest.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "planner/forest/forest_building.hpp"
#include "planner/forest/forest_schedule.hpp"

namespace rackrail::planner {

namespace {

// Trees in all that are tried in turn, and the room left for rounding at each.
constexpr std::int64_t kTreeCounts[] = {1,  2,  3,  4,  6,  8,   12,  16,
                                        24, 32, 48, 64, 96, 128, 192, 256};
constexpr double kJointRoom[] = {1, 1.02, 1.1, 1.3};
constexpr double kNearlyWhole = 1e-4;  // rates of a linear program are not quite integers

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

void set_rate(AllReduceForests& forests, const topology::Topology& topology) {
  forests.algbw = Bandwidth(static_cast<std::int64_t>(1 / busiest(forests, topology)));
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
                    bool few_pairs)
      : topology_(topology), rates_(rates), few_pairs_(few_pairs) {}

  std::optional<AllReduceForests> with_trees(std::int64_t count, double room) const {
    const std::vector<std::int64_t> roots = apportion(rates_.roots, count);
    const double scale = static_cast<double>(count) / rates_.algbw * room;
    AllReduceForests forests;
    for (const bool is_reversed : {false, true}) {
      auto forest = build_forest(network(roots, scale, is_reversed), topology_, is_reversed,
                                 removals_for(topology_, few_pairs_));
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
  bool few_pairs_;
};

}  // namespace

AllReduceForests make_allreduce_forests(const topology::Topology& topology,
                                        const ForestOptions& options) {
  AllReduceForests best = two_halves(topology, options);
  const std::optional<topology::JointAllReduce> rates = topology::joint_allreduce(topology);
  if (!rates) {
    return best;
  }
  const JointForestSearch search(topology, *rates, options.few_pairs);
  const auto is_good_enough = [&] {
    return static_cast<double>(best.algbw.bytes_per_second()) >= options.good_enough * rates->algbw;
  };
  for (const double room : kJointRoom) {
    for (const std::int64_t count : kTreeCounts) {
      if (is_good_enough() || static_cast<double>(best.algbw.bytes_per_second()) * room >=
                                  rates->algbw * (1 - kNearlyWhole)) {
        return best;
      }
      auto forests = search.with_trees(count, room);
      if (forests && forests->algbw > best.algbw) {
        best = std::move(*forests);
      }
    }
  }
  return best;
}

}  // namespace rackrail::planner

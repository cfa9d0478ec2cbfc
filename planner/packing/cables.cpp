#include "planner/packing/cables.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace rackrail::planner {

namespace {

constexpr int kHalves = 40;

bool is_passable(const topology::Link& link) { return link.kind != topology::LinkKind::kShared; }

}  // namespace

std::vector<std::uint32_t> RankCables::distances(std::uint32_t from) const {
  std::vector<std::uint32_t> distance(around.size(), kFar);
  std::vector<std::uint32_t> reached = {from};
  distance[from] = 0;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (const std::uint32_t cable : around[reached[i]]) {
      const std::uint32_t next = cables[cable].other_end(reached[i]);
      if (distance[next] == kFar) {
        distance[next] = distance[reached[i]] + 1;
        reached.push_back(next);
      }
    }
  }
  return distance;
}

double least_fullness(std::span<const double> rates, double trees) {
  const auto room_for_all = [&](double fullness) {
    double room = 0;
    for (const double rate : rates) {
      room += std::floor(fullness * rate * (1 + kSameFullness));
    }
    return room >= trees;
  };
  const double whole_rate = std::accumulate(rates.begin(), rates.end(), 0.0);
  double least = trees / whole_rate;
  if (room_for_all(least)) {
    return least;
  }
  // Each carries less than one tree less than its rate allows. By halves until few steps are left.
  double enough = (trees + static_cast<double>(rates.size())) / whole_rate;
  for (int i = 0; i < kHalves; ++i) {
    const double middle = (least + enough) / 2;
    (room_for_all(middle) ? enough : least) = middle;
  }
  while (true) {
    double room = 0;
    double next = std::numeric_limits<double>::infinity();
    for (const double rate : rates) {
      const double whole = std::floor(least * rate * (1 + kSameFullness));
      room += whole;
      next = std::min(next, (whole + 1) / rate);
    }
    if (room >= trees) {
      return least;
    }
    least = next;
  }
}

bool are_ranks_joined_directly(const topology::Topology& topology) {
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (is_passable(link) && !(topology.rank_of(link.from) && topology.rank_of(link.to))) {
      return false;
    }
  }
  return topology.rank_count() >= 2;
}

std::optional<RankCables> find_cables(const topology::Topology& topology) {
  if (!are_ranks_joined_directly(topology)) {
    return std::nullopt;
  }
  // The i-th link from a to b is the opposite of the i-th from b to a.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<LinkId>> between;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (!is_passable(link)) {
      continue;
    }
    between[{topology.rank_of(link.from)->value(), topology.rank_of(link.to)->value()}]
        .emplace_back(l);
  }
  RankCables found;
  found.around.resize(topology.rank_count());
  for (const auto& [ends, there] : between) {
    const auto [a, b] = ends;
    const auto opposite = between.find({b, a});
    if (a >= b || opposite == between.end()) {
      continue;
    }
    for (std::size_t i = 0; i < std::min(there.size(), opposite->second.size()); ++i) {
      const LinkId back = opposite->second[i];
      const Bandwidth rate =
          std::min(topology.link(there[i]).bandwidth, topology.link(back).bandwidth);
      for (const std::uint32_t end : {a, b}) {
        found.around[end].push_back(static_cast<std::uint32_t>(found.cables.size()));
      }
      found.cables.push_back({a, b, there[i], back, static_cast<double>(rate.bytes_per_second())});
    }
  }
  const std::vector<std::uint32_t> distance = found.distances(0);
  if (std::ranges::any_of(distance, [](std::uint32_t d) { return d == RankCables::kFar; })) {
    return std::nullopt;
  }
  return found;
}

}  // namespace rackrail::planner

#include "planner/groups/line_lanes.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "planner/groups/line_rates.hpp"

namespace rackrail::planner {

namespace {

/// In units, by line.
std::vector<std::uint32_t> loads_by_rates(std::span<const Bandwidth> rates) {
  const double units = static_cast<double>(kLaneUnits) * static_cast<double>(rates.size());
  double sum = 0;
  for (const Bandwidth rate : rates) {
    sum += static_cast<double>(rate.bytes_per_second());
  }
  std::vector<std::uint32_t> loads;
  for (const Bandwidth rate : rates) {
    const double load = units * static_cast<double>(rate.bytes_per_second()) / sum;
    loads.push_back(static_cast<std::uint32_t>(std::floor(load)));
  }
  const auto with_one_more = [&](std::size_t line) {
    return static_cast<double>(rates[line].bytes_per_second()) / (loads[line] + 1);
  };
  for (std::uint32_t given = std::accumulate(loads.begin(), loads.end(), std::uint32_t{0});
       given < kLaneUnits * rates.size(); ++given) {
    std::size_t best = 0;
    for (std::size_t line = 1; line < rates.size(); ++line) {
      if (with_one_more(line) > with_one_more(best)) {
        best = line;
      }
    }
    ++loads[best];
  }
  return loads;
}

}  // namespace

LineLanes lanes_by_rates(std::span<const Bandwidth> rates) {
  if (rates.empty()) {
    return {};
  }
  const auto [least, most] = std::ranges::minmax(rates);
  if (least >= scaled(most, kSlowShare)) {
    return {};
  }
  const std::vector<std::uint32_t> loads = loads_by_rates(rates);
  std::vector<std::uint32_t> to_lend;
  LineLanes lanes;
  for (std::size_t line = 0; line < rates.size(); ++line) {
    const std::uint32_t own = std::min(loads[line], kLaneUnits);
    to_lend.push_back(kLaneUnits - own);
    if (own > 0) {
      lanes.push_back({line, line, own});
    }
  }
  std::size_t owner = 0;
  for (std::size_t line = 0; line < rates.size(); ++line) {
    std::uint32_t room = loads[line] - std::min(loads[line], kLaneUnits);
    while (room > 0) {
      while (to_lend[owner] == 0) {
        ++owner;
      }
      const std::uint32_t lent = std::min(room, to_lend[owner]);
      lanes.push_back({line, owner, lent});
      to_lend[owner] -= lent;
      room -= lent;
    }
  }
  return lanes;
}

LineLanes without_lent(const LineLanes& lanes) {
  LineLanes own;
  for (const LineLane& lane : lanes) {
    const auto known = std::ranges::find(own, lane.line, &LineLane::line);
    if (known != own.end()) {
      known->weight += lane.weight;
    } else {
      own.push_back({lane.line, lane.line, lane.weight});
    }
  }
  return own;
}

}  // namespace rackrail::planner

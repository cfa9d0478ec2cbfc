#include "planner/groups/line_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
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

LineLanes even_lanes(std::size_t lines) {
  LineLanes lanes;
  for (std::size_t line = 0; line < lines; ++line) {
    lanes.push_back({{line, 1}});
  }
  return lanes;
}

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
  LineLanes lanes(rates.size());
  for (std::size_t line = 0; line < rates.size(); ++line) {
    const std::uint32_t own = std::min(loads[line], kLaneUnits);
    to_lend.push_back(kLaneUnits - own);
    if (own > 0) {
      lanes[line].push_back({line, own});
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
      lanes[line].push_back({owner, lent});
      to_lend[owner] -= lent;
      room -= lent;
    }
  }
  return lanes;
}

LineLanes lanes_for(plan::Collective what, std::size_t lines, const LineLanes& lanes) {
  if (lanes.empty()) {
    return even_lanes(lines);
  }
  if (lanes.size() != lines) {
    throw PlanError(fmt::format("rails for {} lines, expected {}", lanes.size(), lines));
  }
  if (what == plan::Collective::kAllReduce && without_lent(lanes) != lanes) {
    throw PlanError("an all-reduce over rails that are lent to others");
  }
  return lanes;
}

LineLanes without_lent(const LineLanes& lanes) {
  LineLanes own(lanes.size());
  for (std::size_t line = 0; line < lanes.size(); ++line) {
    std::uint32_t weight = 0;
    for (const LineLane& lane : lanes[line]) {
      weight += lane.weight;
    }
    if (weight > 0) {
      own[line].push_back({line, weight});
    }
  }
  return own;
}

LaneChunks lane_chunks(std::span<const LineLane> lanes, std::span<const std::uint32_t> parts) {
  const auto all = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
  std::uint64_t load = 0;
  for (const LineLane& lane : lanes) {
    load += lane.weight;
  }
  LaneChunks chunks;
  auto lane = lanes.begin();
  std::uint64_t left_of_lane = lanes.empty() ? 0 : lane->weight * all;
  for (const std::uint32_t part : parts) {
    chunks.part_begin.push_back(static_cast<std::uint32_t>(chunks.weights.size()));
    for (std::uint64_t left_of_part = part * load; left_of_part > 0;) {
      while (left_of_lane == 0) {
        ++lane;
        left_of_lane = lane->weight * all;
      }
      const std::uint64_t weight = std::min(left_of_part, left_of_lane);
      chunks.weights.push_back(static_cast<std::uint32_t>(weight));
      chunks.owners.push_back(lane->owner);
      left_of_part -= weight;
      left_of_lane -= weight;
    }
  }
  chunks.part_begin.push_back(static_cast<std::uint32_t>(chunks.weights.size()));
  return chunks;
}

}  // namespace rackrail::planner

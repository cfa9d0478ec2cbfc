#include "sim/work_left.hpp"

#include <algorithm>
#include <limits>

#include "sim/engine_state.hpp"

namespace rackrail::sim {

namespace {

// Sums of doubles, and ends of flows within the rounding of their rates.
constexpr double kWorkPrecision = 1e-6;

/// What one message for each slice of a transfer moves in all.
std::int64_t bytes_of(const GraphIndex& index, const Item& item) {
  const std::int64_t last = slice_bytes(index, item, item.slices - 1);
  return item.slices == 1 ? last : (item.slices - 1) * slice_bytes(index, item, 0) + last;
}

}  // namespace

WorkLeft::WorkLeft(const topology::Topology& topology, double tolerance)
    : links_(topology.link_count()) {
  for (std::size_t l = 0; l < links_.size(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    const double rate =
        static_cast<double>(link.bandwidth.bytes_per_second()) / kPicosecondsPerSecond;
    links_[l].at_once = static_cast<double>(link.burst.count());
    links_[l].time_per_byte =
        rate > 0 ? std::max(0.0, 1 - 2 * tolerance) * (1 - kWorkPrecision) / rate : 0;
  }
}

void WorkLeft::add(const GraphIndex& index) {
  std::vector<std::int64_t> bytes(index.routes.size());
  Item item;
  for (std::uint32_t lane = 0; lane < index.lanes.size(); ++lane) {
    for (std::uint32_t position = 0; position < index.lanes[lane].count; ++position) {
      const Place place{lane, position};
      index.get(place, item);
      const bool is_sent = item.group == kNoGroup || index.groups[item.group].front() == place;
      if (is_sent && item.slices > 0) {
        bytes[item.route] += bytes_of(index, item);
      }
    }
  }
  for (std::size_t route = 0; route < bytes.size(); ++route) {
    begin(index.routes[route], -bytes[route]);
  }
}

void WorkLeft::begin(const RouteUse& route, std::int64_t bytes) {
  for (std::size_t hop = 0; hop < route.links.size(); ++hop) {
    links_[route.links[hop].index()].bytes -= static_cast<double>(bytes) * share_of(route, hop);
  }
}

Time WorkLeft::at_least() const {
  double most = 0;
  for (const Link& link : links_) {
    most = std::max(most, (link.bytes - link.at_once) * link.time_per_byte);
  }
  constexpr auto kNever = static_cast<double>(std::numeric_limits<Time>::max() / 4);
  return static_cast<Time>(std::min(most, kNever));  // leaves room to add other times
}

}  // namespace rackrail::sim

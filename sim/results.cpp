#include "sim/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace rackrail::sim {

void require_same_ranks(const std::string& what, std::size_t ranks,
                        const topology::Topology& topology) {
  if (ranks != topology.rank_count()) {
    throw PlanError(ErrorContext{
        "", what, fmt::format("{} ranks", ranks),
        fmt::format("{} as cluster '{}' has", topology.rank_count(), topology.name())});
  }
}

void require_in_step(const SimulationOptions& options) {
  if (options.is_asynchronous) {
    throw ConfigError(ErrorContext{"", "scenario", "asynchronous: true",
                                   "false: what was asked for is of synchronous ranks"});
  }
}

bool has_headers(const SimulationOptions& options) {
  return options.network == NetworkLevel::kPacket && options.packets.header > Bytes(0);
}

double mean_rate(const topology::Topology& topology, const Disturbances& disturbances, LinkId link,
                 Duration from, Duration to) {
  auto rate = static_cast<double>(topology.link(link).bandwidth.bytes_per_second());
  double bytes = 0;
  Duration since = from;
  for (const CapacityChange& change : disturbances.capacity) {  // in the order of time
    if (change.link != link || change.at >= to) {
      continue;
    }
    if (change.at > since) {
      bytes += rate * (change.at - since).seconds();
      since = change.at;
    }
    rate = static_cast<double>(change.bandwidth.bytes_per_second());
  }
  return to > from ? (bytes + rate * (to - since).seconds()) / (to - from).seconds() : rate;
}

std::vector<double> possible_bytes(const topology::Topology& topology,
                                   const Disturbances& disturbances,
                                   const std::vector<LinkId>& links, Duration start, Duration part,
                                   std::size_t count) {
  struct Rate {
    double bytes_per_second = 0;
    Duration since;
  };
  std::vector<double> possible(count * links.size());
  std::vector<Rate> rates;
  std::vector<std::size_t> place(topology.link_count(), SIZE_MAX);
  for (const LinkId link : links) {
    place[link.index()] = rates.size();
    rates.push_back(
        {static_cast<double>(topology.link(link).bandwidth.bytes_per_second()), Duration()});
  }
  const auto carry_until = [&](std::size_t link, Duration end) {  // times since `start`
    Rate& rate = rates[link];
    for (auto i = static_cast<std::size_t>(rate.since / part); i < count && rate.since < end; ++i) {
      const Duration until = std::min(end, part * static_cast<std::int64_t>(i + 1));
      possible[i * links.size() + link] += rate.bytes_per_second * (until - rate.since).seconds();
      rate.since = until;
    }
  };
  for (const CapacityChange& change : disturbances.capacity) {  // in the order of time
    const std::size_t link = place[change.link.index()];
    if (link != SIZE_MAX) {
      carry_until(link, change.at - start);
      rates[link].bytes_per_second = static_cast<double>(change.bandwidth.bytes_per_second());
    }
  }
  for (std::size_t link = 0; link < links.size(); ++link) {
    carry_until(link, part * static_cast<std::int64_t>(count));
  }
  return possible;
}

std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               const Carried& carried, const Disturbances& disturbances,
                               Duration from, Duration to) {
  std::vector<LinkUse> uses;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const bool is_counted = !carried.plan.empty() && carried.plan[i] >= 0;
    const double plan = is_counted ? carried.plan[i] : static_cast<double>(bytes[i].count());
    const Bytes others(std::llround(carried.others[i]));
    if (bytes[i].count() > 0 || plan > 0 || others.count() > 0) {
      const double possible =
          mean_rate(topology, disturbances, LinkId(i), from, to) * (to - from).seconds();
      const auto share = [&](double moved) { return possible > 0 ? moved / possible : 0; };
      uses.push_back({LinkId(i), bytes[i], share(plan), others, share(carried.others[i])});
    }
  }
  return uses;
}

}  // namespace rackrail::sim

#include "sim/results.hpp"

#include <fmt/format.h>

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
                                   "none of it here, where all ranks keep in step"});
  }
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

std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               const std::vector<Bytes>& background,
                               const Disturbances& disturbances, Duration from, Duration to) {
  std::vector<LinkUse> uses;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i].count() > 0 || background[i].count() > 0) {
      const double possible =
          mean_rate(topology, disturbances, LinkId(i), from, to) * (to - from).seconds();
      const auto share = [&](Bytes moved) {
        return possible > 0 ? static_cast<double>(moved.count()) / possible : 0;
      };
      uses.push_back({LinkId(i), bytes[i], share(bytes[i]), background[i], share(background[i])});
    }
  }
  return uses;
}

}  // namespace rackrail::sim

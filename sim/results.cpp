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

std::vector<LinkUse> link_uses(const topology::Topology& topology, const std::vector<Bytes>& bytes,
                               Duration time) {
  std::vector<LinkUse> uses;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i].count() > 0) {
      const auto rate = static_cast<double>(topology.link(LinkId(i)).bandwidth.bytes_per_second());
      uses.push_back({LinkId(i), bytes[i],
                      time > Duration()
                          ? static_cast<double>(bytes[i].count()) / (rate * time.seconds())
                          : 0});
    }
  }
  return uses;
}

}  // namespace rackrail::sim

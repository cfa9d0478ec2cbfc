#include "cli/health.hpp"

#include <algorithm>

#include "base/parse_units.hpp"
#include "cli/table.hpp"

namespace rackrail::cli {

namespace {

constexpr double kMostSynchronisation = 0.2;
constexpr double kLeastBusy = 0.7;
constexpr Duration kLongestCopies = 5_ms;
constexpr double kMostStarvation = 0.1;

bool crosses_to_host(const topology::Topology& cluster, LinkId id) {
  const topology::Link& link = cluster.link(id);
  const auto is_cpu = [&](NodeId node) {
    return cluster.node(node).kind == topology::NodeKind::kCpu;
  };
  return link.kind == topology::LinkKind::kPcie && is_cpu(link.from) != is_cpu(link.to);
}

std::optional<Duration> host_device_copies(const sim::StepResult& result,
                                           const topology::Topology& cluster) {
  bool is_possible = result.copies.has_value();
  for (std::size_t i = 0; i < cluster.link_count() && !is_possible; ++i) {
    is_possible = crosses_to_host(cluster, LinkId(i));
  }
  if (!is_possible) {
    return std::nullopt;
  }
  Duration longest = result.copies.value_or(Duration());
  for (const sim::LinkUse& use : result.links) {
    if (crosses_to_host(cluster, use.link)) {
      longest = std::max(longest, use.bytes / cluster.link(use.link).bandwidth);
    }
  }
  return longest;
}

}  // namespace

std::string HealthFigure::text() const { return time ? to_string(*time) : percent(share); }

std::vector<HealthFigure> health(const sim::StepResult& result, const topology::Topology& cluster,
                                 bool loads) {
  const plan::StepEstimate& estimate = result.estimate;
  const auto share = [&](Duration time) {
    return estimate.step_time > Duration() ? time / estimate.step_time : 0;
  };
  std::vector<HealthFigure> figures;
  figures.push_back({.what = "gradient synchronisation",
                     .share = estimate.sync_share,
                     .limit = "below 20 %",
                     .is_healthy = estimate.sync_share < kMostSynchronisation});
  figures.push_back({.what = "device busy",
                     .share = result.device_busy,
                     .limit = "above 70 %",
                     .is_healthy = result.device_busy > kLeastBusy});
  if (const std::optional<Duration> copies = host_device_copies(result, cluster)) {
    figures.push_back({.what = "host-device copies",
                       .share = share(*copies),
                       .time = copies,
                       .limit = "below 5 ms",
                       .is_healthy = *copies < kLongestCopies});
  }
  if (loads) {
    const double starved = share(result.steps[result.reported].waited_for_data);
    figures.push_back({.what = "data starvation",
                       .share = starved,
                       .limit = "below 10 %",
                       .is_healthy = starved < kMostStarvation});
  }
  return figures;
}

}  // namespace rackrail::cli

#include "planner/replan/kept_plan.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/error.hpp"
#include "plan/codec_name.hpp"
#include "planner/replan/link_map.hpp"
#include "planner/replan/replan.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

using topology::Topology;

std::string bucket_name(const plan::Plan& plan, const plan::Bucket& bucket) {
  return fmt::format("{} {}", plan.schedules[bucket.schedule].name(),
                     plan::display_name(bucket.codec));
}

void require_plan_for(const plan::Plan& plan, const Topology& before,
                      const plan::Workload& workload) {
  if (plan.cluster_digest != before.digest() || plan.workload_digest != workload.digest()) {
    throw PlanError(ErrorContext{
        "", "plan '" + plan.name + "'", "one for something else",
        fmt::format("one for model '{}' on cluster '{}'", workload.name, before.name())});
  }
}

void move_to(plan::Plan& plan, const Topology& now) {
  plan.cluster_name = now.name();
  plan.cluster_digest = now.digest();
  plan.adapters = topology::adapters_of(now);
}

Topology changed_cluster(const Topology& topology, std::span<const LinkChange> changes) {
  Topology now = topology;
  std::vector<LinkId> lost;
  for (const LinkChange& change : changes) {
    if (!change.bandwidth) {
      lost.push_back(change.link);
    } else {
      now.set_link_rate(change.link, *change.bandwidth, topology.link(change.link).latency);
    }
  }
  now = without_links(now, lost);
  now.require_connected();
  return now;
}

std::optional<Duration> step_if_kept(const plan::Plan& plan, const Topology& before,
                                     const Topology& now, std::span<const LinkChange> changes,
                                     const plan::Workload& workload, plan::CostModel& cost_model) {
  require_plan_for(plan, before, workload);
  const LinkMap links(before.link_count(), changes);
  plan::Plan kept = plan;
  move_to(kept, now);
  for (plan::TransferGraph& graph : kept.schedules) {
    auto same = renumbered(graph, links);
    if (!same) return std::nullopt;
    graph = std::move(*same);
  }
  return cost_model.predicted_step(kept, workload).step_time;
}

}  // namespace rackrail::planner

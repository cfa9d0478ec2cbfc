#include "planner/replan/kept_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/codec_name.hpp"
#include "planner/replan/link_map.hpp"
#include "planner/replan/replan.hpp"
#include "topology/queries.hpp"
#include "topology/remove.hpp"

namespace rackrail::planner {

using topology::Topology;

namespace {

/// Vertices that the first rank reaches over links that are not lost, or that reach it.
std::vector<bool> reached(const Topology& topology, const std::vector<bool>& is_lost, bool back) {
  std::vector<bool> is_reached(topology.node_count());
  std::vector<NodeId> queue{topology.node_of(Rank(0))};
  is_reached[queue.front().index()] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const NodeId here = queue[i];
    for (const LinkId id : back ? topology.links_into(here) : topology.links_out_of(here)) {
      const topology::Link& link = topology.link(id);
      const NodeId next = back ? link.from : link.to;
      if (link.kind != topology::LinkKind::kShared && !is_lost[id.index()] &&
          !is_reached[next.index()]) {
        is_reached[next.index()] = true;
        queue.push_back(next);
      }
    }
  }
  return is_reached;
}

/// Ranks with a way there and back to the first one, and the others.
struct Parts {
  std::vector<Rank> together;
  std::vector<Rank> apart;
};

Parts parts_without(const Topology& topology, std::span<const LinkId> lost) {
  std::vector<bool> is_lost(topology.link_count());
  for (const LinkId link : lost) {
    is_lost[link.index()] = true;
  }
  const std::vector<bool> there = reached(topology, is_lost, false);
  const std::vector<bool> back = reached(topology, is_lost, true);
  Parts parts;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const std::size_t v = topology.node_of(Rank(r)).index();
    (there[v] && back[v] ? parts.together : parts.apart).emplace_back(r);
  }
  return parts;
}

/// "host3", "host0, host1, host2, host3 and 4 more".
std::string machines_of(const Topology& topology, const std::vector<Rank>& ranks) {
  std::vector<std::string> names;
  for (const Rank rank : ranks) {
    const topology::Node& node = topology.node(topology.node_of(rank));
    const std::string& name = node.host.empty() ? node.name : node.host;
    if (std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
  constexpr std::size_t kMostNamed = 4;
  const std::size_t more = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : std::string());
}

[[noreturn]] void fail(const Topology& topology, std::span<const LinkId> lost, const Parts& parts) {
  const auto& [together, apart] = parts;
  const bool is_alone = !parts_without(topology, lost.last(1)).apart.empty();
  throw ConfigError(ErrorContext{
      "", fmt::format("lost link {}", topology.link_name(lost.back())),
      fmt::format(
          "it cuts {} off: no path is left between there and the other {}{}",
          machines_of(topology, apart.size() <= together.size() ? apart : together),
          counted(static_cast<std::int64_t>(std::max(apart.size(), together.size())), "rank"),
          is_alone ? "" : ", with the links lost before it"),
      "every rank to reach every other over the links that are left"});
}

/// The cluster without these links. Throws ConfigError that names the first of them without which
/// some ranks no longer reach the others there and back, and the machines of the smaller part.
Topology without_links(const Topology& topology, std::span<const LinkId> lost) {
  if (lost.empty()) {
    return topology;
  }
  if (topology.rank_count() > 1 && !parts_without(topology, lost).apart.empty()) {
    std::size_t connected = 0;  // with so many of them lost, and not with `apart` many
    std::size_t apart = lost.size();
    while (apart - connected > 1) {
      const std::size_t middle = (connected + apart) / 2;
      (parts_without(topology, lost.first(middle)).apart.empty() ? connected : apart) = middle;
    }
    fail(topology, lost.first(apart), parts_without(topology, lost.first(apart)));
  }
  return topology::without(topology, {}, lost);
}

}  // namespace

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

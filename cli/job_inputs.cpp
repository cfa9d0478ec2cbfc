#include "cli/job_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "base/error.hpp"
#include "cli/inputs.hpp"
#include "plan/format.hpp"

namespace rackrail::cli {

namespace {

/// The ranks of `cluster` with the names of the plan's.
std::vector<Rank> ranks_by_name(const plan::Plan& plan, const std::string& plan_path,
                                const topology::Topology& cluster) {
  std::vector<Rank> ranks;
  for (const std::string& name : plan.rank_names) {
    const auto node = cluster.find_node(name);
    const auto rank = node ? cluster.rank_of(*node) : std::nullopt;
    if (!rank) {
      throw PlanError(
          ErrorContext{plan_path, "rank_names",
                       fmt::format("'{}', which is no rank of cluster '{}'", name, cluster.name()),
                       "'hosts' or 'ranks' in the scenario that say where its ranks are"});
    }
    ranks.push_back(*rank);
  }
  return ranks;
}

/// By link of `own`, the link of `cluster` between vertices of the same names; of several, the one
/// with its number among them.
std::vector<LinkId> links_by_name(const topology::Topology& own, const std::string& plan_path,
                                  const topology::Topology& cluster) {
  const auto ends = [](const topology::Topology& topology, std::size_t i) {
    const topology::Link& link = topology.link(LinkId(i));
    return topology.node(link.from).name + "→" + topology.node(link.to).name;
  };
  std::unordered_map<std::string, std::vector<LinkId>> named;
  for (std::size_t i = 0; i < cluster.link_count(); ++i) {
    named[ends(cluster, i)].emplace_back(i);
  }
  std::unordered_map<std::string, std::size_t> seen;
  std::vector<LinkId> links;
  for (std::size_t i = 0; i < own.link_count(); ++i) {
    const std::string name = ends(own, i);
    const std::size_t number = seen[name]++;
    const auto there = named.find(name);
    if (there == named.end() || number >= there->second.size()) {
      throw PlanError(
          ErrorContext{plan_path, "routes",
                       fmt::format("routes for cluster '{}', whose link {} is not in cluster '{}'",
                                   own.name(), name, cluster.name()),
                       "a cluster with the links that the plan pins, or 'multipath: ecmp'"});
    }
    links.push_back(there->second[number]);
  }
  return links;
}

std::vector<LinkId> links_of(Session& session, const plan::Plan& plan, const std::string& plan_path,
                             const sim::JobPlace& place, const topology::Topology& cluster) {
  ClusterOptions source{.cluster = place.cluster.empty() ? plan.cluster_name : place.cluster,
                        .overlay = {},
                        .format = {}};
  topology::Topology own;
  try {
    own = source.load(session);
  } catch (const ConfigError&) {
    if (!place.cluster.empty()) {
      throw;
    }
    throw PlanError(ErrorContext{
        plan_path, "cluster_name",
        fmt::format("routes for cluster '{}', which is not a shipped one", plan.cluster_name),
        "'cluster' in the scenario with the file it was made for, or 'multipath: ecmp'"});
  }
  if (own.digest() != plan.cluster_digest) {
    throw PlanError(ErrorContext{
        plan_path, "cluster_digest",
        fmt::format("a plan for cluster '{}' ({:.12})", plan.cluster_name, plan.cluster_digest),
        fmt::format("one for cluster '{}' ({:.12})", own.name(), own.digest())});
  }
  return links_by_name(own, plan_path, cluster);
}

sim::Job load_job(Session& session, const sim::JobPlace& place,
                  const sim::SimulationOptions& options, const topology::Topology& cluster) {
  sim::Job job{.name = place.name,
               .plan = plan::load_unverified(place.plan),
               .ranks = place.ranks,
               .start = place.start,
               .steps = place.steps.value_or(options.steps)};
  session.add_input(place.plan);
  job.workload =
      load_workload(session, place.workload.empty() ? job.plan.workload_name : place.workload);
  plan::require_right(job.plan, nullptr, &job.workload, place.plan);
  if (job.ranks.empty()) {
    job.ranks = ranks_by_name(job.plan, place.plan, cluster);
  }
  if (options.multipath != sim::Multipath::kPinned ||
      std::none_of(job.plan.schedules.begin(), job.plan.schedules.end(), sim::pins_routes)) {
    return job;
  }
  // Routes that begin at the hosts that the plan names lead nowhere from others.
  for (std::size_t r = 0; r < std::min(job.ranks.size(), job.plan.rank_count()); ++r) {
    const std::string& name = cluster.node(cluster.node_of(job.ranks[r])).name;
    if (name != job.plan.rank_names[r]) {
      throw PlanError(ErrorContext{
          place.plan, "routes",
          fmt::format("routes from '{}', for a job that has '{}' there", job.plan.rank_names[r],
                      name),
          "the ranks that the plan names, or 'multipath: ecmp' (or spray) in the scenario"});
    }
  }
  if (job.plan.cluster_digest != cluster.digest()) {
    job.links = links_of(session, job.plan, place.plan, place, cluster);
  }
  return job;
}

}  // namespace

std::vector<sim::Job> load_jobs(Session& session, const std::string& plan_path,
                                const std::string& workload, const sim::Scenario& scenario,
                                const topology::Topology& cluster) {
  sim::JobPlace first = scenario.placement;
  first.plan = plan_path;
  first.workload = workload;
  if (first.name.empty()) {
    first.name = std::filesystem::path(plan_path).stem().string();
  }
  std::vector<sim::Job> jobs = {load_job(session, first, scenario.options, cluster)};
  for (const sim::JobPlace& place : scenario.jobs) {
    jobs.push_back(load_job(session, place, scenario.options, cluster));
  }
  return jobs;
}

}  // namespace rackrail::cli

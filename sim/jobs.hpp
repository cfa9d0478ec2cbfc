// Several jobs on one cluster: each trains with a plan of its own on ranks of its own, and all
// share the links (and processors) that lie between.
//
// Model. All jobs are programs of one engine over one network, so their messages share links
// max-min fair, as those of one job do; nothing is added for the jobs' sake. What a job loses by
// the others is told by simulating it a second time alone, from the same start on the same cluster
// with the same disturbances: a job whose links nobody else uses takes the same time to the
// picosecond. Whether jobs hinder each other depends on when they communicate as much as on how
// much: with steps of equal length, one's messages may fit into the others' computation
// (Rajasekaran et al., "CASSINI: Network-Aware Job Scheduling in Machine Learning Clusters", NSDI
// 2024), which different starts show.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

struct Job {
  std::string name;
  plan::Plan plan;
  plan::Workload workload;
  std::vector<Rank> ranks;  ///< of the cluster, by rank of the plan
  Duration start;
  int steps = 1;
  /// The cluster's links, by link of the cluster that the plan was made for; empty where that is
  /// this one, or the plan pins no routes.
  std::vector<LinkId> links;
};

struct JobResult {
  std::string name;
  std::vector<StepSpan> steps;        ///< beside the others, since the start of the simulation
  std::vector<StepSpan> steps_alone;  ///< the same job without the others
  double step_time_s = 0;             ///< mean: from the job's start to its end, by its steps
  double step_time_alone_s = 0;
  double slowdown = 1;  ///< step_time_s / step_time_alone_s; 1 where both are 0
  double samples_per_s = 0;
  std::vector<plan::TimelineEvent> timeline;  ///< beside the others, when recorded
};

struct JobsResult {
  std::vector<JobResult> jobs;
  Duration start;              ///< of the first job
  Duration end;                ///< of the last one
  std::vector<LinkUse> links;  ///< of all jobs together, from start to end
  std::vector<QueueUse> queues;
  std::uint64_t events = 0;
  std::uint64_t flows = 0;
};

/// Whether `graph` says itself over which links it goes.
bool pins_routes(const plan::TransferGraph& graph);

/// `options.steps` is ignored, and of what can be recorded only the timeline is; the other options
/// hold for all jobs. Throws PlanError when a plan does not belong to its workload or has another
/// number of ranks than its job, or when two jobs have the same rank; ConfigError for asynchronous
/// options; SimulationError as simulate_step().
JobsResult simulate_jobs(const std::vector<Job>& jobs, const topology::Topology& topology,
                         const SimulationOptions& options);

}  // namespace rackrail::sim

#include "sim/jobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "sim/engine.hpp"
#include "sim/placed_plan.hpp"
#include "sim/programs.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

void require_places(const std::vector<Job>& jobs, const topology::Topology& topology) {
  std::vector<const Job*> owner(topology.rank_count(), nullptr);
  for (const Job& job : jobs) {
    const std::string what = "job '" + job.name + "'";
    require_matching(job.plan, job.workload);
    if (job.ranks.size() != job.plan.rank_count()) {
      throw PlanError(ErrorContext{"", what, fmt::format("{} ranks", job.ranks.size()),
                                   fmt::format("{}, as its plan has", job.plan.rank_count())});
    }
    for (const Rank rank : job.ranks) {
      if (rank.index() >= owner.size()) {
        throw PlanError(ErrorContext{"", what, fmt::format("rank {}", rank.value()),
                                     fmt::format("0 to {}", owner.size() - 1)});
      }
      const Job*& user = owner[rank.index()];
      if (user != nullptr) {
        throw PlanError(ErrorContext{"", what,
                                     fmt::format("rank {}, which {} has", rank.value(),
                                                 user == &job ? "it" : "job '" + user->name + "'"),
                                     "a rank that is free"});
      }
      user = &job;
    }
  }
}

/// Some of the jobs together, in one engine.
struct Together {
  std::vector<std::vector<StepSpan>> steps;                 ///< by job
  std::vector<Duration> mean_step_times;                    ///< by job
  std::vector<std::vector<plan::TimelineEvent>> timelines;  ///< by job
  std::vector<Bytes> bytes;                                 ///< by link
  Carried carried;
  std::vector<QueueUse> queues;
  std::uint64_t events = 0;
  std::uint64_t flows = 0;
};

Together run(const std::vector<const Job*>& jobs, const topology::Topology& topology,
             const SimulationOptions& options) {
  Engine engine(topology, options);
  GraphIndexer indexer(topology, options);
  std::vector<std::uint32_t> programs;
  for (const Job* job : jobs) {
    PlacedPlan placed_plan{job->plan, job->workload, job->ranks, {}};
    std::vector<plan::TransferGraph> schedules;
    for (const plan::TransferGraph& schedule : job->plan.schedules) {
      schedules.push_back(placed(schedule, job->ranks, topology.rank_count(), job->links));
    }
    for (const plan::Bucket& bucket : job->plan.buckets) {
      placed_plan.indices.push_back(
          indexer.index({schedules.at(bucket.schedule), bucket.elements, bucket.slice_elements}));
    }
    programs.push_back(
        add_steps(engine, placed_plan, topology, options, static_cast<std::size_t>(job->steps)));
    for (const Rank rank : job->ranks) {
      engine.start_at(rank, job->start);
    }
  }
  engine.watch(0, SIZE_MAX - 1, options.staleness > 0 || has_headers(options));
  engine.run();
  Together result;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Job* job = jobs[i];
    result.steps.push_back(engine.spans(programs[i]));
    const Duration done(engine.program_done(programs[i]));
    result.mean_step_times.emplace_back((done - job->start).picoseconds() / job->steps);
    result.timelines.push_back(options.record_timeline ? timeline(engine, 0, INT64_MAX, job->ranks)
                                                       : std::vector<plan::TimelineEvent>());
  }
  result.bytes = engine.link_bytes();
  result.carried = engine.carried();
  result.queues = engine.queues();
  result.events = engine.events();
  result.flows = engine.flows();
  return result;
}

}  // namespace

bool pins_routes(const plan::TransferGraph& graph) {
  return std::any_of(graph.transfers().begin(), graph.transfers().end(),
                     [&](const plan::Transfer& transfer) {
                       return !graph.routes()[transfer.route.index()].empty();
                     });
}

JobsResult simulate_jobs(const std::vector<Job>& jobs, const topology::Topology& topology,
                         const SimulationOptions& options) {
  require_in_step(options);
  require_places(jobs, topology);
  SimulationOptions shared = options;
  shared.record_critical_path = false;
  shared.record_flows = false;
  SimulationOptions single = shared;
  single.record_timeline = false;
  single.progress = {};
  std::vector<const Job*> all;
  for (const Job& job : jobs) {
    all.push_back(&job);
  }
  Together together = run(all, topology, shared);

  JobsResult result;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Job& job = jobs[i];
    JobResult of_job{.name = job.name, .steps = together.steps[i]};
    const Together alone = run({&job}, topology, single);
    of_job.steps_alone = alone.steps.front();
    of_job.step_time_s = together.mean_step_times[i].seconds();
    of_job.step_time_alone_s = alone.mean_step_times.front().seconds();
    if (of_job.step_time_alone_s > 0) {
      of_job.slowdown = of_job.step_time_s / of_job.step_time_alone_s;
      of_job.samples_per_s =
          static_cast<double>(job.plan.batch.global_batch()) / of_job.step_time_s;
    }
    of_job.timeline = std::move(together.timelines[i]);
    result.start = i == 0 ? job.start : std::min(result.start, job.start);
    result.end = std::max(result.end, of_job.steps.back().end);
    result.jobs.push_back(std::move(of_job));
  }
  result.links = link_uses(topology, together.bytes, together.carried, options.disturbances,
                           result.start, result.end);
  result.queues = std::move(together.queues);
  result.events = together.events;
  result.flows = together.flows;
  return result;
}

}  // namespace rackrail::sim

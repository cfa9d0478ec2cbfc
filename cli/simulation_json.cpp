#include "cli/simulation_json.hpp"

#include <nlohmann/json.hpp>

#include "cli/health.hpp"
#include "cli/simulation_text.hpp"

namespace rackrail::cli {

namespace {

nlohmann::json health_json(const std::vector<HealthFigure>& figures) {
  nlohmann::json list = nlohmann::json::array();
  for (const HealthFigure& figure : figures) {
    nlohmann::json& entry = list.emplace_back(nlohmann::json{{"what", figure.what},
                                                             {"share", figure.share},
                                                             {"limit", figure.limit},
                                                             {"healthy", figure.is_healthy}});
    if (figure.time) {
      entry["time_s"] = figure.time->seconds();
    }
  }
  return list;
}

nlohmann::json steps_json(const std::vector<sim::StepSpan>& steps) {
  nlohmann::json list = nlohmann::json::array();
  for (const sim::StepSpan& step : steps) {
    list.push_back({{"start_s", step.start.seconds()},
                    {"end_s", step.end.seconds()},
                    {"waited_for_data_s", step.waited_for_data.seconds()}});
  }
  return list;
}

}  // namespace

nlohmann::json links_json(const topology::Topology& cluster,
                          const std::vector<sim::LinkUse>& links) {
  nlohmann::json list = nlohmann::json::array();
  for (const sim::LinkUse& use : links) {
    list.push_back({{"name", cluster.link_name(use.link)},
                    {"tier", cluster.link(use.link).tier},
                    {"bytes", use.bytes.count()},
                    {"utilization", use.utilization},
                    {"background_bytes", use.background.count()},
                    {"background_utilization", use.background_utilization}});
  }
  return list;
}

nlohmann::json queues_json(const topology::Topology& cluster,
                           const std::vector<sim::QueueUse>& queues) {
  nlohmann::json list = nlohmann::json::array();
  for (const sim::QueueUse& use : queues) {
    list.push_back({{"name", cluster.link_name(use.link)},
                    {"longest_bytes", use.longest.count()},
                    {"marks", use.marks},
                    {"pauses", use.pauses},
                    {"trims", use.trims}});
  }
  return list;
}

nlohmann::json critical_path_json(const std::vector<sim::PathPiece>& path) {
  nlohmann::json list = nlohmann::json::array();
  for (const sim::PathPiece& piece : path) {
    list.push_back({{"what", piece.what},
                    {"start_s", piece.start.seconds()},
                    {"end_s", piece.end.seconds()},
                    {"waited_s", piece.waited.seconds()}});
  }
  return list;
}

nlohmann::json step_json(const PlanInput& input, const sim::StepResult& result, bool loads) {
  return {{"step_time_s", result.estimate.step_time.seconds()},
          {"mean_step_time_s", result.mean_step_time.seconds()},
          {"health", health_json(health(result, input.cluster, loads))},
          {"samples_per_s", throughput(input.plan, result)},
          {"steps", steps_json(result.steps)},
          {"reported_step", result.reported},
          {"compute_time_s", result.estimate.compute_time.seconds()},
          {"waited_for_data_s", result.waited_for_data.seconds()},
          {"waited_for_others_s", result.waited_for_others.seconds()},
          {"sync_share", result.estimate.sync_share},
          {"critical_path", critical_path_json(result.records.critical_path)},
          {"links", links_json(input.cluster, result.links)},
          {"queues", queues_json(input.cluster, result.queues)},
          {"events", result.events},
          {"flows", result.flows}};
}

nlohmann::json jobs_json(const topology::Topology& cluster, const sim::JobsResult& result) {
  nlohmann::json jobs = nlohmann::json::array();
  for (const sim::JobResult& job : result.jobs) {
    jobs.push_back({{"name", job.name},
                    {"start_s", job.steps.front().start.seconds()},
                    {"end_s", job.steps.back().end.seconds()},
                    {"step_time_s", job.step_time_s},
                    {"step_time_alone_s", job.step_time_alone_s},
                    {"slowdown", job.slowdown},
                    {"samples_per_s", job.samples_per_s},
                    {"steps", steps_json(job.steps)}});
  }
  return {{"jobs", jobs},
          {"start_s", result.start.seconds()},
          {"end_s", result.end.seconds()},
          {"links", links_json(cluster, result.links)},
          {"queues", queues_json(cluster, result.queues)},
          {"events", result.events},
          {"flows", result.flows}};
}

nlohmann::json outages_json(const explore::OutageResult& result) {
  nlohmann::json phases = nlohmann::json::array();
  for (const explore::Phase& phase : result.phases) {
    phases.push_back({{"what", phase.what},
                      {"start_s", phase.start.seconds()},
                      {"end_s", phase.end.seconds()},
                      {"ranks", phase.ranks},
                      {"step_time_s", phase.step_time.seconds()},
                      {"steps", phase.steps},
                      {"lost_steps", phase.lost}});
  }
  return {{"phases", phases},
          {"samples_per_s", result.samples_per_s},
          {"undisturbed_samples_per_s", result.undisturbed_samples_per_s}};
}

}  // namespace rackrail::cli

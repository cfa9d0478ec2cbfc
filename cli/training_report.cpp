#include "cli/training_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file.hpp"
#include "base/parse_units.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/table.hpp"
#include "cli/trace.hpp"
#include "plan/format.hpp"
#include "plan/noise_scale.hpp"
#include "topology/queries.hpp"

namespace rackrail::cli {
namespace {

/// The estimate over the last fifty steps or so; none for one rank, or while the gradient drowns.
std::optional<double> noise_scale(const plan::Plan& plan, const runtime::JobResult& job) {
  std::size_t steps = job.workers.size() < 2 ? 0 : job.workers[0].squared_norms.size();
  for (const runtime::WorkerReport& worker : job.workers) {
    steps = std::min(steps, worker.weighted_squared_norms.size());
  }
  // The latest steps of all: a worker that came for a lost one has no others.
  const auto at = [steps](const std::vector<double>& values, std::size_t step) {
    return values[values.size() - steps + step];
  };
  plan::NoiseScaleEstimator estimator;
  for (std::size_t step = 0; step < steps; ++step) {
    double weighted = 0;
    for (const runtime::WorkerReport& worker : job.workers) {
      weighted += at(worker.weighted_squared_norms, step);
    }
    estimator.add(weighted, at(job.workers[0].squared_norms, step), job.workers.size(),
                  plan.batch.global_batch());
  }
  return estimator.noise_scale();
}

std::uint32_t first_step_of(const runtime::JobResult& job) {
  std::uint32_t first = ~0U;
  for (const runtime::WorkerReport& worker : job.workers) {
    first = std::min(first, worker.first_step);
  }
  return first;
}

/// By step of this run, of those workers that did it and are there at the end.
std::vector<double> mean_losses(const runtime::JobResult& job) {
  const std::uint32_t first = first_step_of(job);
  std::vector<double> losses;
  std::vector<double> workers;
  for (const runtime::WorkerReport& worker : job.workers) {
    const std::size_t begin = worker.first_step - first;
    losses.resize(std::max(losses.size(), begin + worker.losses.size()), 0.0);
    workers.resize(losses.size(), 0.0);
    for (std::size_t i = 0; i < worker.losses.size(); ++i) {
      ++workers[begin + i];
    }
  }
  for (const runtime::WorkerReport& worker : job.workers) {
    const std::size_t begin = worker.first_step - first;
    for (std::size_t i = 0; i < worker.losses.size(); ++i) {
      losses[begin + i] += worker.losses[i] / workers[begin + i];
    }
  }
  return losses;
}

/// The step from which on no loss is finite.
std::optional<std::int64_t> first_of_no_loss(const runtime::JobResult& job,
                                             const std::vector<double>& losses) {
  const auto last_finite =
      std::find_if(losses.rbegin(), losses.rend(), [](double loss) { return std::isfinite(loss); });
  if (last_finite == losses.rbegin()) {
    return std::nullopt;
  }
  return first_step_of(job) + (losses.rend() - last_finite);
}

/// What computed: that of rank 0.
std::string device_of(const runtime::JobResult& job) {
  return job.workers.empty() ? "" : job.workers[0].device;
}

const char* mode_of(const trainer::Synchrony& synchrony) {
  return synchrony.local_steps ? "periodic-averaging"
         : synchrony.staleness ? "asynchronous"
                               : "synchronous";
}

/// The updates of all servers together.
void add_conflicts(const runtime::JobResult& job, TrainingSummary& summary) {
  double updates = 0;
  double conflicts = 0;
  double stale = 0;
  for (const runtime::WorkerReport& worker : job.workers) {
    updates += worker.updates;
    conflicts += worker.conflicts;
    stale += worker.stale_updates;
    summary.most_ahead = std::max(summary.most_ahead, worker.most_ahead);
  }
  // Without a staleness the one update of a step is on what all have read.
  summary.conflict_rate = updates > 0 ? conflicts / updates : 0;
  summary.staleness_updates = updates > 0 ? stale / updates : 0;
}

std::string conflicts_text(double rate, double staleness) {
  return fmt::format("{} of the updates met newer parameters ({:.2f} updates on average)",
                     percent(rate), staleness);
}

template <typename Number>
nlohmann::json or_null(const std::optional<Number>& value) {
  return value.has_value() ? nlohmann::json(*value) : nlohmann::json();
}

}  // namespace

nlohmann::json rank_rows(const runtime::JobResult& job) {
  nlohmann::json rows = nlohmann::json::array();
  for (const runtime::WorkerReport& worker : job.workers) {
    rows.push_back({{"rank", worker.rank.value()},
                    {"host", worker.host},
                    {"step_time_s", worker.step_time.seconds()},
                    {"compute_s", worker.compute_time.seconds()},
                    {"compute_cpu_s", worker.compute_cpu_time.seconds()},
                    {"sync_wait_s", worker.sync_time.seconds()},
                    {"input_wait_s", worker.input_wait.seconds()},
                    {"encode_s", worker.encode_step_time.seconds()},
                    {"decode_s", worker.decode_step_time.seconds()},
                    {"progress_cpu_s", worker.progress_cpu_time.seconds()},
                    {"process_cpu_s", worker.process_cpu_time.seconds()}});
  }
  return rows;
}

TrainingSummary summarise(const plan::Plan& plan, const runtime::JobResult& job,
                          const trainer::Synchrony& synchrony) {
  TrainingSummary summary;
  summary.synchrony = synchrony;
  const auto ranks = static_cast<double>(job.workers.size());
  for (const runtime::WorkerReport& worker : job.workers) {
    summary.steps = std::max(summary.steps, worker.steps);
    summary.step_time = std::max(
        summary.step_time, synchrony.is_synchronous() ? worker.step_time : worker.mean_step_time);
    summary.sync_share = std::max(summary.sync_share, worker.sync_share);
    summary.cpu_time += worker.cpu_time;
    summary.parameters_agree =
        summary.parameters_agree && worker.parameters_digest == job.workers[0].parameters_digest;
    summary.loss += worker.final_loss / ranks;
    if (worker.final_accuracy.has_value()) {
      summary.accuracy = worker.final_accuracy;
    }
  }
  summary.losses = mean_losses(job);
  summary.diverged_at = first_of_no_loss(job, summary.losses);
  summary.other_cores = job.other_cores;
  summary.noise_scale = noise_scale(plan, job);
  if (synchrony.staleness) {
    add_conflicts(job, summary);
  }
  return summary;
}

std::vector<std::string> notes_of(const runtime::JobResult& job) {
  std::vector<std::string> notes = job.notes;
  if (!job.workers.empty()) {
    const auto& leaders = job.workers[0].notes;
    notes.insert(notes.end(), leaders.begin(), leaders.end());
  }
  for (std::size_t rank = 1; rank < job.workers.size(); ++rank) {
    for (const std::string& note : job.workers[rank].notes) {
      // What is the same on all has been said.
      if (std::find(notes.begin(), notes.end(), note) == notes.end()) {
        notes.push_back(fmt::format("rank {}: {}", rank, note));
      }
    }
  }
  return notes;
}

std::map<std::string, std::int64_t> bytes_over_tiers(
    const runtime::JobResult& job, const std::optional<topology::Topology>& cluster) {
  std::map<std::string, std::int64_t> tiers;
  if (!cluster.has_value()) {
    return tiers;
  }
  topology::Router router(*cluster);
  for (const runtime::WorkerReport& worker : job.workers) {
    for (const auto& [pair, bytes] : worker.bytes_by_pair) {
      std::set<std::string> crossed;
      for (const LinkId link : router.route(pair.first, pair.second)) {
        crossed.insert(cluster->link(link).tier);
      }
      for (const std::string& tier : crossed) {
        tiers[tier] += bytes.count();
      }
    }
  }
  return tiers;
}

std::string_view name_of(TrainingNetwork network) {
  switch (network) {
    case TrainingNetwork::kThisMachine:
      return "this machine";
    case TrainingNetwork::kEmulated:
      return "emulated";
    case TrainingNetwork::kLaunchers:
      return "launcher's";
    case TrainingNetwork::kUnknown:
      break;
  }
  return "unknown";
}

std::string training_text(const plan::Plan& plan, const runtime::JobResult& job,
                          const TrainingSummary& summary,
                          const std::optional<TrainingPrediction>& predicted,
                          const std::map<std::string, std::int64_t>& tiers) {
  Table table({{"run"}, {""}});
  table.add_row({"plan", plan.name});
  table.add_row({"workers", std::to_string(job.workers.size())});
  if (const std::string device = device_of(job); device != "cpu") {
    table.add_row({"device", device});
    table.add_row({"gradients by", job.workers[0].transport});
  }
  table.add_row({"steps", std::to_string(summary.steps)});
  if (const auto& local_steps = summary.synchrony.local_steps) {
    table.add_row({"averaged", fmt::format("parameters, every {} steps", *local_steps)});
  }
  if (const auto& staleness = summary.synchrony.staleness) {
    table.add_row({"asynchronous",
                   fmt::format("up to {} steps ahead ({} seen)", *staleness, summary.most_ahead)});
    table.add_row(
        {"conflicts", conflicts_text(*summary.conflict_rate, *summary.staleness_updates)});
    if (predicted.has_value() && predicted->conflict_rate.has_value()) {
      table.add_row(
          {"predicted", conflicts_text(*predicted->conflict_rate, *predicted->staleness_updates)});
    }
  }
  const bool has_measured = !summary.losses.empty();  // else no step was left after the checkpoint
  table.add_row({"step time",
                 has_measured ? fmt::format("{} ({}, slowest rank)", to_string(summary.step_time),
                                            summary.synchrony.is_synchronous() ? "median" : "mean")
                              : "- (no step was left)"});
  if (predicted.has_value()) {
    const Duration time = predicted->step_time;
    std::string compared;
    if (has_measured && summary.times_count()) {
      compared = fmt::format(" ({:+.1f} %)", (time / summary.step_time - 1) * kPercent);
    } else if (has_measured) {
      compared = fmt::format(" (the measured time does not count: {})",
                             other_load_text(*summary.other_cores));
    }
    table.add_row({"predicted", to_string(time) + compared});
  }
  if (summary.network == TrainingNetwork::kThisMachine) {
    table.add_row({"on the cluster",
                   fmt::format("{} predicted on '{}'; workers of one machine do not have its "
                               "network: see --emulate",
                               to_string(plan.prediction.step_time), plan.cluster_name)});
  }
  table.add_row(
      {"synchronisation",
       has_measured ? percent(summary.sync_share) + " of the step waits for gradients" : "-"});
  for (const auto& [tier, bytes] : tiers) {
    table.add_row({"over " + tier, to_string(Bytes(bytes))});
  }
  if (summary.noise_scale.has_value()) {
    table.add_row({"noise scale",
                   fmt::format("{:.4g} samples (gradients, last steps)", *summary.noise_scale)});
  }
  table.add_row({"final loss", has_measured ? fmt::format("{:.4f}", summary.loss) : "-"});
  if (summary.diverged_at.has_value()) {
    table.add_row({"diverged", fmt::format("no loss is finite from step {} on; a lower learning "
                                           "rate than {:g} may help",
                                           *summary.diverged_at, plan.batch.learning_rate)});
  }
  if (summary.accuracy.has_value()) {
    table.add_row({"final accuracy", percent(*summary.accuracy)});
  }
  table.add_row({"parameters",
                 summary.parameters_agree ? "bit-identical on all ranks" : "DIFFER between ranks"});
  return table.to_string();
}

nlohmann::json training_json(const plan::Plan& plan, const runtime::JobResult& job,
                             const TrainingSummary& summary,
                             const std::optional<TrainingPrediction>& predicted,
                             const std::map<std::string, std::int64_t>& tiers) {
  nlohmann::json result = {{"plan_name", plan.name},
                           {"plan_digest", plan::digest(plan)},
                           {"plan_step_time_s", plan.prediction.step_time.seconds()},
                           {"plan_sync_share", plan.prediction.sync_share},
                           {"workers", job.workers.size()},
                           {"device", device_of(job)},
                           {"transport", job.workers.empty() ? "" : job.workers[0].transport},
                           {"steps", summary.steps},
                           {"network", name_of(summary.network)},
                           {"mode", mode_of(summary.synchrony)},
                           {"local_steps", summary.synchrony.local_steps.value_or(1)},
                           {"final_loss", summary.loss},
                           {"step_time_s", summary.step_time.seconds()},
                           {"sync_share", summary.sync_share},
                           {"cpu_time_s", summary.cpu_time.seconds()},
                           {"wall_s", job.wall_time.seconds()},
                           {"bytes_over_tier", tiers},
                           {"ranks", rank_rows(job)},
                           {"parameters_agree", summary.parameters_agree},
                           {"epochs_of_membership", job.membership_epochs},
                           {"losses", summary.losses},
                           {"diverged_at_step", or_null(summary.diverged_at)},
                           {"resumed_from", job.resumed_from.string()},
                           {"notes", notes_of(job)}};
  if (summary.losses.empty()) {  // no step was left after the checkpoint
    for (const char* const measured : {"final_loss", "step_time_s", "sync_share"}) {
      result[measured] = nullptr;
    }
  }
  result["final_accuracy"] = or_null(summary.accuracy);
  result["other_load_cores"] = or_null(summary.other_cores);
  result["times_count"] = summary.times_count();
  result["noise_scale"] = or_null(summary.noise_scale);
  if (const auto& staleness = summary.synchrony.staleness) {
    result["staleness"] = *staleness;
    result["most_steps_ahead"] = summary.most_ahead;
    result["conflict_rate"] = or_null(summary.conflict_rate);
    result["staleness_updates"] = or_null(summary.staleness_updates);
    const TrainingPrediction expected = predicted.value_or(TrainingPrediction{});
    result["predicted_conflict_rate"] = or_null(expected.conflict_rate);
    result["predicted_staleness_updates"] = or_null(expected.staleness_updates);
  }
  result["predicted_step_time_s"] =
      predicted.has_value() ? nlohmann::json(predicted->step_time.seconds()) : nlohmann::json();
  return result;
}

void write_training_trace(const std::string& path, const plan::Plan& plan,
                          const runtime::JobResult& job,
                          const std::optional<TrainingPrediction>& predicted) {
  std::vector<TraceProcess> processes;
  TraceProcess measured{"measured: " + plan.name, {}};
  for (const runtime::WorkerReport& worker : job.workers) {
    measured.events.insert(measured.events.end(), worker.timeline.begin(), worker.timeline.end());
  }
  processes.push_back(std::move(measured));
  if (predicted.has_value() && !predicted->timeline.empty()) {
    processes.push_back({"simulated on this machine: " + plan.name, predicted->timeline});
  }
  write_file_atomically(path, to_trace_json(processes));
}

}  // namespace rackrail::cli

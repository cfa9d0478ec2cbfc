// What a training job did, for people (`train`) and for programs (`train --json`).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/other_load.hpp"
#include "base/units.hpp"
#include "cli/local_prediction.hpp"
#include "plan/plan.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/trainer/synchrony.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// What joined the workers: the plan's own network only where it was emulated, or where a launcher
/// put them there. Not known where the plan's cluster is not, or is one host, as this machine is.
enum class TrainingNetwork { kUnknown, kThisMachine, kEmulated, kLaunchers };

/// A job that trained to its end, as its leader saw it.
struct TrainingSummary {
  trainer::Synchrony synchrony;
  TrainingNetwork network = TrainingNetwork::kUnknown;
  std::uint32_t steps = 0;
  double loss = 0;             ///< of the last step, mean over the ranks
  std::vector<double> losses;  ///< likewise, by step of this run
  std::optional<double> accuracy;
  /// Of the slowest rank: median over the steps, or where not all of them synchronise the mean.
  Duration step_time;
  double sync_share = 0;
  Duration cpu_time;
  /// Of an asynchronous parameter server: share of the updates that met others', how many on
  /// average (parameter_shard.hpp), and the most steps that a worker was ahead of the slowest.
  std::optional<double> conflict_rate;
  std::optional<double> staleness_updates;
  std::int64_t most_ahead = 0;
  bool parameters_agree = true;
  /// From this step to the last one no loss was finite.
  std::optional<std::int64_t> diverged_at;
  /// None: not known, and times count.
  std::optional<double> other_cores;  ///< JobResult::other_cores
  bool times_count() const { return !is_busy(other_cores.value_or(0)); }
  std::optional<double> noise_scale;  ///< live estimate at the end, in samples
};

TrainingSummary summarise(const plan::Plan& plan, const runtime::JobResult& job,
                          const trainer::Synchrony& synchrony);

/// What the job and its leader have to say.
std::vector<std::string> notes_of(const runtime::JobResult& job);

/// Bytes that crossed each tier of the plan's cluster, by the tier's name; empty when the cluster
/// is not known here.
std::map<std::string, std::int64_t> bytes_over_tiers(
    const runtime::JobResult& job, const std::optional<topology::Topology>& cluster);

/// The key "network" of a run's JSON. To a run on this machine the plan's own step time, which is
/// of another network, says nothing.
std::string_view name_of(TrainingNetwork network);

std::string training_text(const plan::Plan& plan, const runtime::JobResult& job,
                          const TrainingSummary& summary,
                          const std::optional<TrainingPrediction>& predicted,
                          const std::map<std::string, std::int64_t>& tiers);
nlohmann::json training_json(const plan::Plan& plan, const runtime::JobResult& job,
                             const TrainingSummary& summary,
                             const std::optional<TrainingPrediction>& predicted,
                             const std::map<std::string, std::int64_t>& tiers);

/// Where a step's time goes on each rank, medians in seconds: computing (and the computing thread's
/// processor time in that), waiting for sums and for batches, encoding, decoding and adding, and
/// processor time of the progress thread and of all threads. An object per worker.
nlohmann::json rank_rows(const runtime::JobResult& job);

/// A Perfetto trace of the measured step beside the predicted one, where there is one.
void write_training_trace(const std::string& path, const plan::Plan& plan,
                          const runtime::JobResult& job,
                          const std::optional<TrainingPrediction>& predicted);

}  // namespace rackrail::cli

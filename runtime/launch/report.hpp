// What one worker says about its run, as the coordinator collects it from every rank.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/cost_model.hpp"

namespace rackrail::runtime {

struct WorkerReport {
  Rank rank;
  std::string host;
  std::int64_t pid = 0;
  std::string transport;           ///< name of what moved the gradients
  std::string device = "cpu";      ///< what computed: "cpu", or the name of a GPU
  std::vector<std::string> notes;  ///< what the user should know, one line each

  std::uint32_t first_step = 0;  ///< steps before this one came from a checkpoint
  std::uint32_t steps = 0;       ///< steps of the whole training that are done
  std::vector<double> losses;    ///< training loss of each step of this run, this rank's samples
  /// Of each step with an update: this rank's w_i·|g_i|² and everybody's |ḡ|²
  /// (plan/noise_scale.hpp).
  std::vector<double> weighted_squared_norms;
  std::vector<double> squared_norms;
  double final_loss = 0;                  ///< the last of them; 0 when no step was left
  std::optional<double> final_accuracy;   ///< share of the test samples; only rank 0 measures
  std::optional<double> final_test_loss;  ///< likewise
  std::uint32_t skipped_steps = 0;        ///< without an update, because the sum was not finite
  std::string parameters_digest;          ///< SHA-256 of the parameters: equal on all ranks

  // Medians over the measured steps of this run (the first few are not).
  Duration step_time;
  Duration compute_time;      ///< forward, backward, optimiser
  Duration compute_cpu_time;  ///< processor time of the computing thread in the same
  Duration sync_time;         ///< after backward, until all gradients were summed
  Duration input_wait;        ///< for batches
  /// Of the step time: gradients move and nothing computes. Where not every step synchronises, of
  /// the time of all measured steps.
  double sync_share = 0;
  Duration mean_step_time;
  // Likewise medians of a step, of the executor's and of all threads of this process.
  Duration encode_step_time;
  Duration decode_step_time;   ///< additions included
  Duration progress_cpu_time;  ///< ExecutorStatistics
  Duration process_cpu_time;

  // Of an asynchronous parameter server: UpdateStatistics.
  double updates = 0;
  double conflicts = 0;
  double stale_updates = 0;
  std::int64_t most_ahead = 0;

  Bytes bytes_sent;
  std::uint64_t messages = 0;
  std::map<std::pair<Rank, Rank>, Bytes> bytes_by_pair;  ///< sent by this rank, by (self, dst)
  Duration encode_time;                                  ///< in total
  Duration decode_time;                                  ///< in total
  Duration cpu_time;   ///< user and system time of this process since it joined
  Duration wall_time;  ///< from joining to the last step's end
  std::uint32_t membership_epochs = 1;
  /// Of the step that was asked for, from its start; trainer's and executor's tracks.
  std::vector<plan::TimelineEvent> timeline;
};

/// One JSON object; durations in integer picoseconds, so that nothing is lost on the way.
std::string to_json(const WorkerReport& report);
/// Throws RuntimeFailure that names the field when the text is not such an object.
WorkerReport parse_worker_report(const std::string& json);

}  // namespace rackrail::runtime

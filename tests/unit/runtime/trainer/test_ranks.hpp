// Trainers of all ranks as threads, over real exchanges joined by in-process transports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/dataset.hpp"
#include "runtime/trainer/synchrony.hpp"

namespace rackrail::trainer::test {

/// Parameter servers made by hand: chunk c is served by rank c.
plan::TransferGraph servers_on_ranks(std::size_t ranks);

/// A plan for the configuration's model with that schedule and buckets of several tensors, not all
/// of them neighbours.
plan::Plan make_server_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch);

/// What one call of train_ranks() does besides training to the end.
struct RankCourse {
  Synchrony synchrony;
  std::optional<std::int64_t> stop_after;
  std::filesystem::path save_to;  ///< checkpoints, committed after the run
  std::filesystem::path restore_from;
  /// Called by each rank after each step: to slow one down, for example.
  std::function<void(Rank, std::int64_t step)> after_step;
};

struct RankOutcome {
  std::vector<double> losses;        ///< mean over the global batch, by step
  std::vector<std::string> digests;  ///< by rank
  Bytes sent;                        ///< by all ranks together
  std::int64_t first_step = 0;
  std::vector<std::int64_t> saved;  ///< steps
  double accuracy = 0;
  double updates =
      0;  ///< of servers, as their workers' share of the buckets; those that met others'
  double conflicts = 0;
  double stale = 0;
  std::int64_t most_ahead = 0;
};

RankOutcome train_ranks(const TrainingConfig& config, const DataSplit& data, const plan::Plan& plan,
                        const RankCourse& course = {});

}  // namespace rackrail::trainer::test

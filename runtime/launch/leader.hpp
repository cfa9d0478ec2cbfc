// What the coordinator's side of a job has, whoever starts the workers: it checks what the job is
// given before any worker comes, runs the coordinator, answers its questions for plans, completes
// checkpoints, and collects the result.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/coordinator/job_store.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/launch/job.hpp"

namespace rackrail::runtime {

class Leader {
 public:
  /// Keeps a reference to the options. Throws ConfigError or PlanError for bad input,
  /// RuntimeFailure when it cannot listen.
  Leader(const plan::Plan& plan, const JobOptions& options, const HostPort& listen,
         std::string token);
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  const std::string& token() const { return token_; }
  /// Whether there are workers already, which wait for this coordinator.
  bool is_taken_up() const { return is_taken_up_; }

  /// Who makes sure that a lost worker does nothing any more. Before any worker comes.
  void set_fence(std::function<void(Rank)> fence) { fence_ = std::move(fence); }
  /// Who does the same and starts another one in its place. Likewise.
  void set_replace(std::function<void(Rank)> replace) { replace_ = std::move(replace); }

  CoordinatorServer& server() { return *server_; }

  /// Of the whole job, once it is over.
  JobResult result(const CoordinatorOutcome& outcome);

 private:
  JobSettings settings_of(const plan::Plan& plan);
  void set_callbacks(CoordinatorOptions& coordinator, const std::filesystem::path& checkpoints);
  std::filesystem::path latest_checkpoint(const std::filesystem::path& folder);
  std::optional<EpochRecord> open_store(JobRecord& job);
  EpochPlan plan_after(const Loss& loss);
  std::optional<PlanChange> change_after(const StepMeasurement& step);
  PlanOffer offer();
  void began(const EpochBegin& begin);
  void commit(const std::filesystem::path& folder, std::uint32_t step,
              const std::vector<std::vector<CheckpointFile>>& files);

  const JobOptions& options_;
  const Duration start_;
  std::filesystem::path resumed_from_;
  std::vector<std::string> notes_;
  std::mutex mutex_;
  std::vector<std::uint32_t> checkpoints_;  // guarded by mutex_
  std::vector<EpochBegin> epochs_;          // guarded by mutex_
  std::function<void(Rank)> fence_;
  std::function<void(Rank)> replace_;
  std::string token_;
  bool is_taken_up_ = false;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<CoordinatorServer> server_;  // last: its threads call commit()
};

}  // namespace rackrail::runtime

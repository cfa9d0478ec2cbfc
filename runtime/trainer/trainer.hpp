// One rank's training loop, whatever moves the gradients.
//
// A step: take the next batch, go forward and backward, launch each bucket of the plan the moment
// its last gradient is final while backward goes on, wait for the sums, clip, update. Gradients are
// weighted by 1 / (global batch) where they are computed, so the sum over ranks is the gradient of
// the mean over the global batch for any division of it. The model's parameters and the optimiser's
// state are the same bits on every rank after every step, because they start equal and see equal
// sums.
//
// With periodic averaging (TrainerOptions::local_steps) a step updates this rank's parameters by
// its own gradients. These are then weighted by 1 / (its own samples) and clipped by their own
// norm. Parameters are the same bits on every rank after each average (parameter_average.hpp),
// whose buckets leave when the rank's own update is done. Evaluation and checkpoints happen only
// there: what is due in between waits for the next average.
//
// Over an exchange that holds the parameters (GradientExchange::holds_parameters) a step pushes
// this rank's share of the gradient, clipped by its own norm, once backward is done, and goes on
// with the parameters that come back. All ranks hold the same where they meet: where a checkpoint
// is due, and at the end. There is evaluated, too.
//
// A rank that is lost. run() throws, and another trainer takes over from this one and resumes the
// training. It resumes from the latest whole step; with periodic averaging or held parameters, from
// the latest average or meeting that this rank has. The steps since then are discarded
// (trained_model.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "plan/plan.hpp"
#include "runtime/trainer/checkpoint.hpp"
#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/effective_settings.hpp"
#include "runtime/trainer/gradient_exchange.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::trainer {

struct StepReport {
  std::int64_t step = 0;     ///< steps done, this one included
  double loss = 0;           ///< mean over this rank's samples of the step
  std::int64_t samples = 0;  ///< this rank's
  double learning_rate = 0;
  double gradient_norm = 0;  ///< before clipping; of the sum, or where there is none this rank's
  bool has_sum = true;       ///< whether the gradients of all ranks were summed
  /// This rank's part of what plan::NoiseScaleEstimator wants: w_i·|g_i|² with g_i its mean
  /// gradient before any encoding and w_i its share of the global batch.
  double weighted_squared_norm = 0;
  bool clipped = false;
  bool skipped = false;  ///< the gradient was not finite, nothing was updated
  Duration began;        ///< by wall_clock()
  StepTimes times;
  std::optional<Evaluation> evaluation;  ///< on the test set, where this step had one
};

/// Called on the training thread between two steps.
struct TrainerHooks {
  std::function<void(const StepReport&)> on_step;
  /// Every `checkpoint_every` steps, where all ranks hold the same: CheckpointWriter::save or
  /// write_shards, and whatever makes the parts whole.
  std::function<void(const TrainingState&)> on_checkpoint;
};

struct TrainerOptions {
  Rank self;
  /// Where it computes, and where the buckets lie that its exchange is given; null: the host.
  std::shared_ptr<Compute> compute;
  bool evaluate = true;  ///< only rank 0 does, and only if this is set
  /// First steps of a run that no statistic counts, unless the run has no others; nor does one
  /// count the steps of compression's warm-up.
  std::int64_t warmup_steps = 3;
  /// Keep what is needed to go on when another rank is lost: what the latest update changed, or the
  /// latest two averages or meetings. One or two copies of parameters and momentum.
  bool keeps_points = false;
  /// Step (counted from 0 over the whole training) whose timeline is kept.
  std::optional<std::int64_t> timeline_step;
  /// Steps of each rank by itself until parameters are averaged; none: gradients are summed in
  /// every step. Does not go with a `compute` that is not the host.
  std::optional<std::int64_t> local_steps;
  /// Over servers: steps from one meeting to the next, besides those for checkpoints; the same for
  /// all ranks. None: there are no others.
  std::optional<std::int64_t> meets_every;
  /// Call on_checkpoint at the end even where no step was left: for a training that goes on after a
  /// loss, whose latest checkpoint may have been lost in the middle.
  bool saves_end = false;
  /// Length of the whole training in samples, for one whose batch may change while it runs: steps
  /// that are left are those of the samples that are left, and the learning rate goes by samples.
  /// None: the length is in steps. Does not go with local steps or servers.
  std::optional<std::int64_t> total_samples;
};

struct TrainingResult {
  std::int64_t first_step = 0;  ///< steps before this one came from a checkpoint
  std::int64_t steps = 0;       ///< steps of the whole training that are done
  bool finished = false;        ///< false after a request to stop
  double final_loss = 0;        ///< of this rank's latest step
  std::optional<Evaluation> final_evaluation;
  std::int64_t skipped_steps = 0;
  std::string parameters_digest;
  StepSummary summary;
  /// "forward", "backward", "wait", "optimizer" on the track "rank r compute" and "bucket b" from
  /// launch to the end of the wait on "rank r buckets"; from the start of the step.
  std::vector<plan::TimelineEvent> timeline;
};

class Trainer {
 public:
  /// Keeps references to `data` and `exchange`. Throws ConfigError for an impossible configuration
  /// and PlanError for a plan that was not made for its model or has no such rank.
  Trainer(const TrainingConfig& config, const plan::Plan& plan, const DataSplit& data,
          GradientExchange& exchange, const TrainerOptions& options, TrainerHooks hooks);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  const EffectiveSettings& settings() const;
  Model& model();

  /// What a checkpoint must be made for.
  CheckpointExpectation expectation() const;
  /// Before run(): continue from there, to the same bits as a run without a break.
  void restore(const LoadedCheckpoint& checkpoint);
  /// Between steps (so in hooks, or outside of run()).
  TrainingState state() const;
  /// Continues, before run(), from where `other` is, which has the same model and may have another
  /// plan. Residuals are left where they are of the other plan's encoders; momentum that `other`
  /// served goes on being served if the plan is the same.
  void take_over(const Trainer& other);
  /// Takes the latest step, average or meeting back, once, after run() has ended or thrown. Throws
  /// RuntimeFailure when none before it is kept.
  void go_back();
  /// Steps that the parameters contain, and that they contain after going back as far as possible.
  std::int64_t step() const;
  std::int64_t oldest_step() const;

  /// Trains until the configured number of steps or a stop. Throws PeerLostError out of the
  /// exchange. The parameters are then those of the latest whole step; with keeps_points and other
  /// than synchronous training, those of the latest average or meeting. The exchange may still
  /// access their arena, so it must end before this object does.
  TrainingResult run();

  /// run() returns once `steps` steps of the whole training are done (at once if they are). From
  /// any thread; the smallest of several numbers counts. Ranks must agree on it, or those that go
  /// on wait for those that stopped.
  void request_stop_after(std::int64_t steps);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::trainer

// What one rank has trained: parameters, the optimiser's state and the place in the data; and the
// points that it can go back to when another rank is lost.
//
// Points. Ranks go on after a loss from the latest point at which all who are left held the same.
//   - Where every step sums the gradients that is after each step, and a rank can only finish a
//     step that all have begun. So one rank may be a step ahead of another: what the latest update
//     changed is kept.
//   - Where ranks only meet now and then (an average of their parameters, a meeting of servers'
//     workers), it is where they met, and a rank can only end a meeting that all have come to, from
//     the one before. So one rank may be a meeting ahead of another, and all are somewhere behind
//     their latest one: that and the one before are kept.
//
// Memory: a copy of parameters and momentum for each point that is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/trainer/checkpoint.hpp"
#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/model.hpp"
#include "runtime/trainer/optimizer.hpp"

namespace rackrail::trainer {

/// Used by one thread at a time.
class TrainedModel {
 public:
  /// The model as it is initialised, after no step.
  TrainedModel(const TrainingConfig& config, std::shared_ptr<Compute> compute);

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  Sgd& sgd() { return sgd_; }
  const Sgd& sgd() const { return sgd_; }
  /// Of the present moment.
  CheckpointInfo& info() { return info_; }
  const CheckpointInfo& info() const { return info_; }

  /// Views die with the next step; `residuals` become part of it.
  TrainingState state(Residuals residuals);
  /// All but the residuals. Throws ConfigError for the checkpoint of another model.
  void restore(const LoadedCheckpoint& checkpoint);
  /// All but the points, from the same model, wherever that computes.
  void take_over(const TrainedModel& other);

  /// Before an update: what it changes.
  void keep_before_update();
  /// Where all ranks hold the same. `of_servers`: what this rank serves has beside its parameters.
  void keep_meeting(Residuals of_servers);
  /// To the latest meeting, from wherever this rank has gone since. There must be one.
  void return_to_meeting();
  /// What keep_meeting() was told for where this rank is now; nothing if it never was.
  Residuals of_servers() const { return meeting_ ? meeting_->of_servers : Residuals(); }

  /// Steps that the parameters contain after going back as far as possible.
  std::int64_t oldest_step() const;
  /// That far, once. Throws RuntimeFailure when no earlier point is kept.
  void go_back();

 private:
  struct Point {
    CheckpointInfo info;
    Floats parameters;
    Floats momentum;
    Residuals of_servers;
  };
  void keep(std::optional<Point>& point);
  void return_to(const Point& point);

  const std::string name_;  // of the training
  const std::shared_ptr<Compute> compute_;
  const std::unique_ptr<Model> model_;
  Sgd sgd_;
  CheckpointInfo info_;
  std::optional<Point> before_;   // the latest update or meeting
  std::optional<Point> meeting_;  // the latest; none where every step sums
  // For checkpoints, where the arenas are not on the host.
  std::vector<float> parameters_on_host_;
  std::vector<float> momentum_on_host_;
};

}  // namespace rackrail::trainer

// The model as the planner sees it: its tensors, and how long computing really takes here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/config.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

/// Medians over some steps on one device with one clock.
struct ComputeProfile {
  Duration forward;
  std::vector<Duration>
      ready_gaps;  ///< by tensor: since the gradient before it, or backward's start
  Duration backward_tail;
  Duration optimizer;
  Duration total() const;
};

struct MeasuredProfile {
  std::int64_t local_batch = 0;
  ComputeProfile wall;
  ComputeProfile cpu;  ///< processor time of the computing thread
  /// Of the processor time (elsewhere than on the host: the wall-clock time): what does not grow
  /// with the batch.
  double fixed_share = 0.1;
};

struct ProfileOptions {
  std::int64_t local_batch = 32;
  int steps = 20;                                          ///< measured ones
  int warmup = 3;                                          ///< before them
  std::shared_ptr<Compute> compute = make_host_compute();  ///< the model's
  std::vector<plan::Codec> codecs{};                       ///< whose errors are measured, too
  /// Threads that train the same model meanwhile, as the machine's other workers will: they take
  /// caches and memory from it, and cores, which the processor time leaves out.
  std::size_t others = 0;
};

/// Runs the model on `data` without a network. Leaves other parameters than it found. Elsewhere
/// than on the host each gradient is waited for, which adds a call's way there and back to each.
MeasuredProfile profile_model(Model& model, const SgdOptions& optimizer, const Dataset& data,
                              const ProfileOptions& options);

enum class ProfileClock : std::uint8_t {
  kWall,       ///< what a worker that has a core to itself sees
  kThreadCpu,  ///< what it would see: use this when other processes disturb the measurement
};

/// The workload of a configuration: tensors exactly as the trainer has them (so its digest is that
/// of the model that will run) and times as measured. The device class is "cpu", or that of the GPU
/// that it computes on: the one whose name is part of the GPU's, else the GPU's name.
plan::Workload make_workload(const TrainingConfig& config, Model& model,
                             const MeasuredProfile& profile, ProfileClock clock);

/// The same from scratch: builds the model, loads the data, measures, the errors of codecs on its
/// gradients as well. `local_batch` and `others` of the options are used.
plan::Workload profile_training(const TrainingConfig& config, const ProfileOptions& options,
                                ProfileClock clock);

/// Names and sizes alone, without times: for digests and for checking plans.
plan::Workload workload_shape(const std::string& name, const Model& model);

/// A plan for one rank alone: a bucket per tensor and nothing to transfer.
plan::Plan single_rank_plan(const plan::Workload& workload, std::int64_t local_batch);

}  // namespace rackrail::trainer

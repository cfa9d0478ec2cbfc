// `rackrail validate --device cuda`: predictions against a planned training on this machine's GPUs,
// also where several workers share one.
//
// Measured first, with nothing else on the GPUs: each layer of the model on one GPU; and, by as
// many processes as there will be workers, a ring all-reduce of few bytes and one of as many as the
// model has gradients, over the path that carries gradients; by NCCL inside hosts and the transport
// between them ("hybrid") over each, and the workers are two hosts. From these a topology: ranks
// that take turns on their GPUs, and messages with a latency that share one bandwidth. For that the
// planner makes a plan, in FP32 unless a codec is asked for, and the simulator predicts
//
//   * the plan's sums one after the other, with nothing beside them;
//   * a training step, and how much of it is spent on nothing but waiting for sums.
//
// Then the workers execute both. The share of the sums that backward hides is 1 − exposed / alone:
// what is exposed is the waiting after backward, of the worker that waits least, since the others
// wait for its gradients; alone is what the sums take with nothing beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/gpu_options.hpp"
#include "cli/session.hpp"
#include "plan/codec.hpp"

namespace rackrail::cli {

struct GpuValidation {
  GpuOptions gpu;
  std::size_t workers = 4;
  std::string training = "digits-cnn";
  std::int64_t local_batch = 0;  ///< samples per worker and step; 0: as the training says
  std::int64_t steps = 30;
  plan::Codec codec;                    ///< of the plan
  std::optional<std::string> schedule;  ///< family; none: the fastest
  double worst_allowed = 0;  ///< share; an error of a predicted time above it is status 1
};

/// Leaves in the session kNotMet also where workers end with different parameters. Throws
/// ConfigError, RuntimeFailure where there is no GPU or a worker fails.
void validate_on_gpu(Session& session, const GpuValidation& options);

}  // namespace rackrail::cli

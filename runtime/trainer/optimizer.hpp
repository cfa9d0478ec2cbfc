// Stochastic gradient descent with momentum, weight decay and clipping by the global norm.
//
//   g ← g · min(1, clip / ‖g‖),  v ← μ·v + g + λ·w,  w ← w − η·v
//
// As in Sutskever et al., "On the importance of initialization and momentum" (ICML 2013), without
// dampening. The norm is over all tensors together and is taken after the all-reduce, so all ranks
// clip by the same factor. Weight decay spares one-dimensional tensors (biases). A gradient with a
// NaN or an infinity changes nothing and is counted. Every operation is exactly rounded and in a
// fixed order. Ranks that hold the same bits before a step and got the same sums hold the same bits
// after it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

struct SgdOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  std::optional<double> clip_norm;  ///< none: never clipped
};

/// v and w of some elements on the host, by their gradients: as Compute::update.
void update(std::span<float> parameters, std::span<float> momentum,
            std::span<const float> gradients, const SgdStep& step);

/// Neighbouring elements with one weight decay: those of a tensor.
struct DecayRegion {
  std::size_t begin = 0;
  std::size_t size = 0;
  float decay = 0;
};
/// The decay of a tensor's elements: none for one dimension.
float decay_of(const ParameterTensor& tensor, const SgdOptions& options);

class Sgd {
 public:
  struct Update {
    double gradient_norm = 0;  ///< before clipping; not finite when the step was skipped
    bool clipped = false;
    bool skipped = false;
  };

  /// `tensors` cover the arena without gaps, which lies in the memory of `compute`.
  Sgd(std::span<const ParameterTensor> tensors, const SgdOptions& options,
      std::shared_ptr<Compute> compute = make_host_compute());

  /// Spans of the whole arena. Waits for the norm; the update is done after Compute::wait().
  Update apply(std::span<float> parameters, std::span<const float> gradients, double learning_rate);

  /// v, laid out like the parameters: for checkpoints.
  std::span<float> momentum() { return momentum_.span(); }
  std::span<const float> momentum() const { return momentum_.span(); }
  std::int64_t skipped_steps() const { return skipped_steps_; }
  void set_skipped_steps(std::int64_t steps) { skipped_steps_ = steps; }

 private:
  SgdOptions options_;
  std::shared_ptr<Compute> compute_;  // outlives what is in its memory
  std::vector<DecayRegion> regions_;
  Floats momentum_;
  std::int64_t skipped_steps_ = 0;
};

/// Euclidean norm, summed in double precision in an order that depends on the length alone.
double euclidean_norm(std::span<const float> values);

}  // namespace rackrail::trainer

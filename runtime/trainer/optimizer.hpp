// Stochastic gradient descent with momentum, weight decay and clipping by the global norm.
//
//   g ← g · min(1, clip / ‖g‖),  v ← μ·v + g + λ·w,  w ← w − η·v
//
// as in Sutskever et al., "On the importance of initialization and momentum" (ICML 2013), without
// dampening. The norm is over all tensors together and is taken after the all-reduce, so all ranks
// clip alike. Weight decay spares one-dimensional tensors (biases). A gradient with a NaN or an
// infinity changes nothing and is counted. Every operation is exactly rounded and in a fixed order:
// ranks that hold the same bits before a step and got the same sums hold the same bits after it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

struct SgdOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  std::optional<double> clip_norm;  ///< none: never clipped
};

/// What the formula above needs besides v, w and g: μ, η, min(1, clip / ‖g‖) and λ.
struct SgdFactors {
  float momentum = 0;
  float rate = 0;
  float scale = 1;
  float decay = 0;
};
/// v and w of some elements, by their gradients; the same operations wherever they are held.
void update(std::span<float> w, std::span<float> v, std::span<const float> g,
            const SgdFactors& factors);

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

  /// `tensors` cover the arena without gaps.
  Sgd(std::span<const ParameterTensor> tensors, const SgdOptions& options);

  /// Spans of the whole arena.
  Update apply(std::span<float> parameters, std::span<const float> gradients, double learning_rate);

  /// v, laid out like the parameters: for checkpoints.
  std::span<float> momentum() { return momentum_; }
  std::span<const float> momentum() const { return momentum_; }
  std::int64_t skipped_steps() const { return skipped_steps_; }
  void set_skipped_steps(std::int64_t steps) { skipped_steps_ = steps; }

 private:
  SgdOptions options_;
  std::vector<DecayRegion> regions_;
  std::vector<float> momentum_;
  std::int64_t skipped_steps_ = 0;
};

/// Euclidean norm, summed in double precision in an order that depends on the length alone.
double euclidean_norm(std::span<const float> values);

}  // namespace rackrail::trainer

// Periodic averaging: what one rank needs to make the parameters of all ranks their mean.
//
// All ranks hold the same parameters w₀ after an average. Each then takes steps of its own to w_i,
// and the mean weighted by the ranks' shares p_i of the samples is w₀ + Σ p_i·(w_i − w₀): so what
// moves is p_i·(w_i − w₀), which is as small as gradients are. Summed by a plan's transfer graphs
// it may be compressed like them, and the same sum on the same w₀ is the same bits on all ranks.
// With one step of plain SGD between averages (w_i = w₀ − η·g_i) this is synchronous training, up
// to rounding; with momentum too, because each rank's v_i is linear in the gradients.
//
// Momentum stays with each rank and is not averaged (Lin et al., "Don't use large mini-batches, use
// local SGD", ICLR 2020): so N steps between averages divide the bytes on the network by N.
#pragma once

#include <span>
#include <vector>

namespace rackrail::trainer {

class ParameterAverage {
 public:
  /// `share`: of this rank's samples in those of a step; those of all ranks sum up to 1.
  explicit ParameterAverage(double share) : share_(static_cast<float>(share)) {}

  /// All ranks hold these parameters now.
  void begin(std::span<const float> parameters);
  /// This rank's part of the sum: p_i·(w_i − w₀).
  void leave(std::span<const float> parameters, std::span<float> part) const;
  /// Adds the sum of all parts to w₀. A sum that is not finite changes nothing but takes all ranks
  /// back to w₀, and the answer is false.
  bool arrive(std::span<const float> sum, std::span<float> parameters);

 private:
  float share_;
  std::vector<float> common_;  // w₀
};

}  // namespace rackrail::trainer

// Where one rank computes: memory of floats, the layers that work on it, and what a trainer does
// with whole arenas. The host is one such place (host_compute.cpp), a GPU another (runtime/cuda/):
// the same model, the same steps.
//
// Spans named `here` are of this place's memory, which nobody else may read or write. Work is done
// in the order of the calls, but a call may return before its work is done; those that return a
// number, and store(), wait for theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/trainer/layer.hpp"
#include "runtime/trainer/loss.hpp"

namespace rackrail::trainer {

/// Floats in the memory of a Compute, which must outlive them.
class Floats {
 public:
  using Release = void (*)(float*);

  Floats() = default;
  /// Takes over `memory`, which `release` is called with.
  Floats(float* memory, std::size_t size, Release release)
      : memory_(memory, release), size_(size) {}

  std::span<float> span() const noexcept { return {memory_.get(), size_}; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::unique_ptr<float[], Release> memory_{nullptr, [](float*) {}};
  std::size_t size_ = 0;
};

/// Of one update by SGD: v ← momentum·v + (scale·g + decay·w), w ← w − rate·v.
struct SgdStep {
  float momentum = 0;
  float scale = 1;
  float decay = 0;
  float rate = 0;
};

/// Used by one thread at a time.
class Compute {
 public:
  virtual ~Compute() = default;
  Compute() = default;
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  /// "cpu", or the name of the GPU.
  virtual std::string name() const = 0;
  /// The CUDA stream (cudaStream_t) that work is given to; null on the host.
  virtual void* stream() const { return nullptr; }

  /// Zeros. Throws RuntimeFailure when there is no memory left.
  virtual Floats make_floats(std::size_t size) = 0;
  /// Spans of equal size each. `host` may be used again when the call returns.
  virtual void load(std::span<const float> host, std::span<float> here) = 0;
  virtual void store(std::span<const float> here, std::span<float> host) = 0;
  virtual void copy(std::span<const float> from, std::span<float> to) = 0;
  /// Values as the host sees them: `here` itself, or a copy in `buffer`.
  virtual std::span<const float> on_host(std::span<const float> here,
                                         std::vector<float>& buffer) = 0;
  /// Samples for the first layer, valid until the next call; `host` must last until wait().
  virtual std::span<const float> take_in(std::span<const float> host) = 0;

  /// Its activations and gradients are spans of this place.
  virtual std::unique_ptr<Layer> make_layer(const LayerSpec& spec) = 0;
  /// As the function of loss.hpp; the labels are on the host.
  virtual LossSum softmax_cross_entropy(std::span<const float> outputs,
                                        std::span<const std::int32_t> labels, double weight,
                                        std::span<float> gradient) = 0;

  /// Adds Σ x² to what take_squared_norm() returns and sets to zero. Summed in double precision in
  /// an order that depends on the lengths alone.
  virtual void add_squared_norm(std::span<const float> here) = 0;
  virtual double take_squared_norm() = 0;
  /// Euclidean norm, likewise.
  virtual double norm(std::span<const float> here) = 0;
  /// Spans of equal size. Every operation is exactly rounded, so places agree bit for bit.
  virtual void update(std::span<float> parameters, std::span<float> momentum,
                      std::span<const float> gradients, const SgdStep& step) = 0;

  /// Until all work is done.
  virtual void wait() = 0;
};

std::shared_ptr<Compute> make_host_compute();

/// Makes `floats` at least so large, without keeping what is in them, and returns as many.
std::span<float> at_least(Compute& compute, Floats& floats, std::size_t size);

}  // namespace rackrail::trainer

// Arrays that a program has on a GPU, beside the streams that it works on. No CUDA header is seen
// here; a build without CUDA has the same function.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "runtime/trainer/compute.hpp"

namespace rackrail::runtime {

/// Work goes on a stream of its own, in the order of the calls, which return before it is done
/// unless they say otherwise. Used by one thread at a time, whose current device stays what it is.
class GpuArrays {
 public:
  virtual ~GpuArrays() = default;
  GpuArrays() = default;
  GpuArrays(const GpuArrays&) = delete;
  GpuArrays& operator=(const GpuArrays&) = delete;

  /// cudaStream_t
  virtual void* stream() const = 0;
  /// Throws ConfigError unless `data` is memory of this device.
  virtual void require(const float* data) const = 0;
  /// What comes next waits for all that `stream` (a cudaStream_t; null: the default stream) of the
  /// program has been given.
  virtual void follow(void* stream) = 0;
  /// Until all that came before is done.
  virtual void settle() = 0;

  /// Zeros.
  virtual trainer::Floats make(std::size_t size) = 0;
  virtual void clear(std::span<float> values) = 0;
  virtual void multiply(std::span<float> values, float factor) = 0;
  /// Between arrays of equal size, each on the device or on the host; waits for the copy.
  virtual void copy(std::span<const float> from, std::span<float> to) = 0;
};

/// On device `device`. Throws RuntimeFailure with the reason where there is none.
std::unique_ptr<GpuArrays> make_gpu_arrays(int device);

}  // namespace rackrail::runtime

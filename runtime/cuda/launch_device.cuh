// What all kernels share: launching, vectors of four floats, and places in a grid.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/cuda/cuda_error.hpp"
#include "runtime/cuda/element_arithmetic.hpp"
#include "runtime/cuda/kernels.hpp"

namespace rackrail::runtime {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

/// Enqueues a kernel over the thread blocks that `work` items of one block each would take, or as
/// many as may be.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), std::size_t work, unsigned threads,
            const Launch& where, Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  const std::size_t blocks = std::clamp<std::size_t>(work, 1, where.most_blocks);
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.stream = where.stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), name);
}

template <typename T>
constexpr T ceil_divide(T a, T b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

inline bool is_aligned(const void* pointer, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(pointer) % alignment == 0;
}

__device__ __forceinline__ std::size_t thread_in_grid() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::size_t threads_in_grid() {
  return std::size_t{gridDim.x} * blockDim.x;
}

/// `floats` is aligned to 16 bytes.
__device__ __forceinline__ float4 load_four(const float* floats, std::size_t vector) {
  return reinterpret_cast<const float4*>(floats)[vector];
}
__device__ __forceinline__ void store_four(float* floats, std::size_t vector, float4 values) {
  reinterpret_cast<float4*>(floats)[vector] = values;
}
__device__ __forceinline__ float4 operator+(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float4 operator-(float4 a, float4 b) {
  return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}
__device__ __forceinline__ float4 operator*(float4 a, float b) {
  return make_float4(a.x * b, a.y * b, a.z * b, a.w * b);
}

__device__ __forceinline__ float4 kept_errors(float4 errors) {
  return make_float4(element::kept_error(errors.x), element::kept_error(errors.y),
                     element::kept_error(errors.z), element::kept_error(errors.w));
}

}  // namespace rackrail::runtime

// CUDA's runtime on a processor, as far as the kernels of runtime/cuda/ use it: with this folder
// before CUDA's own, they compile as C++ and run here.
//
// What it is for: the logic of kernels (indices, tiles, scans, tails, barriers) without a GPU. It
// says nothing of speed, and of the device's arithmetic only what IEEE 754 fixes anyway.
//
// A thread block's threads are fibers, resumed in an order that changes at every round, or warp by
// warp, each as far as it gets alone: so that a result that hangs on an order without a barrier for
// it comes out wrong.
// Thread blocks run one after the other, from either end of the grid. A barrier or warp function
// that not all threads reach throws. Fresh device memory is filled with a pattern, and what is
// written beside an allocation is found when it is released. All calls are synchronous.
#pragma once

#include "tests/support/emulated_gpu/cuda_runtime_api.h"
#include "tests/support/emulated_gpu/fibers.hpp"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
// One thread block runs at a time.
#define __shared__ static

inline const dim3& threadIdx = emulated_gpu::place.thread;
inline const dim3& blockIdx = emulated_gpu::place.block;
inline const dim3& blockDim = emulated_gpu::place.block_size;
inline const dim3& gridDim = emulated_gpu::place.grid_size;

struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline void __syncthreads() { emulated_gpu::wait_for_block(); }
inline void __syncwarp() { emulated_gpu::exchange(0); }

inline unsigned __shfl_sync(unsigned /*mask*/, unsigned value, unsigned lane) {
  return emulated_gpu::exchange(value)[lane % 32];
}
inline unsigned long __shfl_sync(unsigned mask, unsigned long value, unsigned lane) {
  const unsigned low = __shfl_sync(mask, static_cast<unsigned>(value), lane);
  const unsigned high = __shfl_sync(mask, static_cast<unsigned>(value >> 32U), lane);
  return static_cast<unsigned long>(high) << 32U | low;
}
inline unsigned __shfl_up_sync(unsigned /*mask*/, unsigned value, unsigned distance) {
  const auto values = emulated_gpu::exchange(value);
  const unsigned lane = threadIdx.x % 32;
  return values[lane >= distance ? lane - distance : lane];
}
inline unsigned long __shfl_up_sync(unsigned mask, unsigned long value, unsigned distance) {
  const unsigned low = __shfl_up_sync(mask, static_cast<unsigned>(value), distance);
  const unsigned high = __shfl_up_sync(mask, static_cast<unsigned>(value >> 32U), distance);
  return static_cast<unsigned long>(high) << 32U | low;
}
inline unsigned __ballot_sync(unsigned /*mask*/, bool vote) {
  const auto votes = emulated_gpu::exchange(vote ? 1 : 0);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    bits |= votes[lane] << lane;
  }
  return bits;
}
inline unsigned __reduce_max_sync(unsigned /*mask*/, unsigned value) {
  unsigned largest = 0;
  for (const unsigned each : emulated_gpu::exchange(value)) {
    largest = each > largest ? each : largest;
  }
  return largest;
}
inline unsigned __reduce_add_sync(unsigned /*mask*/, unsigned value) {
  unsigned sum = 0;
  for (const unsigned each : emulated_gpu::exchange(value)) {
    sum += each;
  }
  return sum;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  emulated_gpu::note_launch(reinterpret_cast<const void*>(kernel));
  emulated_gpu::enqueue(config->stream, [=, grid = config->gridDim, block = config->blockDim] {
    emulated_gpu::run_grid(grid, block, [&] { kernel(arguments...); });
  });
  return cudaSuccess;
}

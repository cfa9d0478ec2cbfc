// Random-k: the elements that the codec of plan/codecs/ draws, with the same bytes.
//
// 1. One pass over the data, a tile of a thread block at a time, finds out whether anything is not
//    finite; with error feedback it writes gradient + residual to the residual. Then one warp draws
//    the indices that are in the tile, which needs no other tile's, sends what is there and clears
//    it in the residual while the tile is still in the cache.
// 2. When something was not finite, NaN is sent instead.
// The device decides on 2, so that the same launches serve both, in a graph too.
#include "runtime/cuda/launch_device.cuh"

namespace rackrail::runtime {
namespace {

constexpr unsigned kUnroll = 4;
constexpr std::size_t kTile = std::size_t{kThreads} * kUnroll * 4;  // elements
constexpr std::size_t kSeedBytes = 8;

/// The element of stratum j of `kept`: see plan/codecs/random_k.cpp. Products stay below 2⁶⁴, as
/// there are fewer than 2³² elements.
__device__ __forceinline__ std::size_t index_of(std::uint64_t seed, std::size_t j,
                                                std::size_t elements, std::size_t kept) {
  const std::size_t begin = j * elements / kept;
  const std::size_t size = (j + 1) * elements / kept - begin;
  return begin + ((random_bits(seed, j) >> 32U) * size >> 32U);
}

/// Payloads are aligned to 4 bytes only.
__device__ __forceinline__ std::uint64_t load_seed(const std::byte* encoded) {
  const auto* halves = reinterpret_cast<const std::uint32_t*>(encoded);
  return halves[0] | static_cast<std::uint64_t>(halves[1]) << 32U;
}
__device__ __forceinline__ void store_seed(std::byte* encoded, std::uint64_t seed) {
  auto* halves = reinterpret_cast<std::uint32_t*>(encoded);
  halves[0] = static_cast<std::uint32_t>(seed);
  halves[1] = static_cast<std::uint32_t>(seed >> 32U);
}

__device__ __forceinline__ bool are_finite(float4 values) {
  return element::is_finite(values.x) && element::is_finite(values.y) &&
         element::is_finite(values.z) && element::is_finite(values.w);
}

/// The stratum of an element.
__device__ __forceinline__ std::size_t stratum_of(std::size_t i, std::size_t elements,
                                                  std::size_t kept) {
  return ((i + 1) * kept - 1) / elements;
}

/// Gradient + residual of a tile, to the residual if there is one, without what is not finite;
/// whether all of it is.
__device__ __forceinline__ bool compensate(const EncodeBuffers& buffers, std::size_t begin,
                                           std::size_t end, bool in_fours) {
  bool is_good = true;
  if (in_fours) {
    const std::size_t first = begin / 4 + threadIdx.x;
    float4 values[kUnroll];
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      values[u] = load_four(buffers.input, first + u * kThreads);
    }
    if (buffers.residual != nullptr) {
#pragma unroll
      for (unsigned u = 0; u < kUnroll; ++u) {
        values[u] = values[u] + load_four(buffers.residual, first + u * kThreads);
      }
    }
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      is_good = is_good && are_finite(values[u]);
      if (buffers.residual != nullptr) {
        store_four(buffers.residual, first + u * kThreads, kept_errors(values[u]));
      }
    }
    return is_good;
  }
  for (std::size_t i = begin + threadIdx.x; i < end; i += kThreads) {
    float value = buffers.input[i];
    if (buffers.residual != nullptr) {
      value += buffers.residual[i];
      buffers.residual[i] = element::kept_error(value);
    }
    is_good = is_good && element::is_finite(value);
  }
  return is_good;
}

/// One warp sends the elements of a tile that are drawn.
__device__ __forceinline__ void draw(const EncodeBuffers& buffers, std::size_t begin,
                                     std::size_t end, std::size_t kept, std::uint64_t seed) {
  const float* source = buffers.residual != nullptr ? buffers.residual : buffers.input;
  auto* values = reinterpret_cast<float*>(buffers.output + kSeedBytes);
  const std::size_t last = stratum_of(end - 1, buffers.elements, kept);
  for (std::size_t j = stratum_of(begin, buffers.elements, kept) + threadIdx.x % kWarp; j <= last;
       j += kWarp) {
    const std::size_t index = index_of(seed, j, buffers.elements, kept);
    if (index >= begin && index < end) {
      values[j] = source[index];
      if (buffers.residual != nullptr) {
        buffers.residual[index] = 0;
      }
    }
  }
}

/// Encodes; adds to *overflows where a value is not finite.
__global__ void __launch_bounds__(kThreads)
    encode_kernel(EncodeBuffers buffers, bool aligned, std::size_t kept, KernelKey key,
                  std::uint32_t* overflows) {
  const std::uint64_t stream = key.stream_on_device != nullptr ? *key.stream_on_device : key.stream;
  const std::uint64_t seed = random_bits(stream, key.first_element);
  if (thread_in_grid() == 0) {
    store_seed(buffers.output, seed);
  }
  bool is_good = true;
  unsigned turn = 0;  // of the warps, to draw
  for (std::size_t begin = blockIdx.x * kTile; begin < buffers.elements;
       begin += gridDim.x * kTile) {
    const bool is_whole = begin + kTile <= buffers.elements;
    const std::size_t end = is_whole ? begin + kTile : buffers.elements;
    is_good = compensate(buffers, begin, end, aligned && is_whole) && is_good;
    __syncthreads();
    if (threadIdx.x / kWarp == turn) {
      draw(buffers, begin, end, kept, seed);
    }
    turn = (turn + 1) % (kThreads / kWarp);
  }
  if (!is_good) {
    atomicAdd(overflows, 1U);
  }
}

__global__ void __launch_bounds__(kThreads)
    overflow_kernel(std::byte* encoded, std::size_t kept, const std::uint32_t* overflows) {
  if (*overflows == 0) {
    return;
  }
  auto* values = reinterpret_cast<float*>(encoded + kSeedBytes);
  for (std::size_t j = thread_in_grid(); j < kept; j += threads_in_grid()) {
    values[j] = element::float_of(element::kNanBits);
  }
}

__global__ void __launch_bounds__(kThreads)
    place_kernel(const std::byte* encoded, std::size_t kept, Into into, float* output,
                 std::size_t elements) {
  const std::uint64_t seed = load_seed(encoded);
  const auto* values = reinterpret_cast<const float*>(encoded + kSeedBytes);
  for (std::size_t j = thread_in_grid(); j < kept; j += threads_in_grid()) {
    const std::size_t index = index_of(seed, j, elements, kept);
    output[index] = into == Into::kAdd ? output[index] + values[j] : values[j];
  }
}

}  // namespace

std::size_t random_k_scratch() { return sizeof(std::uint32_t); }

void encode_random_k(const EncodeBuffers& buffers, std::size_t kept, KernelKey key,
                     std::byte* scratch, Launch where) {
  auto* overflows = reinterpret_cast<std::uint32_t*>(scratch);
  const bool aligned = is_aligned(buffers.input, 16) && is_aligned(buffers.residual, 16);
  check_cuda(cudaMemsetAsync(scratch, 0, random_k_scratch(), where.stream), "cudaMemsetAsync");
  launch("random-k: encode", encode_kernel, ceil_divide(buffers.elements, kTile), kThreads, where,
         buffers, aligned, kept, key, overflows);
  launch("random-k: overflow", overflow_kernel, ceil_divide(kept, std::size_t{kThreads}), kThreads,
         where, buffers.output, kept, overflows);
}

void decode_random_k(const std::byte* encoded, std::size_t kept, Into into, float* output,
                     std::size_t elements, Launch where) {
  if (into == Into::kStore) {
    check_cuda(cudaMemsetAsync(output, 0, elements * sizeof(float), where.stream),
               "cudaMemsetAsync");
  }
  launch("random-k: place", place_kernel, ceil_divide(kept, std::size_t{kThreads}), kThreads, where,
         encoded, kept, into, output, elements);
}

}  // namespace rackrail::runtime

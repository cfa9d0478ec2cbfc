// Random-k: the elements that the codec of plan/codecs/ draws, with the same bytes.
//
// 1. One pass over the data finds out whether anything is not finite; with error feedback it writes
//    gradient + residual to the residual. Without feedback it reads only.
// 2. A thread per kept element draws its index, which needs no other thread's, sends what is there
//    and clears it in the residual. When something was not finite, it sends NaN instead.
// The device decides on 2, so that the same launches serve both, in a graph too.
#include "runtime/cuda/launch_device.cuh"

namespace rackrail::runtime {
namespace {

constexpr unsigned kUnroll = 4;
constexpr std::size_t kVectorsPerBlock = std::size_t{kThreads} * kUnroll;
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

/// Adds to *overflows where a value is not finite. What is not, is dropped from the residual.
__global__ void __launch_bounds__(kThreads)
    compensate_kernel(EncodeBuffers buffers, std::size_t vectors, std::uint32_t* overflows) {
  bool is_good = true;
  for (std::size_t first = blockIdx.x * kVectorsPerBlock + threadIdx.x; first < vectors;
       first += gridDim.x * kVectorsPerBlock) {
    float4 values[kUnroll];
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      if (first + u * kThreads < vectors) {
        values[u] = load_four(buffers.input, first + u * kThreads);
        if (buffers.residual != nullptr) {
          values[u] = values[u] + load_four(buffers.residual, first + u * kThreads);
        }
      }
    }
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      if (first + u * kThreads < vectors) {
        is_good = is_good && are_finite(values[u]);
        if (buffers.residual != nullptr) {
          store_four(buffers.residual, first + u * kThreads, kept_errors(values[u]));
        }
      }
    }
  }
  for (std::size_t i = 4 * vectors + thread_in_grid(); i < buffers.elements;
       i += threads_in_grid()) {
    float value = buffers.input[i];
    if (buffers.residual != nullptr) {
      value += buffers.residual[i];
      buffers.residual[i] = element::kept_error(value);
    }
    is_good = is_good && element::is_finite(value);
  }
  if (!is_good) {
    atomicAdd(overflows, 1U);
  }
}

__global__ void __launch_bounds__(kThreads)
    draw_kernel(EncodeBuffers buffers, std::size_t kept, KernelKey key,
                const std::uint32_t* overflows) {
  const std::uint64_t stream = key.stream_on_device != nullptr ? *key.stream_on_device : key.stream;
  const std::uint64_t seed = random_bits(stream, key.first_element);
  const bool overflowed = *overflows != 0;
  const float* source = buffers.residual != nullptr ? buffers.residual : buffers.input;
  auto* values = reinterpret_cast<float*>(buffers.output + kSeedBytes);
  if (thread_in_grid() == 0) {
    store_seed(buffers.output, seed);
  }
  for (std::size_t j = thread_in_grid(); j < kept; j += threads_in_grid()) {
    const std::size_t index = index_of(seed, j, buffers.elements, kept);
    values[j] = overflowed ? element::float_of(element::kNanBits) : source[index];
    if (buffers.residual != nullptr) {
      buffers.residual[index] = 0;
    }
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
  const std::size_t vectors = aligned ? buffers.elements / 4 : 0;
  check_cuda(cudaMemsetAsync(scratch, 0, random_k_scratch(), where.stream), "cudaMemsetAsync");
  launch("random-k: compensate", compensate_kernel,
         vectors != 0 ? ceil_divide(vectors, kVectorsPerBlock)
                      : ceil_divide(buffers.elements, std::size_t{kThreads}),
         kThreads, where, buffers, vectors, overflows);
  launch("random-k: draw", draw_kernel, ceil_divide(kept, std::size_t{kThreads}), kThreads, where,
         buffers, kept, key, overflows);
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

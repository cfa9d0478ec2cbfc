// The kernels of the codecs, as functions that enqueue them.
//
// Pointers are to device memory and sizes have been checked by the caller. Nothing here allocates
// memory or waits, so everything can be captured into a graph. All throw CudaError when a launch
// fails. Faults on the device show in a later call, as usual in CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace rackrail::runtime {

/// Where kernels are enqueued, and over how many thread blocks one may spread: beyond that, threads
/// stride over the data. Kernels of little work per element are quickest where each thread block
/// does its part and ends, others where it goes on: those take `most_looping`, if that is less.
struct Launch {
  cudaStream_t stream = nullptr;
  unsigned most_blocks = 1;
  unsigned most_looping = ~0U;
};

/// plan::EncodeKey, for kernels. Where `stream_on_device` is not null, the number there is the
/// stream when the kernel runs, so that a graph can be replayed with other random numbers.
struct KernelKey {
  std::uint64_t stream = 0;
  std::uint64_t first_element = 0;
  const std::uint64_t* stream_on_device = nullptr;
};

/// What is encoded: input, plus the residual where that is not null.
struct EncodeBuffers {
  const float* input = nullptr;
  float* residual = nullptr;
  std::byte* output = nullptr;
  std::size_t elements = 0;
};

inline constexpr std::size_t kMostPayloads = 16;

/// Encoded payloads of the same elements, in the order in which they are added.
struct Payloads {
  std::array<const std::byte*, kMostPayloads> bytes = {};
  unsigned count = 0;
};

enum class Rounding : std::uint8_t { kHalf, kBfloat16 };
enum class Into : std::uint8_t { kStore, kAdd };

/// Codes of the values, each multiplied by `scale` first (to average, or against overflow of FP16).
/// With a residual, scale is 1.
void encode_rounded(Rounding rounding, const EncodeBuffers& buffers, float scale, Launch launch);
/// Floats of the codes, each multiplied by `scale`.
void decode_rounded(Rounding rounding, const std::byte* codes, float scale, Into into,
                    float* output, std::size_t elements, Launch launch);
/// Codes of the sum of the payloads' floats, added to the input where that is not null.
void reduce_rounded(Rounding rounding, const Payloads& payloads, const EncodeBuffers& buffers,
                    Launch launch);

enum class BlockCode : std::uint8_t { kInt8, kE4m3, kE5m2 };

/// ⌈elements/block⌉ scales, then the codes.
void encode_blocks(BlockCode code, std::uint32_t block, const EncodeBuffers& buffers, KernelKey key,
                   Launch launch);
void decode_blocks(BlockCode code, std::uint32_t block, const std::byte* encoded, Into into,
                   float* output, std::size_t elements, Launch launch);
void reduce_blocks(BlockCode code, std::uint32_t block, const Payloads& payloads,
                   const EncodeBuffers& buffers, KernelKey key, Launch launch);

/// Bytes of scratch that encoding the largest elements takes.
std::size_t top_k_scratch(std::size_t elements, std::size_t kept);
/// `scratch` is aligned to 256 bytes.
void encode_top_k(const EncodeBuffers& buffers, std::size_t kept, std::byte* scratch,
                  Launch launch);
/// Where an index is not larger than the one before it or not below `elements`, adds to *refused
/// and leaves the output as it is; so it does where *refused is not 0 already.
void decode_top_k(const std::byte* encoded, std::size_t kept, Into into, float* output,
                  std::size_t elements, std::uint32_t* refused, Launch launch);

/// Bytes of scratch that drawing takes, whatever the size.
std::size_t random_k_scratch();
/// `scratch` is aligned to 4 bytes.
void encode_random_k(const EncodeBuffers& buffers, std::size_t kept, KernelKey key,
                     std::byte* scratch, Launch launch);
void decode_random_k(const std::byte* encoded, std::size_t kept, Into into, float* output,
                     std::size_t elements, Launch launch);

/// FP32 as it is: output = the values, residual = 0.
void encode_plain(const EncodeBuffers& buffers, Launch launch);
void decode_plain(const std::byte* encoded, Into into, float* output, std::size_t elements,
                  Launch launch);

}  // namespace rackrail::runtime

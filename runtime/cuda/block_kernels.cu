// Codecs of 8-bit codes with a scale per block, and the sum of several payloads encoded again.
//
// A warp has a block. Where a block is 128, 256 or 512 elements, each lane keeps its four elements
// of every 128 in registers: loaded as 16 bytes (of payloads: 4 bytes of each), one maximum over
// the warp, stored as 4 bytes of codes. So all memory is read and written once. Other block sizes,
// unaligned buffers and a last block that is not full take the same steps element by element, in
// two passes.
#include "runtime/cuda/launch_device.cuh"

namespace rackrail::runtime {
namespace {

constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kLaneElements = 4;
constexpr unsigned kRow = kWarp * kLaneElements;  // elements of one vector per lane

template <typename Code>
__device__ __forceinline__ float4 floats_of(std::uint32_t codes) {
  float floats[kLaneElements];
  Code::floats_of(codes, floats);
  return make_float4(floats[0], floats[1], floats[2], floats[3]);
}

template <typename Code>
__device__ __forceinline__ std::uint32_t codes_of(float4 values,
                                                  const typename Code::Factor& factor,
                                                  std::uint64_t random) {
  return Code::code_of(values.x, factor, random, 0) |
         Code::code_of(values.y, factor, random, 1) << 8U |
         Code::code_of(values.z, factor, random, 2) << 16U |
         Code::code_of(values.w, factor, random, 3) << 24U;
}

/// The values to encode: floats in memory.
struct InputSource {
  static constexpr unsigned kResident = 6;  // thread blocks per multiprocessor

  const float* input;

  __device__ __forceinline__ float at(std::size_t i, std::size_t /*block*/) const {
    return input[i];
  }
  /// The four elements from i on, and those of the rows after it.
  template <unsigned kRows>
  __device__ __forceinline__ void load(std::size_t i, std::size_t /*block*/,
                                       float4 (&values)[kRows]) const {
#pragma unroll
    for (unsigned row = 0; row < kRows; ++row) {
      values[row] = load_four(input, i / kLaneElements + row * kWarp);
    }
  }
};

/// The values to encode: floats in memory, if any, and what payloads decode to, added in this
/// order.
///
/// A code times a scale that an encoder made is exact (see plan/codecs/), so that the fused
/// multiply-add rounds as a product and a sum would.
template <typename Code>
struct PayloadSource {
  static constexpr unsigned kResident = 5;

  Payloads payloads;
  const float* input;  ///< or null
  std::size_t scale_bytes;

  __device__ __forceinline__ float scale(unsigned p, std::size_t block) const {
    return reinterpret_cast<const float*>(payloads.bytes[p])[block];
  }
  __device__ __forceinline__ float at(std::size_t i, std::size_t block) const {
    const auto code = [&](unsigned p) {
      return Code::float_of(static_cast<std::uint32_t>(payloads.bytes[p][scale_bytes + i]), 0);
    };
    float sum = input != nullptr ? input[i] : -0.0F;  // which leaves any addend as it is
    for (unsigned p = 0; p < payloads.count; ++p) {
      sum = element::fused_multiply_add(code(p), scale(p, block), sum);
    }
    return sum;
  }
  template <unsigned kRows>
  __device__ __forceinline__ void load(std::size_t i, std::size_t block,
                                       float4 (&sums)[kRows]) const {
#pragma unroll
    for (unsigned row = 0; row < kRows; ++row) {
      sums[row] = input != nullptr ? load_four(input, i / kLaneElements + row * kWarp)
                                   : make_float4(-0.0F, -0.0F, -0.0F, -0.0F);
    }
    unsigned p = 0;
    if (payloads.count >= 2 * kBatch) {  // whose addresses are no work
      add<kBatch>(0, i, block, sums);
      add<kBatch>(kBatch, i, block, sums);
      p = 2 * kBatch;
    }
    for (; p + kBatch <= payloads.count; p += kBatch) {
      add<kBatch>(p, i, block, sums);
    }
    for (; p < payloads.count; ++p) {
      add<1>(p, i, block, sums);
    }
  }

 private:
  static constexpr unsigned kBatch = 4;

  /// Adds kCount payloads from the p-th on. All loads are on their way before the first is used.
  template <unsigned kCount, unsigned kRows>
  __device__ __forceinline__ void add(unsigned p, std::size_t i, std::size_t block,
                                      float4 (&sums)[kRows]) const {
    std::uint32_t words[kCount][kRows];
    float scales[kCount];
#pragma unroll
    for (unsigned b = 0; b < kCount; ++b) {
      const std::byte* codes = payloads.bytes[p + b] + scale_bytes + i;
      scales[b] = scale(p + b, block);
#pragma unroll
      for (unsigned row = 0; row < kRows; ++row) {
        words[b][row] = *reinterpret_cast<const std::uint32_t*>(codes + row * kRow);
      }
    }
#pragma unroll
    for (unsigned b = 0; b < kCount; ++b) {
#pragma unroll
      for (unsigned row = 0; row < kRows; ++row) {
        sums[row] = multiply_add(floats_of<Code>(words[b][row]), scales[b], sums[row]);
      }
    }
  }

  __device__ __forceinline__ static float4 multiply_add(float4 a, float b, float4 c) {
    return make_float4(
        element::fused_multiply_add(a.x, b, c.x), element::fused_multiply_add(a.y, b, c.y),
        element::fused_multiply_add(a.z, b, c.z), element::fused_multiply_add(a.w, b, c.w));
  }
};

/// Where an encoding goes.
struct BlockOutput {
  float* residual;
  float* scales;
  std::byte* codes;
  std::size_t elements;
  std::uint32_t block;
};

__device__ __forceinline__ std::uint64_t stream_of(const KernelKey& key) {
  return key.stream_on_device != nullptr ? *key.stream_on_device : key.stream;
}

/// The error that the codes of a block with this scale leave of four values.
template <typename Code>
__device__ __forceinline__ float4 errors_of(float4 values, std::uint32_t codes, float scale) {
  // One overflow must not stay in the feedback of all later steps.
  return scale == scale ? values + floats_of<Code>(codes) * -scale : make_float4(0, 0, 0, 0);
}

/// Encodes the blocks from `first_block` on, of any size and alignment.
template <typename Code, typename Source>
__global__ void __launch_bounds__(kThreads)
    encode_any_kernel(Source source, BlockOutput output, KernelKey key, std::size_t first_block) {
  const std::uint64_t stream = stream_of(key);
  const std::size_t blocks = ceil_divide<std::size_t>(output.elements, output.block);
  const unsigned lane = threadIdx.x % kWarp;
  for (std::size_t block = first_block + thread_in_grid() / kWarp; block < blocks;
       block += threads_in_grid() / kWarp) {
    const std::size_t begin = block * output.block;
    const std::size_t end =
        begin + output.block < output.elements ? begin + output.block : output.elements;
    const auto value_at = [&](std::size_t i) {
      const float value = source.at(i, block);
      return output.residual != nullptr ? value + output.residual[i] : value;
    };
    std::uint32_t largest = 0;
    for (std::size_t i = begin + lane; i < end; i += kWarp) {
      largest = max(largest, element::magnitude_of(value_at(i)));
    }
    const float scale = element::block_scale<Code>(__reduce_max_sync(kAllLanes, largest));
    if (lane == 0) {
      output.scales[block] = scale;
    }
    const typename Code::Factor factor(scale);
    for (std::size_t i = begin + lane; i < end; i += kWarp) {
      const float value = value_at(i);
      std::uint32_t code = 0;
      if (scale > 0) {
        const auto which = static_cast<unsigned>((i - begin) % kLaneElements);
        const std::uint64_t random =
            Code::kIsRandom ? element::random_of_four(stream, key.first_element + i - which) : 0;
        code = Code::code_of(value, factor, random, which);
      }
      output.codes[i] = static_cast<std::byte>(code);
      if (output.residual != nullptr) {
        output.residual[i] = errors_of<Code>(make_float4(value, 0, 0, 0), code, scale).x;
      }
    }
  }
}

/// Encodes `blocks` whole ones of kRows·kRow elements, in buffers aligned for vectors. The bound
/// leaves as many registers as the kernel needs without spilling any.
template <typename Code, typename Source, unsigned kRows>
__global__ void __launch_bounds__(kThreads, kRows == 4 ? 4 : Source::kResident)
    encode_rows_kernel(Source source, BlockOutput output, KernelKey key, std::size_t blocks) {
  const std::uint64_t stream = stream_of(key);
  const unsigned lane = threadIdx.x % kWarp;
  for (std::size_t block = thread_in_grid() / kWarp; block < blocks;
       block += threads_in_grid() / kWarp) {
    const std::size_t first = block * (kRows * kRow) + lane * kLaneElements;
    float4 values[kRows];
    source.load(first, block, values);
    if (output.residual != nullptr) {
#pragma unroll
      for (unsigned row = 0; row < kRows; ++row) {
        values[row] = values[row] + load_four(output.residual, first / kLaneElements + row * kWarp);
      }
    }
    std::uint32_t largest = 0;
#pragma unroll
    for (unsigned row = 0; row < kRows; ++row) {
      const float4 v = values[row];
      largest = max(largest, max(max(element::magnitude_of(v.x), element::magnitude_of(v.y)),
                                 max(element::magnitude_of(v.z), element::magnitude_of(v.w))));
    }
    const float scale = element::block_scale<Code>(__reduce_max_sync(kAllLanes, largest));
    if (lane == 0) {
      output.scales[block] = scale;
    }
    const typename Code::Factor factor(scale);
#pragma unroll
    for (unsigned row = 0; row < kRows; ++row) {
      const std::size_t i = first + row * kRow;
      const std::uint64_t random =
          Code::kIsRandom ? element::random_of_four(stream, key.first_element + i) : 0;
      const std::uint32_t codes = scale > 0 ? codes_of<Code>(values[row], factor, random) : 0;
      *reinterpret_cast<std::uint32_t*>(output.codes + i) = codes;
      if (output.residual != nullptr) {
        store_four(output.residual, i / kLaneElements, errors_of<Code>(values[row], codes, scale));
      }
    }
  }
}

/// `vectors` of four elements that are never of two blocks, whose size is 1 << shift then; after
/// them element by element.
template <typename Code, Into kInto>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const float* scales, const std::byte* codes, std::uint32_t block, float* output,
                  std::size_t elements, std::size_t vectors, unsigned shift) {
  constexpr unsigned kUnroll = 4;
  constexpr std::size_t kVectorsPerBlock = std::size_t{kThreads} * kUnroll;
  for (std::size_t first = blockIdx.x * kVectorsPerBlock + threadIdx.x; first < vectors;
       first += gridDim.x * kVectorsPerBlock) {
    std::uint32_t words[kUnroll];
    float factors[kUnroll];
    float4 sums[kUnroll];
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      const std::size_t vector = first + u * kThreads;
      if (vector < vectors) {
        words[u] = reinterpret_cast<const std::uint32_t*>(codes)[vector];
        factors[u] = scales[vector * kLaneElements >> shift];
        if (kInto == Into::kAdd) {
          sums[u] = load_four(output, vector);
        }
      }
    }
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      const std::size_t vector = first + u * kThreads;
      if (vector < vectors) {
        const float4 values = floats_of<Code>(words[u]) * factors[u];
        store_four(output, vector, kInto == Into::kAdd ? sums[u] + values : values);
      }
    }
  }
  for (std::size_t i = kLaneElements * vectors + thread_in_grid(); i < elements;
       i += threads_in_grid()) {
    const float value = Code::float_of(static_cast<std::uint32_t>(codes[i]), 0) * scales[i / block];
    output[i] = kInto == Into::kAdd ? output[i] + value : value;
  }
}

std::size_t scale_bytes_of(std::size_t elements, std::uint32_t block) {
  return ceil_divide<std::size_t>(elements, block) * sizeof(float);
}

template <typename Code, typename Source>
void encode_as(const char* name, const Source& source, std::uint32_t block, bool aligned,
               const EncodeBuffers& buffers, const KernelKey& key, const Launch& where) {
  const BlockOutput output{.residual = buffers.residual,
                           .scales = reinterpret_cast<float*>(buffers.output),
                           .codes = buffers.output + scale_bytes_of(buffers.elements, block),
                           .elements = buffers.elements,
                           .block = block};
  std::size_t done = 0;  // blocks
  const auto rows = [&](auto* kernel) {
    done = buffers.elements / block;
    if (done != 0) {
      Launch looping = where;
      if (buffers.residual == nullptr) {  // with one, the data alone keeps a warp busy
        looping.most_blocks = std::min(where.most_blocks, where.most_looping);
      }
      launch(name, kernel, ceil_divide<std::size_t>(done, kWarps), kThreads, looping, source,
             output, key, done);
    }
  };
  if (aligned && is_aligned(buffers.residual, 16)) {
    switch (block) {
      case 1 * kRow:
        rows(encode_rows_kernel<Code, Source, 1>);
        break;
      case 2 * kRow:
        rows(encode_rows_kernel<Code, Source, 2>);
        break;
      case 4 * kRow:
        rows(encode_rows_kernel<Code, Source, 4>);
        break;
      default:
        break;
    }
  }
  const std::size_t blocks = ceil_divide<std::size_t>(buffers.elements, block);
  if (done != blocks) {
    launch(name, encode_any_kernel<Code, Source>, ceil_divide<std::size_t>(blocks - done, kWarps),
           kThreads, where, source, output, key, done);
  }
}

template <typename Code>
void decode_as(std::uint32_t block, const std::byte* encoded, Into into, float* output,
               std::size_t elements, const Launch& where) {
  const std::byte* codes = encoded + scale_bytes_of(elements, block);
  const bool in_fours = block >= kLaneElements && (block & (block - 1)) == 0;
  const std::size_t vectors = in_fours && is_aligned(output, 16) ? elements / kLaneElements : 0;
  const auto shift = static_cast<unsigned>(std::countr_zero(block));
  const std::size_t blocks = ceil_divide<std::size_t>(
      vectors != 0 ? vectors : elements, (vectors != 0 ? 4 : 1) * std::size_t{kThreads});
  launch("decode, blocks",
         into == Into::kAdd ? decode_kernel<Code, Into::kAdd> : decode_kernel<Code, Into::kStore>,
         blocks, kThreads, where, reinterpret_cast<const float*>(encoded), codes, block, output,
         elements, vectors, shift);
}

/// Calls use(code type) for the type that stands for `code`.
template <typename Use>
void with_code(BlockCode code, Use use) {
  switch (code) {
    case BlockCode::kInt8:
      return use(element::Int8{});
    case BlockCode::kE4m3:
      return use(element::E4m3{});
    case BlockCode::kE5m2:
      return use(element::E5m2{});
  }
}

}  // namespace

void encode_blocks(BlockCode code, std::uint32_t block, const EncodeBuffers& buffers, KernelKey key,
                   Launch where) {
  with_code(code, [&](auto type) {
    encode_as<decltype(type)>("encode, blocks", InputSource{buffers.input}, block,
                              is_aligned(buffers.input, 16), buffers, key, where);
  });
}

void decode_blocks(BlockCode code, std::uint32_t block, const std::byte* encoded, Into into,
                   float* output, std::size_t elements, Launch where) {
  with_code(code, [&](auto type) {
    decode_as<decltype(type)>(block, encoded, into, output, elements, where);
  });
}

void reduce_blocks(BlockCode code, std::uint32_t block, const Payloads& payloads,
                   const EncodeBuffers& buffers, KernelKey key, Launch where) {
  with_code(code, [&](auto type) {
    using Code = decltype(type);
    const PayloadSource<Code> source{.payloads = payloads,
                                     .input = buffers.input,
                                     .scale_bytes = scale_bytes_of(buffers.elements, block)};
    encode_as<Code>("reduce, blocks", source, block, is_aligned(buffers.input, 16), buffers, key,
                    where);
  });
}

}  // namespace rackrail::runtime

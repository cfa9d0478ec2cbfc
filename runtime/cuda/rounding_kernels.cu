// Codecs that round each element by itself: FP16 and BF16, and FP32 as it is.
//
// A thread works on vectors of four elements: 16 bytes of floats, 8 of codes. Neighbouring threads
// have neighbouring vectors, and each loads kUnroll of them, a thread block's width apart, before
// it uses the first. What is left, or not aligned for that, is done element by element.
#include "runtime/cuda/launch_device.cuh"

namespace rackrail::runtime {
namespace {

constexpr unsigned kUnroll = 2;
constexpr std::size_t kVectorsPerBlock = std::size_t{kThreads} * kUnroll;

template <typename Format>
__device__ __forceinline__ uint2 codes_of(float4 values) {
  const auto two = [](float low, float high) {
    return static_cast<std::uint32_t>(Format::code_of(low)) |
           static_cast<std::uint32_t>(Format::code_of(high)) << 16U;
  };
  return make_uint2(two(values.x, values.y), two(values.z, values.w));
}

template <typename Format>
__device__ __forceinline__ float4 floats_of(uint2 codes) {
  const auto at = [](std::uint32_t two, unsigned shift) {
    return Format::float_of(static_cast<std::uint16_t>(two >> shift));
  };
  return make_float4(at(codes.x, 0), at(codes.x, 16), at(codes.y, 0), at(codes.y, 16));
}

/// floats_of() where something is added.
template <typename Format>
__device__ __forceinline__ float4 addends_of(uint2 codes) {
  const auto at = [](std::uint32_t two, unsigned shift) {
    return Format::addend_of(static_cast<std::uint16_t>(two >> shift));
  };
  return make_float4(at(codes.x, 0), at(codes.x, 16), at(codes.y, 0), at(codes.y, 16));
}

__device__ __forceinline__ uint2 load_codes(const std::byte* codes, std::size_t vector) {
  return reinterpret_cast<const uint2*>(codes)[vector];
}

/// Calls each(u, vector) for the vectors of this thread, kUnroll at a time: first with `Load`, then
/// with `Use`.
template <typename Load, typename Use>
__device__ __forceinline__ void for_vectors(std::size_t vectors, Load load, Use use) {
  const std::size_t step = gridDim.x * kVectorsPerBlock;
  for (std::size_t first = blockIdx.x * kVectorsPerBlock + threadIdx.x; first < vectors;
       first += step) {
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      if (first + u * kThreads < vectors) {
        load(u, first + u * kThreads);
      }
    }
#pragma unroll
    for (unsigned u = 0; u < kUnroll; ++u) {
      if (first + u * kThreads < vectors) {
        use(u, first + u * kThreads);
      }
    }
  }
}

/// Keeps payloads of NaN, which a product would not.
__device__ __forceinline__ float scaled(float value, float scale) {
  return scale == 1.0F ? value : value * scale;
}
__device__ __forceinline__ float4 scaled(float4 values, float scale) {
  return scale == 1.0F ? values : values * scale;
}

template <typename Format>
__global__ void __launch_bounds__(kThreads)
    encode_kernel(EncodeBuffers buffers, float scale, std::size_t vectors) {
  float4 values[kUnroll];
  for_vectors(
      vectors,
      [&](unsigned u, std::size_t vector) {
        values[u] = load_four(buffers.input, vector);
        if (buffers.residual != nullptr) {
          values[u] = values[u] + load_four(buffers.residual, vector);
        }
      },
      [&](unsigned u, std::size_t vector) {
        const uint2 codes = codes_of<Format>(scaled(values[u], scale));
        reinterpret_cast<uint2*>(buffers.output)[vector] = codes;
        if (buffers.residual != nullptr) {
          store_four(buffers.residual, vector, kept_errors(values[u] - addends_of<Format>(codes)));
        }
      });
  auto* output = reinterpret_cast<typename Format::Code*>(buffers.output);
  for (std::size_t i = 4 * vectors + thread_in_grid(); i < buffers.elements;
       i += threads_in_grid()) {
    float value = buffers.input[i];
    if (buffers.residual != nullptr) {
      value += buffers.residual[i];
    }
    const auto code = Format::code_of(scaled(value, scale));
    output[i] = code;
    if (buffers.residual != nullptr) {
      buffers.residual[i] = element::kept_error(value - Format::float_of(code));
    }
  }
}

template <typename Format, Into kInto>
__global__ void __launch_bounds__(kThreads)
    decode_kernel(const std::byte* encoded, float scale, float* output, std::size_t elements,
                  std::size_t vectors) {
  uint2 codes[kUnroll];
  float4 sums[kUnroll];
  for_vectors(
      vectors,
      [&](unsigned u, std::size_t vector) {
        codes[u] = load_codes(encoded, vector);
        if (kInto == Into::kAdd) {
          sums[u] = load_four(output, vector);
        }
      },
      [&](unsigned u, std::size_t vector) {
        const float4 values = scaled(floats_of<Format>(codes[u]), scale);
        store_four(output, vector, kInto == Into::kAdd ? sums[u] + values : values);
      });
  const auto* narrow = reinterpret_cast<const typename Format::Code*>(encoded);
  for (std::size_t i = 4 * vectors + thread_in_grid(); i < elements; i += threads_in_grid()) {
    const float value = scaled(Format::float_of(narrow[i]), scale);
    output[i] = kInto == Into::kAdd ? output[i] + value : value;
  }
}

template <typename Format>
__global__ void __launch_bounds__(kThreads)
    reduce_kernel(Payloads payloads, EncodeBuffers buffers, std::size_t vectors) {
  float4 sums[kUnroll];
  for_vectors(
      vectors,
      [&](unsigned u, std::size_t vector) {
        sums[u] = addends_of<Format>(load_codes(payloads.bytes[0], vector));
        if (buffers.input != nullptr) {
          sums[u] = load_four(buffers.input, vector) + sums[u];
        }
#pragma unroll 4
        for (unsigned p = 1; p < payloads.count; ++p) {
          sums[u] = sums[u] + addends_of<Format>(load_codes(payloads.bytes[p], vector));
        }
        if (buffers.residual != nullptr) {
          sums[u] = sums[u] + load_four(buffers.residual, vector);
        }
      },
      [&](unsigned u, std::size_t vector) {
        const uint2 codes = codes_of<Format>(sums[u]);
        reinterpret_cast<uint2*>(buffers.output)[vector] = codes;
        if (buffers.residual != nullptr) {
          store_four(buffers.residual, vector, kept_errors(sums[u] - addends_of<Format>(codes)));
        }
      });
  using Code = typename Format::Code;
  for (std::size_t i = 4 * vectors + thread_in_grid(); i < buffers.elements;
       i += threads_in_grid()) {
    float sum = Format::addend_of(reinterpret_cast<const Code*>(payloads.bytes[0])[i]);
    if (buffers.input != nullptr) {
      sum = buffers.input[i] + sum;
    }
    for (unsigned p = 1; p < payloads.count; ++p) {
      sum += Format::addend_of(reinterpret_cast<const Code*>(payloads.bytes[p])[i]);
    }
    if (buffers.residual != nullptr) {
      sum += buffers.residual[i];
    }
    const Code code = Format::code_of(sum);
    reinterpret_cast<Code*>(buffers.output)[i] = code;
    if (buffers.residual != nullptr) {
      buffers.residual[i] = element::kept_error(sum - Format::addend_of(code));
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    encode_plain_kernel(EncodeBuffers buffers, std::size_t vectors) {
  float4 values[kUnroll];
  for_vectors(
      vectors,
      [&](unsigned u, std::size_t vector) {
        values[u] = load_four(buffers.input, vector) + load_four(buffers.residual, vector);
      },
      [&](unsigned u, std::size_t vector) {
        store_four(reinterpret_cast<float*>(buffers.output), vector, values[u]);
        store_four(buffers.residual, vector, make_float4(0, 0, 0, 0));
      });
  for (std::size_t i = 4 * vectors + thread_in_grid(); i < buffers.elements;
       i += threads_in_grid()) {
    reinterpret_cast<float*>(buffers.output)[i] = buffers.input[i] + buffers.residual[i];
    buffers.residual[i] = 0;
  }
}

__global__ void __launch_bounds__(kThreads)
    add_kernel(const float* addend, float* output, std::size_t elements, std::size_t vectors) {
  float4 sums[kUnroll];
  for_vectors(
      vectors,
      [&](unsigned u, std::size_t vector) {
        sums[u] = load_four(output, vector) + load_four(addend, vector);
      },
      [&](unsigned u, std::size_t vector) { store_four(output, vector, sums[u]); });
  for (std::size_t i = 4 * vectors + thread_in_grid(); i < elements; i += threads_in_grid()) {
    output[i] += addend[i];
  }
}

/// Whole vectors, where all of their buffers are aligned for them.
std::size_t vectors_of(std::size_t elements, bool aligned) { return aligned ? elements / 4 : 0; }

/// Thread blocks for so many vectors, or else elements.
std::size_t blocks_for(std::size_t elements, std::size_t vectors) {
  return vectors != 0 ? ceil_divide(vectors, kVectorsPerBlock)
                      : ceil_divide(elements, std::size_t{kThreads});
}

bool are_aligned(const EncodeBuffers& buffers, std::size_t code_vector) {
  return is_aligned(buffers.input, 16) && is_aligned(buffers.residual, 16) &&
         is_aligned(buffers.output, code_vector);
}

template <typename Format>
void decode_as(const std::byte* codes, float scale, Into into, float* output, std::size_t elements,
               const Launch& where) {
  const std::size_t vectors = vectors_of(elements, is_aligned(codes, 8) && is_aligned(output, 16));
  launch(
      "decode, rounded",
      into == Into::kAdd ? decode_kernel<Format, Into::kAdd> : decode_kernel<Format, Into::kStore>,
      blocks_for(elements, vectors), kThreads, where, codes, scale, output, elements, vectors);
}

}  // namespace

void encode_rounded(Rounding rounding, const EncodeBuffers& buffers, float scale, Launch where) {
  const std::size_t vectors = vectors_of(buffers.elements, are_aligned(buffers, 8));
  launch(
      "encode, rounded",
      rounding == Rounding::kHalf ? encode_kernel<element::Half> : encode_kernel<element::Bfloat16>,
      blocks_for(buffers.elements, vectors), kThreads, where, buffers, scale, vectors);
}

void decode_rounded(Rounding rounding, const std::byte* codes, float scale, Into into,
                    float* output, std::size_t elements, Launch where) {
  if (rounding == Rounding::kHalf) {
    decode_as<element::Half>(codes, scale, into, output, elements, where);
  } else {
    decode_as<element::Bfloat16>(codes, scale, into, output, elements, where);
  }
}

void reduce_rounded(Rounding rounding, const Payloads& payloads, const EncodeBuffers& buffers,
                    Launch where) {
  bool aligned = are_aligned(buffers, 8);
  for (unsigned p = 0; p < payloads.count; ++p) {
    aligned = aligned && is_aligned(payloads.bytes[p], 8);
  }
  const std::size_t vectors = vectors_of(buffers.elements, aligned);
  launch(
      "reduce, rounded",
      rounding == Rounding::kHalf ? reduce_kernel<element::Half> : reduce_kernel<element::Bfloat16>,
      blocks_for(buffers.elements, vectors), kThreads, where, payloads, buffers, vectors);
}

void encode_plain(const EncodeBuffers& buffers, Launch where) {
  if (buffers.residual == nullptr) {
    check_cuda(cudaMemcpyAsync(buffers.output, buffers.input, buffers.elements * sizeof(float),
                               cudaMemcpyDeviceToDevice, where.stream),
               "cudaMemcpyAsync");
    return;
  }
  const std::size_t vectors = vectors_of(buffers.elements, are_aligned(buffers, 16));
  launch("encode, plain", encode_plain_kernel, blocks_for(buffers.elements, vectors), kThreads,
         where, buffers, vectors);
}

void decode_plain(const std::byte* encoded, Into into, float* output, std::size_t elements,
                  Launch where) {
  if (into == Into::kStore) {
    check_cuda(cudaMemcpyAsync(output, encoded, elements * sizeof(float), cudaMemcpyDeviceToDevice,
                               where.stream),
               "cudaMemcpyAsync");
    return;
  }
  const std::size_t vectors =
      vectors_of(elements, is_aligned(encoded, 16) && is_aligned(output, 16));
  launch("decode, plain", add_kernel, blocks_for(elements, vectors), kThreads, where,
         reinterpret_cast<const float*>(encoded), output, elements, vectors);
}

}  // namespace rackrail::runtime

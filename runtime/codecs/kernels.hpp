// The inner loops of the CPU codecs, one table of them per instruction set.
//
// The loops are written once (kernels.cpp) and compiled for several instruction sets; which table
// is used is decided at run time, because one binary must run on every machine of a cluster. All
// tables give the same bits: only operations that IEEE 754 defines exactly are used, no order of
// operations depends on the vector width, and nothing is contracted to a fused multiply-add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rackrail::runtime {

/// Encoded bytes need no alignment. `count` elements each; ranges do not overlap.
struct Kernels {
  const char* name;

  /// sum += addend, where `addend` is FP32 as bytes.
  void (*add)(float* sum, const std::byte* addend, std::size_t count);
  /// IEEE binary16, to nearest even; NaN keeps the upper bits of its payload and becomes quiet.
  void (*encode_fp16)(const float* input, std::byte* output, std::size_t count);
  void (*decode_fp16)(const std::byte* input, float* output, std::size_t count);
  void (*decode_add_fp16)(const std::byte* input, float* output, std::size_t count);
  /// Bits of the largest |input|, as an integer: order of magnitude, then infinity, then NaN.
  std::uint32_t (*largest_magnitude)(const float* input, std::size_t count);
  /// codes = input / scale, rounded up where random_unit_float(stream, first + i) is below the
  /// fraction, in [−127, 127]. `scale` is positive and |input| is at most 128 times as large.
  void (*encode_int8)(const float* input, float scale, std::uint64_t stream, std::uint64_t first,
                      std::byte* codes, std::size_t count);
  /// output = code · scale
  void (*decode_int8)(const std::byte* codes, float scale, float* output, std::size_t count);
  void (*decode_add_int8)(const std::byte* codes, float scale, float* output, std::size_t count);
};

/// Every table that this machine can run, the plainest first.
std::span<const Kernels> usable_kernels();
/// The last of them.
const Kernels& kernels();

}  // namespace rackrail::runtime

// What a codec is, as far as plans, simulator and runtime must agree: a name, parameters, the size
// of its output and a model of its error. The arithmetic itself lives in runtime/codecs/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace rackrail::plan {

enum class CodecKind : std::uint8_t {
  kNone,       ///< FP32 as it is
  kFp16,       ///< IEEE binary16, round to nearest even
  kInt8Block,  ///< blocks of `block` elements: one FP32 scale and 8-bit codes, stochastic rounding
  kTopK,       ///< the `density` share of largest magnitudes: 32-bit index and FP32 value each
};

/// A codec with its parameters; equality means "produces the same bytes from the same input".
struct Codec {
  CodecKind kind = CodecKind::kNone;
  std::uint32_t block = 256;  ///< kInt8Block: elements per scale, 1 to 2²⁰
  double density = 0.01;      ///< kTopK: share of elements kept, in (0, 1]

  bool operator==(const Codec& other) const;
  bool is_lossy() const { return kind != CodecKind::kNone; }
  /// Whether an element's code depends on that element alone, and encoding what was decoded changes
  /// nothing: then neither the range that is encoded nor a second encoding makes a difference.
  bool is_elementwise() const { return kind == CodecKind::kNone || kind == CodecKind::kFp16; }
  /// Whether the error is fed back (e ← g + e − D(C(g+e))): 8-bit blocks and top-k, not FP16.
  bool has_error_feedback() const {
    return kind == CodecKind::kInt8Block || kind == CodecKind::kTopK;
  }
};

/// Bytes of the encoded form of `elements` floats. none: 4n; fp16: 2n; int8: n + 4·⌈n/block⌉;
/// top-k: 8·max(1, ⌈density·n⌉) (and 0 for n = 0).
Bytes encoded_size(const Codec& codec, std::int64_t elements);

/// Number of elements that top-k keeps of `elements`.
std::int64_t kept_elements(const Codec& codec, std::int64_t elements);

/// Model of the relative error ‖D(C(g)) − g‖/‖g‖ of one encoding of a gradient with normally
/// distributed elements, before error feedback. fp16: 2⁻¹¹/√3 · √(3/(8·ln 2)) = 2.1e-4; int8: a
/// step of max/127 with stochastic rounding, so (step²/6)·(1 − 1/block) with the exact E[max²] of
/// `block` normal elements (about 2·ln(block) less a little: 9.2 for 256, hence 0.0097); top-k: √(1
/// − share of the energy kept). Takes microseconds; none and fp16 take no time.
double relative_error(const Codec& codec);

/// "none", "fp16", "int8" (or "int8:block=128"), "topk" (or "topk:density=0.001").
std::string to_string(const Codec& codec);
/// The reverse; throws ConfigError with found and expected.
Codec parse_codec(std::string_view text);

/// Codecs in the order in which the planner tries them, with default parameters.
std::span<const Codec> known_codecs();

}  // namespace rackrail::plan

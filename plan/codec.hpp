// What a codec is, as far as plans, simulator and runtime must agree: a name, parameters, the size
// of its output and a model of its error. A codec itself, arithmetic included, is one file of
// codecs/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace rackrail::plan {

/// One for each line of codecs/registered.inc, in its order: from the lightest to the strongest.
/// The numbers are of this build only; files hold names.
enum class CodecKind : std::uint8_t {
#define RACKRAIL_CODEC(kind, file) kind,
#include "plan/codecs/registered.inc"
#undef RACKRAIL_CODEC
};

inline constexpr std::size_t kCodecKinds = 0
#define RACKRAIL_CODEC(kind, file) +1  // NOLINT(bugprone-macro-parentheses): a term of the sum
#include "plan/codecs/registered.inc"
#undef RACKRAIL_CODEC
    ;

/// A codec with its parameters; equality means "produces the same bytes from the same input".
struct Codec {
  CodecKind kind = CodecKind::kNone;
  std::uint32_t block = 256;  ///< elements per scale, 1 to 2²⁰, where there are blocks
  double density = 0.01;      ///< share of elements kept, in (0, 1], where some are dropped

  bool operator==(const Codec& other) const;
  bool is_lossy() const { return kind != CodecKind::kNone; }
  /// Whether an element's code depends on that element alone, and encoding what was decoded changes
  /// nothing: then neither the range that is encoded nor a second encoding makes a difference.
  bool is_elementwise() const;
  /// Whether the error is fed back (e ← g + e − D(C(g+e))): all that are coarser than 16 bits.
  bool has_error_feedback() const;
  /// Whether it sends a part of the elements only.
  bool is_sparse() const;
  /// Whether it may be applied again to every partial sum of a long route, and to gradients that
  /// are sensitive (norms, biases): rounding to 16 bits may, what is coarser may not.
  bool survives_many_hops() const;
};

/// Bytes of the encoded form of `elements` floats, as the file of the codec says (and 0 for none).
Bytes encoded_size(const Codec& codec, std::int64_t elements);

/// Number of elements that a codec with a density keeps of `elements`: max(1, ⌈density·n⌉), 0 of 0.
std::int64_t kept_elements(const Codec& codec, std::int64_t elements);

/// Formula for the relative error ‖D(C(g)) − g‖/‖g‖ of one encoding of a gradient with normally
/// distributed elements, before error feedback; the formula is in the file of the codec. fp16
/// 2.1e-4, int8 with blocks of 256 0.0097, top-k of 1 % 0.96. Takes some 10 µs at most; none and
/// codecs that round take no time.
double relative_error(const Codec& codec);

/// "none", "fp16", "int8" (or "int8:block=128"), "topk" (or "topk:density=0.001"), …
std::string to_string(const Codec& codec);
/// The reverse, and "fp32" for none; throws ConfigError with found and expected.
Codec parse_codec(std::string_view text);

/// Codecs that plans use as a rule, with default parameters, from the lightest to the strongest: a
/// calibration has them all. What a plan may use is planner/tuning/codecs_to_try.hpp's to say.
std::span<const Codec> known_codecs();
/// Every codec, with default parameters, from the lightest to the strongest: those
/// above, and those that are used only when they are asked for.
std::span<const Codec> all_codecs();

}  // namespace rackrail::plan

// All that there is to say about a codec, behind one interface: what plans and simulations must
// know (name, parameters, size, error, memory traffic) and what executing a plan needs (the
// arithmetic). One file of this folder holds both for one codec, because the wire format decides
// both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/codecs/arithmetic.hpp"

namespace rackrail::plan {

/// A parameter that a codec can be written with, "int8:block=128". Its default is that of Codec.
struct CodecParameter {
  std::string_view name;
  std::variant<std::uint32_t Codec::*, double Codec::*> field;
  double above;  ///< every value is larger …
  double most;   ///< … and none exceeds this
};

bool is_within_limits(const CodecParameter& parameter, const Codec& codec);

/// What is the same whatever the parameters.
struct CodecTraits {
  std::string_view name;  ///< in plan files, on the command line and in calibrations
  std::vector<CodecParameter> parameters;
  bool is_elementwise = false;      ///< see Codec::is_elementwise
  bool has_error_feedback = false;  ///< see Codec::has_error_feedback
  bool survives_many_hops = false;  ///< see Codec::survives_many_hops
  bool is_default = false;          ///< see known_codecs()
};

/// Bytes of memory read and written per FP32 element, compulsory traffic only: from them follow the
/// rates on a device whose memory bandwidth is known.
struct CodecTraffic {
  double encode = 0;
  double decode_add = 0;
};
/// Of an encoding with error feedback before its output: reads gradient and residual and writes the
/// new residual.
inline constexpr double kFeedbackTraffic = 4 + 4 + 4;

/// One object per kind, found by codec_format().
class CodecFormat {
 public:
  explicit CodecFormat(CodecTraits traits) : traits_(std::move(traits)) {}
  virtual ~CodecFormat() = default;
  CodecFormat(const CodecFormat&) = delete;
  CodecFormat& operator=(const CodecFormat&) = delete;

  const CodecTraits& traits() const { return traits_; }

  /// Bytes that `elements` > 0 floats are encoded to.
  virtual Bytes encoded_size(const Codec& codec, std::int64_t elements) const = 0;
  /// See plan::relative_error.
  virtual double relative_error(const Codec& codec) const = 0;
  virtual CodecTraffic traffic(const Codec& codec) const = 0;
  /// CPU implementation; the same bits whatever its vector instructions. `codec` has parameters
  /// within their limits.
  virtual std::unique_ptr<CodecArithmetic> arithmetic(const Codec& codec) const = 0;

 private:
  CodecTraits traits_;
};

const CodecFormat& codec_format(CodecKind kind);

}  // namespace rackrail::plan

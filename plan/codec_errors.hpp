// How wrong one encoding of a gradient is, for who has not measured it on gradients of their own
// model (Workload::codec_errors): the shipped table.
//
// The table (codecs/measured_errors.inc) holds what codecs do to gradients of the shipped
// trainings, measured by scripts/measure-codec-errors; what counts is the worst of them. Between
// two values of a codec's parameter that are in it, measured by model (plan::relative_error) is
// interpolated, on the parameter's logarithm; beyond them it is that of the nearest one, but at
// least 1. Of codecs that are not in it the model is all there is.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plan/codec.hpp"

namespace rackrail::plan {

enum class ErrorSource : std::uint8_t {
  kModelFile,     ///< measured on gradients of the model itself (`codec_errors` of its file)
  kTable,         ///< measured on gradients of the shipped trainings
  kInterpolated,  ///< the same for other values of the codec's parameter
  kFormula,       ///< the codec's model, of normally distributed gradients
};
/// In words, after the figure: "measured on gradients of the shipped trainings".
std::string_view to_string(ErrorSource source);

/// ‖D(C(g)) − g‖/‖g‖ of one encoding, before error feedback.
struct CodecError {
  double error = 0;
  ErrorSource source = ErrorSource::kFormula;
};

/// Of the shipped table; 0 for FP32.
CodecError usual_error(const Codec& codec);

/// One row of the table: the worst of the trainings'.
struct MeasuredError {
  Codec codec;
  double error = 0;
};
std::span<const MeasuredError> measured_errors();

}  // namespace rackrail::plan

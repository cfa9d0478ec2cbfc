#include "plan/codec_errors.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "plan/codecs/format.hpp"

namespace rackrail::plan {

namespace {

/// Whether it has one alone, on which its error depends then.
bool has_one_parameter(CodecKind kind) {
  return codec_format(kind).traits().parameters.size() == 1;
}
double parameter_of(const Codec& codec) {
  return std::visit([&](auto field) { return static_cast<double>(codec.*field); },
                    codec_format(codec.kind).traits().parameters.front().field);
}

/// A value of the codec's parameter and what was measured there by what the model says.
using Point = std::pair<double, double>;

/// In the order of their values.
std::vector<Point> points_of(CodecKind kind) {
  std::vector<Point> points;
  for (const MeasuredError& row : measured_errors()) {
    const double model = row.codec.kind == kind ? relative_error(row.codec) : 0;
    if (model > 0) {
      points.emplace_back(parameter_of(row.codec), row.error / model);
    }
  }
  std::ranges::sort(points);
  return points;
}

}  // namespace

std::string_view to_string(ErrorSource source) {
  switch (source) {
    case ErrorSource::kModelFile:
      return "measured on gradients of this model";
    case ErrorSource::kTable:
      return "measured on gradients of the shipped trainings";
    case ErrorSource::kInterpolated:
      return "between what was measured on gradients of the shipped trainings";
    case ErrorSource::kFormula:
      break;
  }
  return "by the codec's model, not measured";
}

std::span<const MeasuredError> measured_errors() {
  static const std::vector<MeasuredError> table = [] {
    std::vector<MeasuredError> rows;
    const auto add = [&rows](std::string_view codec, std::initializer_list<double> errors) {
      rows.push_back({parse_codec(codec), std::max(errors)});
    };
#define RACKRAIL_MEASURED(codec, ...) add(codec, {__VA_ARGS__});
#include "plan/codecs/measured_errors.inc"
#undef RACKRAIL_MEASURED
    return rows;
  }();
  return table;
}

CodecError usual_error(const Codec& codec) {
  if (!codec.is_lossy()) {
    return {};
  }
  for (const MeasuredError& row : measured_errors()) {
    if (row.codec == codec) {
      return {row.error, ErrorSource::kTable};
    }
  }
  const double model = relative_error(codec);
  const std::vector<Point> points =
      has_one_parameter(codec.kind) ? points_of(codec.kind) : std::vector<Point>();
  if (points.empty()) {
    return {model, ErrorSource::kFormula};
  }
  const double value = parameter_of(codec);
  const auto after = std::ranges::lower_bound(points, value, {}, &Point::first);
  if (after == points.begin() || after == points.end()) {
    const Point& nearest = after == points.begin() ? points.front() : points.back();
    return {std::min(1.0, model * std::max(1.0, nearest.second)), ErrorSource::kFormula};
  }
  const Point& before = *std::prev(after);
  const double share = std::log(value / before.first) / std::log(after->first / before.first);
  const double ratio = std::lerp(before.second, after->second, share);
  return {std::min(1.0, model * ratio), ErrorSource::kInterpolated};
}

}  // namespace rackrail::plan

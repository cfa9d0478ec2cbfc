#include "plan/codec_errors.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <tuple>

#include "plan/workload.hpp"

namespace rackrail::plan::codec_errors_test {
namespace {

CodecError error_of(const char* codec) { return usual_error(parse_codec(codec)); }

TEST_CASE("the shipped table has every codec that is executed, as measured and not by formula") {
  for (const Codec& codec : all_codecs()) {
    CAPTURE(to_string(codec));
    const CodecError error = usual_error(codec);
    if (codec.is_lossy()) {
      CHECK(error.source == ErrorSource::kTable);
      CHECK(error.error > 0);
      CHECK(error.error <= 1);
    } else {
      CHECK(error.error == 0);
    }
  }
  // Outliers of real gradients: worse than the formula for blocks with one scale, better for top-k.
  CHECK(error_of("int8").error > 1.1 * relative_error(parse_codec("int8")));
  CHECK(error_of("topk").error < 0.9 * relative_error(parse_codec("topk")));
}

TEST_CASE("what counts is the worst of the trainings, at every value of a parameter in the table") {
  REQUIRE(measured_errors().size() >= 7);
  for (const MeasuredError& row : measured_errors()) {
    CAPTURE(to_string(row.codec));
    CHECK(usual_error(row.codec).error == row.error);
    CHECK(usual_error(row.codec).source == ErrorSource::kTable);
  }
}

TEST_CASE(
    "between values of the table errors are interpolated, beyond them no better than by formula") {
  for (const auto& [less, between, more] :
       {std::tuple("int8:block=64", "int8:block=100", "int8:block=128"),
        std::tuple("topk:density=0.1", "topk:density=0.05", "topk:density=0.03")}) {
    CAPTURE(between);
    CHECK(error_of(between).source == ErrorSource::kInterpolated);
    CHECK(error_of(between).error > error_of(less).error);
    CHECK(error_of(between).error < error_of(more).error);
  }
  for (const char* beyond : {"topk:density=0.0001", "topk:density=0.7", "int8:block=8",
                             "int8:block=65536", "randomk:density=0.9"}) {
    CAPTURE(beyond);
    CHECK(error_of(beyond).source == ErrorSource::kFormula);
    CHECK(error_of(beyond).error >= relative_error(parse_codec(beyond)));
    CHECK(error_of(beyond).error <= 1);
  }
  CHECK(error_of("topk:density=1").error == 0);
}

TEST_CASE("what was measured on a model's own gradients comes before the table") {
  Workload workload;
  workload.codec_errors = {{"int8", 0.5}};
  const CodecError own = workload.sourced_codec_error(parse_codec("int8"));
  CHECK(own.error == 0.5);
  CHECK(own.source == ErrorSource::kModelFile);
  CHECK(workload.sourced_codec_error(parse_codec("fp16")).source == ErrorSource::kTable);
  CHECK(workload.codec_error(parse_codec("fp16")) == error_of("fp16").error);
}

}  // namespace
}  // namespace rackrail::plan::codec_errors_test

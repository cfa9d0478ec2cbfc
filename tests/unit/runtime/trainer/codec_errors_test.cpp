#include "runtime/trainer/codec_errors.hpp"

#include <catch2/catch.hpp>

#include "plan/codec.hpp"
#include "plan/codec_errors.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"
#include "topology/reader.hpp"

namespace rackrail::trainer::codec_errors_test {
namespace {

TEST_CASE("errors of codecs on gradients of a training are near what their models say") {
  const TrainingConfig config = test::small_config();
  const auto model =
      make_model(config.model, config.data.format.image, config.data.format.classes, config.seed);
  const DataSplit data = test::make_split(config, 60, 20);
  const auto errors = measure_codec_errors(config, *model, data.train, {.local_batch = 8});
  for (const plan::Codec& codec : plan::all_codecs()) {
    if (!codec.is_lossy()) {
      CHECK_FALSE(errors.contains(plan::to_string(codec)));
      continue;
    }
    CAPTURE(plan::to_string(codec));
    const double error = errors.at(plan::to_string(codec));
    const double model_error = plan::relative_error(codec);
    // Real gradients have many zeros and a few large values: finer codecs and those that keep the
    // largest do better or worse by a few times, not by orders.
    CHECK(error > model_error / 20);
    CHECK(error < model_error * 5);
    if (model_error < 0.5) {
      CHECK(error < 0.5);
    }
  }
  CHECK(errors.at("fp16") < errors.at("bf16"));
  CHECK(errors.at("bf16") < errors.at("int8"));
  CHECK(errors.at("int8") < errors.at("topk"));
  CHECK(errors.at("topk") < errors.at("randomk"));
  // The same input gives the same bits.
  const auto fresh =
      make_model(config.model, config.data.format.image, config.data.format.classes, config.seed);
  CHECK(measure_codec_errors(config, *fresh, data.train, {.local_batch = 8}) == errors);
}

TEST_CASE("the shipped table is no better than what a shipped training shows now") {
  const TrainingConfig config = read_training_config("digits-mlp", topology::configs_folder());
  const DataSplit data = load_data(config.data);
  const auto model =
      make_model(config.model, config.data.format.image, config.data.format.classes, config.seed);
  const std::vector<plan::Codec> also = {plan::parse_codec("int8:block=1024"),
                                         plan::parse_codec("topk:density=0.1")};
  const auto errors = measure_codec_errors(config, *model, data.train, {.also = also});
  REQUIRE(errors.size() >= 9);
  for (const auto& [codec, error] : errors) {
    CAPTURE(codec, error);
    const plan::CodecError usual = plan::usual_error(plan::parse_codec(codec));
    CHECK(usual.source == plan::ErrorSource::kTable);
    CHECK(error <= 1.02 * usual.error);  // other compilers round otherwise
    CHECK(error >= 0.7 * usual.error);   // the worst training is not far from this one
  }
}

}  // namespace
}  // namespace rackrail::trainer::codec_errors_test

#include "runtime/trainer/codec_errors.hpp"

#include <catch2/catch.hpp>

#include "plan/codec.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer {
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

}  // namespace
}  // namespace rackrail::trainer

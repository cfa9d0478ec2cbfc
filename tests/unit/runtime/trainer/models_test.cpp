#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "base/random.hpp"
#include "runtime/trainer/model.hpp"
#include "tests/unit/runtime/trainer/reference_network.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::models_test {
namespace {

constexpr std::int64_t kClasses = 3;

/// Biases start at zero; everything random finds more.
void randomise(std::span<float> values, std::uint64_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = random_unit_float(seed, i) - 0.5F;
  }
}

TEST_CASE("Gradients agree with finite differences of an independent network in double") {
  for (const test::ModelExample& example : test::model_examples()) {
    const std::uint64_t seed = 17;
    CAPTURE(example.name, seed);
    const auto model = make_model(example.config, example.image, kClasses, seed);
    randomise(model->parameters(), seed);
    const Dataset data = test::make_dataset(example.image, kClasses, 7, seed);
    const test::ReferenceNetwork reference(example.config, example.image, kClasses,
                                           model->tensors());
    const std::vector<double> parameters(model->parameters().begin(), model->parameters().end());

    constexpr double kWeight = 0.25;
    const double loss = model->forward_backward(data.all(), kWeight, false, {});
    CHECK(loss == Approx(reference.loss(parameters, data.all())).epsilon(1e-5));

    const std::vector<double> expected = reference.gradient(parameters, data.all());
    REQUIRE(model->gradients().size() == expected.size());
    double largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      REQUIRE(model->gradients()[i] == Approx(kWeight * expected[i]).epsilon(1e-3).margin(2e-5));
      largest = std::max(largest, std::abs(expected[i]));
    }
    CHECK(largest > 0.1);  // the comparison above was not one of zeros
  }
}

TEST_CASE("Evaluation agrees with the independent network, whatever the number of samples") {
  const test::ModelExample& example = test::model_examples().back();
  const auto model = make_model(example.config, example.image, kClasses, 3);
  randomise(model->parameters(), 4);
  const test::ReferenceNetwork reference(example.config, example.image, kClasses, model->tensors());
  const std::vector<double> parameters(model->parameters().begin(), model->parameters().end());
  for (const std::int64_t samples : {1, 64, 150}) {
    const Dataset data = test::make_dataset(example.image, kClasses, samples, 9);
    const Evaluation evaluation = model->evaluate(data.all());
    CHECK(evaluation.samples == samples);
    CHECK(evaluation.loss ==
          Approx(reference.loss(parameters, data.all()) / static_cast<double>(samples))
              .epsilon(1e-5));
    CHECK(evaluation.accuracy >= 0.0);
    CHECK(evaluation.accuracy <= 1.0);
  }
}

TEST_CASE("Accuracy counts the samples whose largest output is their class") {
  const auto model = make_model({"mlp", {}, {}}, {1, 2, 1}, 2, 1);
  // Outputs are the inputs themselves: W is the identity, b zero (bias first in the arena).
  const std::vector<float> identity{0, 0, 1, 0, 0, 1};
  std::copy(identity.begin(), identity.end(), model->parameters().begin());
  Dataset data({1, 2, 1}, 2);
  data.append(std::vector<float>{1, 0}, 0);
  data.append(std::vector<float>{1, 0}, 1);
  data.append(std::vector<float>{0, 1}, 1);
  data.append(std::vector<float>{0, 3}, 1);
  const Evaluation evaluation = model->evaluate(data.all());
  CHECK(evaluation.accuracy == 0.75);
  const double near = std::log1p(std::exp(-1.0));
  CHECK(evaluation.loss ==
        Approx((2 * near + (near + 1) + std::log1p(std::exp(-3.0))) / 4).epsilon(1e-6));
}

TEST_CASE("Tensors lie in the arena in the order in which their gradients become ready") {
  for (const test::ModelExample& example : test::model_examples()) {
    CAPTURE(example.name);
    const auto model = make_model(example.config, example.image, kClasses, 1);
    const Dataset data = test::make_dataset(example.image, kClasses, 4, 1);
    std::int64_t offset = 0;
    std::set<std::string> names;
    for (const ParameterTensor& tensor : model->tensors()) {
      CHECK(tensor.offset == offset);
      CHECK(names.insert(tensor.name).second);
      std::int64_t elements = 1;
      for (const std::int64_t size : tensor.shape) {
        elements *= size;
      }
      CHECK(tensor.elements == elements);
      offset += tensor.elements;
    }
    CHECK(static_cast<std::size_t>(offset) == model->parameters().size());
    CHECK(static_cast<std::size_t>(offset) == model->gradients().size());

    std::vector<std::size_t> order;
    bool forward_done = false;
    model->forward_backward(data.all(), 1, false,
                            {[&] {
                               CHECK(order.empty());
                               forward_done = true;
                             },
                             [&](std::size_t tensor) {
                               CHECK(forward_done);
                               order.push_back(tensor);
                             }});
    std::vector<std::size_t> expected(model->tensors().size());
    std::iota(expected.begin(), expected.end(), std::size_t{0});
    CHECK(order == expected);
  }
}

TEST_CASE("A gradient does not change any more after it was called ready") {
  const test::ModelExample& example = test::model_examples().back();
  const auto model = make_model(example.config, example.image, kClasses, 1);
  const Dataset data = test::make_dataset(example.image, kClasses, 5, 1);
  std::vector<float> as_announced(model->gradients().size());
  model->forward_backward(data.all(), 1, false,
                          {{}, [&](std::size_t index) {
                             const ParameterTensor& tensor = model->tensors()[index];
                             for (std::int64_t i = tensor.offset;
                                  i < tensor.offset + tensor.elements; ++i) {
                               const auto at = static_cast<std::size_t>(i);
                               as_announced[at] = model->gradients()[at];
                               // What whoever sends it does with it must not matter to the rest.
                               model->gradients()[at] = std::numeric_limits<float>::quiet_NaN();
                             }
                           }});
  model->forward_backward(data.all(), 1, false, {});
  CHECK(std::ranges::equal(as_announced, model->gradients()));
}

TEST_CASE("Accumulated passes add up to the pass over all their samples") {
  for (const test::ModelExample& example : test::model_examples()) {
    CAPTURE(example.name);
    const auto model = make_model(example.config, example.image, kClasses, 2);
    const Dataset data = test::make_dataset(example.image, kClasses, 9, 2);
    const double whole_loss = model->forward_backward(data.all(), 1.0 / 9, false, {});
    const std::vector<float> whole(model->gradients().begin(), model->gradients().end());
    double loss = model->forward_backward(data.view(0, 4), 1.0 / 9, false, {});
    loss += model->forward_backward(data.view(4, 5), 1.0 / 9, true, {});
    CHECK(loss == Approx(whole_loss).epsilon(1e-6));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      REQUIRE(model->gradients()[i] == Approx(whole[i]).epsilon(1e-4).margin(1e-6));
    }
  }
}

TEST_CASE("Initial parameters depend on the seed alone and have the stated spread") {
  const ModelConfig config{"mlp", {200, 100}, {}};
  const auto model = make_model(config, {8, 8, 1}, 10, 7);
  CHECK(model->parameters_digest() == make_model(config, {8, 8, 1}, 10, 7)->parameters_digest());
  CHECK(model->parameters_digest() != make_model(config, {8, 8, 1}, 10, 8)->parameters_digest());
  for (const ParameterTensor& tensor : model->tensors()) {
    const auto values = model->parameters().subspan(static_cast<std::size_t>(tensor.offset),
                                                    static_cast<std::size_t>(tensor.elements));
    CAPTURE(tensor.name);
    if (tensor.shape.size() == 1) {
      CHECK(std::ranges::all_of(values, [](float value) { return value == 0.0F; }));
      continue;
    }
    const double limit = std::sqrt(6.0 / static_cast<double>(tensor.shape.front()));
    double square = 0;
    for (const float value : values) {
      REQUIRE(std::abs(value) <= limit);
      square += static_cast<double>(value) * static_cast<double>(value);
    }
    // Variance of a uniform distribution on ±limit.
    CHECK(square / static_cast<double>(values.size()) == Approx(limit * limit / 3).epsilon(0.1));
  }
}

TEST_CASE("The default perceptron has the documented size") {
  const auto model = make_model({"mlp", {1024, 1024}, {}}, {8, 8, 1}, 10, 1);
  CHECK(model->parameters().size() == 64U * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 10 + 10);
  CHECK(model->tensors().front().name == "fc3.bias");
  CHECK(model->tensors().back().name == "fc1.weight");
}

TEST_CASE("Impossible models are refused by field") {
  const auto refused = [](const ModelConfig& config, const ImageShape& image) {
    return test::context_of<ConfigError>([&] { make_model(config, image, kClasses, 1); }).where;
  };
  CHECK(refused({"transformer", {}, {}}, {1, 4, 1}) == "model.kind");
  CHECK(refused({"mlp", {4, 0}, {}}, {1, 4, 1}) == "model.hidden[1]");
  CHECK(refused({"mlp", {}, {3}}, {1, 4, 1}) == "model.channels");
  CHECK(refused({"cnn", {}, {}}, {4, 4, 1}) == "model.channels");
  CHECK(refused({"cnn", {}, {3}}, {5, 4, 1}) == "data.image");
}

}  // namespace
}  // namespace rackrail::trainer::models_test

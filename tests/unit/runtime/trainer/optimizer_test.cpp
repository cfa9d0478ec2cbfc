#include "runtime/trainer/optimizer.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace rackrail::trainer::optimizer_test {
namespace {

const std::vector<ParameterTensor> kTensors{{"bias", {2}, 0, 2}, {"weight", {1, 2}, 2, 2}};

TEST_CASE("SGD follows its formula, and decay spares biases") {
  Sgd sgd(kTensors, {0.5, 0.1, std::nullopt});
  std::vector<float> w{1, 2, 3, 4};
  const std::vector<float> g{1, -1, 2, 0};
  std::vector<double> expected_w(w.begin(), w.end());
  std::vector<double> v(4);
  for (int step = 0; step < 5; ++step) {
    const double rate = 0.01 * (step + 1);
    const Sgd::Update update = sgd.apply(w, g, rate);
    CHECK_FALSE(update.clipped);
    CHECK_FALSE(update.skipped);
    CHECK(update.gradient_norm == Approx(std::sqrt(6.0)));
    for (std::size_t i = 0; i < 4; ++i) {
      v[i] = 0.5 * v[i] + static_cast<double>(g[i]) + (i < 2 ? 0.0 : 0.1) * expected_w[i];
      expected_w[i] -= rate * v[i];
      CHECK(w[i] == Approx(expected_w[i]).epsilon(1e-6));
      CHECK(sgd.momentum()[i] == Approx(v[i]).epsilon(1e-6).margin(1e-7));
    }
  }
}

TEST_CASE("A gradient beyond the global norm is scaled down to it, another is left alone") {
  Sgd sgd(kTensors, {0, 0, 2.5});
  std::vector<float> w{0, 0, 0, 0};
  Sgd::Update update = sgd.apply(w, std::vector<float>{3, 0, 0, 4}, 1);
  CHECK(update.clipped);
  CHECK(update.gradient_norm == Approx(5.0));
  CHECK(w == std::vector<float>{-1.5, 0, 0, -2});
  update = sgd.apply(w, std::vector<float>{1.5, 0, 0, 2}, 1);
  CHECK_FALSE(update.clipped);
  CHECK(w == std::vector<float>{-3, 0, 0, -4});
}

TEST_CASE("A gradient that is not finite changes nothing and is counted") {
  Sgd sgd(kTensors, {0.9, 0.1, 1.0});
  std::vector<float> w{1, 2, 3, 4};
  sgd.apply(w, std::vector<float>{1, 1, 1, 1}, 0.1);
  const std::vector<float> before = w;
  const std::vector<float> momentum(sgd.momentum().begin(), sgd.momentum().end());
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    CHECK(sgd.apply(w, std::vector<float>{0, bad, 0, 0}, 0.1).skipped);
  }
  CHECK(sgd.skipped_steps() == 2);
  CHECK(w == before);
  CHECK(std::ranges::equal(sgd.momentum(), momentum));
}

TEST_CASE("The norm neither overflows nor forgets the rest of a length") {
  CHECK(euclidean_norm(std::vector<float>{}) == 0.0);
  CHECK(euclidean_norm(std::vector<float>(3, 3e38F)) == Approx(std::sqrt(3.0) * 3e38));
  for (std::size_t length = 1; length < 40; ++length) {
    CHECK(euclidean_norm(std::vector<float>(length, 2.0F)) ==
          Approx(2 * std::sqrt(static_cast<double>(length))));
  }
}

}  // namespace
}  // namespace rackrail::trainer::optimizer_test

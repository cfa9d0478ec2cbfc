#include "plan/noise_scale.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.hpp"

namespace rackrail::plan::noise_scale_test {
namespace {

/// Gradients drawn sample by sample around a known G with a known, anisotropic Σ.
class Source {
 public:
  explicit Source(unsigned seed) : generator_(seed) {
    for (std::size_t d = 0; d < kDimensions; ++d) {
      gradient_.push_back(0.05 * std::sin(static_cast<double>(d)));
      deviation_.push_back(0.1 + 0.01 * static_cast<double>(d % 7));
    }
  }
  double variance() const { return squares(deviation_); }
  double squared() const { return squares(gradient_); }
  static double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) {
      sum += v * v;
    }
    return sum;
  }
  std::vector<double> mean_of(std::int64_t samples) {
    std::vector<double> sum(kDimensions, 0);
    for (std::int64_t s = 0; s < samples; ++s) {
      for (std::size_t d = 0; d < kDimensions; ++d) {
        sum[d] += gradient_[d] + deviation_[d] * normal_(generator_);
      }
    }
    for (double& value : sum) {
      value /= static_cast<double>(samples);
    }
    return sum;
  }

 private:
  static constexpr std::size_t kDimensions = 40;
  std::mt19937 generator_;
  std::normal_distribution<double> normal_;
  std::vector<double> gradient_;
  std::vector<double> deviation_;
};

TEST_CASE("the noise scale of drawn gradients is found within 5 % with unequal batches") {
  const std::vector<std::vector<std::int64_t>> divisions = {
      {1, 2, 3, 10}, {4, 4, 4, 4}, {1, 1, 1, 1, 20}, {2, 3, 5, 7, 11, 13}};
  for (const unsigned seed : {11U, 12U, 13U}) {
    for (const auto& batches : divisions) {
      CAPTURE(seed, batches);
      Source source(seed);
      NoiseScaleEstimator estimator(0.9999);
      for (int step = 0; step < 4000; ++step) {
        std::vector<LocalGradient> ranks;
        std::vector<double> average;
        std::int64_t global = 0;
        for (const std::int64_t batch : batches) {
          const std::vector<double> mean = source.mean_of(batch);
          average.resize(mean.size(), 0);
          for (std::size_t d = 0; d < mean.size(); ++d) {
            average[d] += static_cast<double>(batch) * mean[d];
          }
          global += batch;
          ranks.push_back({batch, Source::squares(mean)});
        }
        const auto all = static_cast<double>(global);
        estimator.add(ranks, Source::squares(average) / (all * all));
      }
      CHECK(estimator.gradient_variance() == Approx(source.variance()).epsilon(0.05));
      CHECK(estimator.squared_gradient() == Approx(source.squared()).epsilon(0.05));
      REQUIRE(estimator.noise_scale().has_value());
      CHECK(*estimator.noise_scale() == Approx(source.variance() / source.squared()).epsilon(0.05));
      CHECK(estimator.steps() == 4000);
    }
  }
}

TEST_CASE("two ranks by hand") {
  // g = (3, 0) of 1 sample and (0, 1) of 3; the average (0.75, 0.75) has a square of 1.125.
  NoiseScaleEstimator estimator;
  const std::vector<LocalGradient> ranks = {{1, 9}, {3, 1}};
  estimator.add(ranks, 1.125);
  CHECK(estimator.gradient_variance() == Approx(4 * (3 - 1.125)));
  CHECK(estimator.squared_gradient() == Approx(1.125 - 1.875));
  CHECK_FALSE(estimator.noise_scale().has_value());
}

TEST_CASE("old steps fade, and steps that are no numbers do not count") {
  NoiseScaleEstimator estimator(0.5);
  CHECK_FALSE(estimator.noise_scale().has_value());
  CHECK(estimator.squared_gradient() == 0);
  estimator.add(4, 2, 2, 8);  // tr(Σ) 16, |G|² 0
  estimator.add(4, 3, 2, 8);  // tr(Σ) 8, |G|² 2
  CHECK(estimator.gradient_variance() == Approx((0.5 * 16 + 8) / 1.5));
  CHECK(estimator.squared_gradient() == Approx(2 / 1.5));
  CHECK(*estimator.noise_scale() == Approx(8));
  estimator.add(std::numeric_limits<double>::quiet_NaN(), 1, 2, 8);
  estimator.add(1, std::numeric_limits<double>::infinity(), 2, 8);
  CHECK(*estimator.noise_scale() == Approx(8));
  CHECK(estimator.steps() == 2);
}

TEST_CASE("what cannot be estimated is refused") {
  NoiseScaleEstimator estimator;
  const std::vector<LocalGradient> one = {{4, 1.0}};
  const std::vector<LocalGradient> empty_batch = {{4, 1.0}, {0, 1.0}};
  CHECK_THROWS_AS(estimator.add(one, 1), PlanError);
  CHECK_THROWS_AS(estimator.add(empty_batch, 1), PlanError);
  CHECK_THROWS_AS(NoiseScaleEstimator(1), ConfigError);
  CHECK_THROWS_AS(NoiseScaleEstimator(-0.1), ConfigError);
}

TEST_CASE("gain is what efficiency makes of a larger batch") {
  CHECK(statistical_efficiency(1000, 64, 64) == 1);
  CHECK(statistical_efficiency(936, 64, 1064) == Approx(0.5));
  CHECK(adascale_gain(1e12, 64, 640) == Approx(10));  // all noise: ten times the batch, ten steps
  CHECK(adascale_gain(1e-9, 64, 640) == Approx(1));   // no noise: nothing gained
  for (const double batch : {64.0, 100.0, 5000.0}) {
    CHECK(adascale_gain(700, 64, batch) ==
          Approx(statistical_efficiency(700, 64, batch) * batch / 64));
  }
}

TEST_CASE("efficiency over a curve is the mean of what each moment costs") {
  const std::vector<NoiseAt> curve = {{0, 100}, {300, 700}, {400, 700}, {1000, 4000}};
  for (const double batch : {16.0, 64.0, 2000.0}) {
    CAPTURE(batch);
    double cost = 0;  // midpoint rule
    constexpr int kPieces = 100'000;
    for (int i = 0; i < kPieces; ++i) {
      const double p = 1000 * (i + 0.5) / kPieces;
      const double noise = p < 300 ? 100 + 2 * p : p < 400 ? 700 : 700 + (p - 400) * 5.5;
      cost += 1 / statistical_efficiency(noise, 64, batch) / kPieces;
    }
    CHECK(statistical_efficiency(curve, 64, batch) == Approx(1 / cost).epsilon(1e-6));
  }
  CHECK(mean_noise_scale(curve) == Approx((300 * 400 + 100 * 700 + 600 * 2350) / 1000.0));
  const std::vector<NoiseAt> one = {{5, 936}};
  CHECK(statistical_efficiency(one, 64, 1064) == Approx(0.5));
  CHECK(mean_noise_scale(one) == 936);
}

}  // namespace
}  // namespace rackrail::plan::noise_scale_test

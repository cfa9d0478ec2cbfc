// The host as a place to compute: memory is a vector's, and every call has done its work when it
// returns.
#include <Eigen/Core>
#include <algorithm>
#include <new>

#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/optimizer.hpp"

namespace rackrail::trainer {
namespace {

class HostCompute final : public Compute {
 public:
  std::string name() const override { return "cpu"; }

  Floats make_floats(std::size_t size) override {
    return {new float[size](), size, [](float* memory) { delete[] memory; }};
  }
  void load(std::span<const float> host, std::span<float> here) override { copy(host, here); }
  void store(std::span<const float> here, std::span<float> host) override { copy(here, host); }
  void copy(std::span<const float> from, std::span<float> to) override {
    std::ranges::copy(from, to.begin());
  }
  std::span<const float> on_host(std::span<const float> here,
                                 std::vector<float>& /*buffer*/) override {
    return here;
  }
  std::span<const float> take_in(std::span<const float> host) override { return host; }

  std::unique_ptr<Layer> make_layer(const LayerSpec& spec) override {
    switch (spec.kind) {
      case LayerSpec::Kind::kDense:
        return make_dense(spec.name, spec.input.features(), spec.outputs);
      case LayerSpec::Kind::kConvolution:
        return make_convolution(spec.name, spec.input, spec.outputs);
      case LayerSpec::Kind::kRelu:
        return make_relu(spec.input);
      case LayerSpec::Kind::kMaxPool:
        break;
    }
    return make_max_pool(spec.input);
  }
  LossSum softmax_cross_entropy(std::span<const float> outputs,
                                std::span<const std::int32_t> labels, double weight,
                                std::span<float> gradient) override {
    return trainer::softmax_cross_entropy(outputs, labels, weight, gradient);
  }

  void add_squared_norm(std::span<const float> here) override {
    squared_norm_ +=
        Eigen::Map<const Eigen::VectorXf>(here.data(), static_cast<Eigen::Index>(here.size()))
            .cast<double>()
            .squaredNorm();
  }
  double take_squared_norm() override { return std::exchange(squared_norm_, 0); }
  double norm(std::span<const float> here) override { return euclidean_norm(here); }
  void update(std::span<float> parameters, std::span<float> momentum,
              std::span<const float> gradients, const SgdStep& step) override {
    trainer::update(parameters, momentum, gradients, step);
  }

  void wait() override {}

 private:
  double squared_norm_ = 0;
};

}  // namespace

std::shared_ptr<Compute> make_host_compute() { return std::make_shared<HostCompute>(); }

std::span<float> at_least(Compute& compute, Floats& floats, std::size_t size) {
  if (floats.size() < size) {
    floats = Floats();  // first, so that both need not fit
    floats = compute.make_floats(size);
  }
  return floats.span().first(size);
}

}  // namespace rackrail::trainer

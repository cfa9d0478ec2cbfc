// A GPU as the place where the built-in trainer computes (runtime/trainer/compute.hpp): one stream,
// matrix products by cuBLAS, the rest by the kernels of training_kernels.hpp.
//
// Results differ from the host's by how matrix products and exponentials are rounded; losses agree
// to about 1e-6 at first. What must be the same on all ranks is: the update is exactly rounded in a
// fixed order.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/cuda/cublas.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/training_kernels.hpp"
#include "runtime/trainer/compute.hpp"

namespace rackrail::runtime {

class CudaCompute final : public trainer::Compute {
 public:
  /// On device `device`, which becomes the calling thread's. Throws RuntimeFailure where there is
  /// no such GPU or no cuBLAS.
  explicit CudaCompute(int device);

  std::string name() const override { return name_; }
  void* stream() const override { return stream_.get(); }

  trainer::Floats make_floats(std::size_t size) override;
  void load(std::span<const float> host, std::span<float> here) override;
  void store(std::span<const float> here, std::span<float> host) override;
  void copy(std::span<const float> from, std::span<float> to) override;
  std::span<const float> on_host(std::span<const float> here, std::vector<float>& buffer) override;
  std::span<const float> take_in(std::span<const float> host) override;

  std::unique_ptr<trainer::Layer> make_layer(const trainer::LayerSpec& spec) override;
  trainer::LossSum softmax_cross_entropy(std::span<const float> outputs,
                                         std::span<const std::int32_t> labels, double weight,
                                         std::span<float> gradient) override;

  void add_squared_norm(std::span<const float> here) override;
  double take_squared_norm() override;
  double norm(std::span<const float> here) override;
  void update(std::span<float> parameters, std::span<float> momentum,
              std::span<const float> gradients, const trainer::SgdStep& step) override;

  void wait() override { stream_.synchronize(); }

  // For the layers.

  Launch launch() const { return {.stream = stream_.get(), .most_blocks = most_blocks_}; }
  const Cublas& cublas() const { return cublas_; }
  /// As many ones, for sums over rows.
  const float* ones(std::size_t size);

 private:
  /// Makes `device` the thread's, before anything is made on it.
  struct Device {
    explicit Device(int device);
    std::string name;
    unsigned multiprocessors = 1;
  };

  double sum_of_squares(const DeviceBuffer<double>& sums);

  Device device_;
  std::string name_;
  unsigned most_blocks_;
  CudaStream stream_;
  Cublas cublas_;
  DeviceBuffer<float> ones_;
  DeviceBuffer<float> input_;
  DeviceBuffer<std::int32_t> labels_;
  DeviceBuffer<double> losses_;
  DeviceBuffer<std::uint32_t> correct_;
  DeviceBuffer<double> share_squares_;  ///< of what take_squared_norm() returns
  DeviceBuffer<double> norm_squares_;
};

}  // namespace rackrail::runtime

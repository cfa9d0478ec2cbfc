#include "runtime/cuda/cuda_compute.hpp"

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "runtime/cuda/cuda_layers.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/training.hpp"

namespace rackrail::runtime {
namespace {

constexpr unsigned kBlocksPerMultiprocessor = 8;

/// Makes a buffer at least so large, without keeping what is in it.
template <typename T>
T* reserve(DeviceBuffer<T>& buffer, std::size_t size) {
  if (buffer.size() < size) {
    buffer = DeviceBuffer<T>();
    buffer = DeviceBuffer<T>(size);
  }
  return buffer.data();
}

void copy_bytes(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                cudaStream_t stream) {
  if (bytes != 0) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream), "cudaMemcpyAsync");
  }
}

void clear(const DeviceBuffer<double>& buffer, cudaStream_t stream) {
  check_cuda(cudaMemsetAsync(buffer.data(), 0, buffer.size() * sizeof(double), stream),
             "cudaMemsetAsync");
}

}  // namespace

CudaCompute::Device::Device(int device) {
  const CudaStatus status = cuda_status();
  if (status.unavailable) {
    throw RuntimeFailure(*status.unavailable);
  }
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  name = properties.name;
  int count = 0;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
             "cudaDeviceGetAttribute");
  multiprocessors = static_cast<unsigned>(count);
}

CudaCompute::CudaCompute(int device)
    : device_(device),
      name_(device_.name),
      most_blocks_(device_.multiprocessors * kBlocksPerMultiprocessor),
      cublas_(stream_.get()),
      share_squares_(kSquareSums),
      norm_squares_(kSquareSums) {
  clear(share_squares_, stream_.get());
}

trainer::Floats CudaCompute::make_floats(std::size_t size) {
  if (size == 0) {
    return {};
  }
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, size * sizeof(float)), "cudaMalloc");
  trainer::Floats floats(static_cast<float*>(memory), size,
                         [](float* released) { static_cast<void>(cudaFree(released)); });
  check_cuda(cudaMemsetAsync(memory, 0, size * sizeof(float), stream_.get()), "cudaMemsetAsync");
  return floats;
}

void CudaCompute::load(std::span<const float> host, std::span<float> here) {
  copy_bytes(here.data(), host.data(), host.size_bytes(), cudaMemcpyHostToDevice, stream_.get());
  wait();
}

void CudaCompute::store(std::span<const float> here, std::span<float> host) {
  copy_bytes(host.data(), here.data(), here.size_bytes(), cudaMemcpyDeviceToHost, stream_.get());
  wait();
}

void CudaCompute::copy(std::span<const float> from, std::span<float> to) {
  copy_bytes(to.data(), from.data(), from.size_bytes(), cudaMemcpyDeviceToDevice, stream_.get());
}

std::span<const float> CudaCompute::on_host(std::span<const float> here,
                                            std::vector<float>& buffer) {
  buffer.resize(here.size());
  store(here, buffer);
  return buffer;
}

std::span<const float> CudaCompute::take_in(std::span<const float> host) {
  float* const here = reserve(input_, host.size());
  copy_bytes(here, host.data(), host.size_bytes(), cudaMemcpyHostToDevice, stream_.get());
  return {here, host.size()};
}

std::unique_ptr<trainer::Layer> CudaCompute::make_layer(const trainer::LayerSpec& spec) {
  return make_cuda_layer(*this, spec);
}

trainer::LossSum CudaCompute::softmax_cross_entropy(std::span<const float> outputs,
                                                    std::span<const std::int32_t> labels,
                                                    double weight, std::span<float> gradient) {
  const std::size_t rows = labels.size();
  std::int32_t* const labels_here = reserve(labels_, rows);
  copy_bytes(labels_here, labels.data(), labels.size_bytes(), cudaMemcpyHostToDevice,
             stream_.get());
  softmax_rows(outputs.data(), labels_here, rows, outputs.size() / rows, weight,
               gradient.empty() ? nullptr : gradient.data(), reserve(losses_, rows),
               reserve(correct_, rows), launch());
  std::vector<double> losses(rows);
  std::vector<std::uint32_t> correct(rows);
  copy_bytes(losses.data(), losses_.data(), rows * sizeof(double), cudaMemcpyDeviceToHost,
             stream_.get());
  copy_bytes(correct.data(), correct_.data(), rows * sizeof(std::uint32_t), cudaMemcpyDeviceToHost,
             stream_.get());
  wait();
  return {std::accumulate(losses.begin(), losses.end(), 0.0),
          std::accumulate(correct.begin(), correct.end(), std::int64_t{0})};
}

void CudaCompute::add_squared_norm(std::span<const float> here) {
  add_squares(here.data(), here.size(), share_squares_.data(), stream_.get());
}

double CudaCompute::take_squared_norm() {
  const double sum = sum_of_squares(share_squares_);
  clear(share_squares_, stream_.get());
  return sum;
}

double CudaCompute::norm(std::span<const float> here) {
  clear(norm_squares_, stream_.get());
  add_squares(here.data(), here.size(), norm_squares_.data(), stream_.get());
  return std::sqrt(sum_of_squares(norm_squares_));
}

double CudaCompute::sum_of_squares(const DeviceBuffer<double>& sums) {
  std::array<double, kSquareSums> values = {};
  copy_to_host(sums, std::span<double>(values), stream_.get());
  wait();
  return std::accumulate(values.begin(), values.end(), 0.0);
}

void CudaCompute::update(std::span<float> parameters, std::span<float> momentum,
                         std::span<const float> gradients, const trainer::SgdStep& step) {
  update_parameters(parameters.data(), momentum.data(), gradients.data(), parameters.size(),
                    {step.momentum, step.scale, step.decay, step.rate}, launch());
}

const float* CudaCompute::ones(std::size_t size) {
  if (ones_.size() < size) {
    const std::vector<float> values(size, 1.0F);
    load(values, {reserve(ones_, size), size});
  }
  return ones_.data();
}

std::vector<std::string> cuda_devices() {
  std::vector<std::string> devices;
  if (cuda_status().unavailable) {
    return devices;
  }
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int device = 0; device < count; ++device) {
    std::array<char, 32> address = {};
    check_cuda(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device),
               "cudaDeviceGetPCIBusId");
    devices.emplace_back(address.data());
  }
  return devices;
}

CublasStatus cublas_status() {
  const CublasLibrary& library = cublas_library();
  return {library.unavailable, library.file};
}

std::shared_ptr<trainer::Compute> make_cuda_compute(int device) {
  return std::make_shared<CudaCompute>(device);
}

}  // namespace rackrail::runtime

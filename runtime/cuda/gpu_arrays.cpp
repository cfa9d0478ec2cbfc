#include "runtime/cuda/gpu_arrays.hpp"

#include <string>

#include "base/error.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/cuda/training_kernels.hpp"

namespace rackrail::runtime {
namespace {

constexpr unsigned kMostBlocks = 1024;

class CudaArrays final : public GpuArrays {
 public:
  /// `device` is the current one.
  explicit CudaArrays(int device) : device_(device) {
    // A kernel is loaded when it is first launched, which may wait for the whole device: now, and
    // not beside sums.
    const trainer::Floats one = make(1);
    multiply(one.span(), 1);
    stream_.synchronize();
  }

  void* stream() const override { return stream_.get(); }

  void require(const float* data) const override {
    cudaPointerAttributes attributes = {};
    const cudaError_t state = cudaPointerGetAttributes(&attributes, data);
    const bool is_on_device = state == cudaSuccess && (attributes.type == cudaMemoryTypeDevice ||
                                                       attributes.type == cudaMemoryTypeManaged);
    if (!is_on_device || attributes.device != device_) {
      throw ConfigError(ErrorContext{
          .file = {},
          .where = "buffer.data",
          .found = is_on_device ? "memory of GPU " + std::to_string(attributes.device)
                                : "memory of the host",
          .expected =
              "memory of GPU " + std::to_string(device_) + ", which the job's sums are on"});
    }
  }

  void follow(void* stream) override {
    const CurrentDevice here(device_);
    written_.record(static_cast<cudaStream_t>(stream));
    written_.hold_back(stream_.get());
  }

  void settle() override { stream_.synchronize(); }

  trainer::Floats make(std::size_t size) override {
    const CurrentDevice here(device_);
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, size * sizeof(float)), "cudaMalloc");
    trainer::Floats floats(static_cast<float*>(memory), size,
                           [](float* released) { static_cast<void>(cudaFree(released)); });
    clear(floats.span());
    return floats;
  }

  void clear(std::span<float> values) override {
    const CurrentDevice here(device_);
    check_cuda(cudaMemsetAsync(values.data(), 0, values.size_bytes(), stream_.get()),
               "cudaMemsetAsync");
  }

  void multiply(std::span<float> values, float factor) override {
    const CurrentDevice here(device_);
    multiply_values(values.data(), values.size(), factor,
                    {.stream = stream_.get(), .most_blocks = kMostBlocks});
  }

  void copy(std::span<const float> from, std::span<float> to) override {
    const CurrentDevice here(device_);
    check_cuda(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDefault,
                               stream_.get()),
               "cudaMemcpyAsync");
    stream_.synchronize();
  }

 private:
  const int device_;
  CudaStream stream_;
  CudaSignal written_;
};

}  // namespace

std::unique_ptr<GpuArrays> make_gpu_arrays(int device) {
  const CudaStatus status = cuda_status();
  if (status.unavailable) {
    throw RuntimeFailure(*status.unavailable);
  }
  const CurrentDevice here(device);
  return std::make_unique<CudaArrays>(device);
}

}  // namespace rackrail::runtime

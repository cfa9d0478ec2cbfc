#include "runtime/cuda/factory.hpp"

#include <cuda_runtime_api.h>

#include <mutex>

#include "base/error.hpp"
#include "runtime/cuda/cuda_error.hpp"
#include "runtime/cuda/device_codec.hpp"
#include "runtime/cuda/handles.hpp"

namespace rackrail::runtime {
namespace {

class CudaCodec final : public Codec {
 public:
  explicit CudaCodec(const plan::Codec& descriptor) : codec_(make_device_codec(descriptor)) {}

  const plan::Codec& descriptor() const override { return codec_->descriptor(); }

  void encode(std::span<const float> input, std::span<float> residual, EncodeKey key,
              std::span<std::byte> output) const override {
    const std::lock_guard lock(mutex_);
    const CurrentDevice on(device_);
    const cudaStream_t stream = stream_.get();
    const std::span<float> values = at_least(values_, input.size());
    const std::span<float> errors = at_least(errors_, residual.size());
    const std::span<std::byte> bytes = at_least(bytes_, output.size());
    copy(values.data(), input.data(), input.size_bytes());
    copy(errors.data(), residual.data(), residual.size_bytes());
    codec_->encode({.input = values,
                    .residual = errors,
                    .output = bytes,
                    .scratch = at_least(scratch_, codec_->scratch_bytes(input.size())),
                    .key = key},
                   stream);
    copy(residual.data(), errors.data(), residual.size_bytes());
    copy(output.data(), bytes.data(), output.size_bytes());
    stream_.synchronize();
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    decode(encoded, Into::kStore, output);
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    decode(encoded, Into::kAdd, output);
  }

 private:
  void decode(std::span<const std::byte> encoded, Into into, std::span<float> output) const {
    const std::lock_guard lock(mutex_);
    const CurrentDevice on(device_);
    const std::span<std::byte> bytes = at_least(bytes_, encoded.size());
    const std::span<float> values = at_least(values_, output.size());
    copy(bytes.data(), encoded.data(), encoded.size_bytes());
    copy(values.data(), output.data(), output.size_bytes());
    check_cuda(cudaMemsetAsync(refused_.data(), 0, sizeof(std::uint32_t), stream_.get()),
               "cudaMemsetAsync");
    codec_->decode(bytes, into, values, refused_.data(), stream_.get());
    std::uint32_t impossible = 0;
    copy(&impossible, refused_.data(), sizeof impossible);
    copy(output.data(), values.data(), output.size_bytes());
    stream_.synchronize();
    if (impossible != 0) {
      throw RuntimeFailure("codec " + plan::to_string(descriptor()) +
                           " on a GPU: " + std::to_string(impossible) +
                           " indices that are not ascending or too large");
    }
  }

  /// Of memory that is kept: to take and release some waits for the device.
  template <typename T>
  static std::span<T> at_least(DeviceBuffer<T>& buffer, std::size_t size) {
    if (buffer.size() < size) {
      buffer = DeviceBuffer<T>();
      buffer = DeviceBuffer<T>(size);
    }
    return buffer.span().first(size);
  }
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (bytes != 0) {
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
                 "cudaMemcpyAsync");
    }
  }

  static int current_device() {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    return device;
  }

  const int device_ = current_device();  ///< of all that follows
  std::unique_ptr<DeviceCodec> codec_;
  mutable std::mutex mutex_;  ///< guards what follows
  CudaStream stream_;
  mutable DeviceBuffer<float> values_;
  mutable DeviceBuffer<float> errors_;
  mutable DeviceBuffer<std::byte> bytes_;
  mutable DeviceBuffer<std::byte> scratch_;
  DeviceBuffer<std::uint32_t> refused_{1};
};

std::string describe_device(int device) {
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return std::string(properties.name) + " (compute capability " + std::to_string(properties.major) +
         "." + std::to_string(properties.minor) + ", " +
         std::to_string(properties.totalGlobalMem >> 30U) + " GiB)";
}

/// Not where the driver does not know the question, which is as old as CUDA 12.3.
bool has_mps(int device) {
  constexpr auto kMpsEnabled = static_cast<cudaDeviceAttr>(133);  // cudaDevAttrMpsEnabled
  int enabled = 0;
  if (cudaDeviceGetAttribute(&enabled, kMpsEnabled, device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return enabled != 0;
}

/// "13.0" of 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

CudaStatus cuda_status() {
  int driver = 0;
  try {
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    if (driver == 0) {
      return {
          .unavailable = "no GPU: this machine has no CUDA driver", .detail = {}, .has_mps = false};
    }
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    std::string detail;
    for (int device = 0; device < devices; ++device) {
      detail += (device == 0 ? "" : ", ") + describe_device(device);
    }
    if (devices == 0) {
      return {.unavailable = "no GPU: the driver knows none", .detail = {}, .has_mps = false};
    }
    const bool overlaps = has_mps(0);
    return {.unavailable = {},
            .detail = detail + "; driver for CUDA " + version_text(driver) +
                      (overlaps ? "; shared by MPS" : ""),
            .has_mps = overlaps};
  } catch (const CudaError& error) {
    std::string reason = std::string("no GPU: ") + error.what();
    if (error.code() == cudaErrorInsufficientDriver) {
      reason += ": the driver is for CUDA " + version_text(driver) + ", this build for " +
                version_text(CUDART_VERSION);
    }
    return {.unavailable = reason, .detail = {}, .has_mps = false};
  }
}

bool has_cuda_codec(const plan::Codec& descriptor) { return has_device_codec(descriptor); }

std::unique_ptr<Codec> make_cuda_codec(const plan::Codec& descriptor) {
  const CudaStatus status = cuda_status();
  if (status.unavailable) {
    throw RuntimeFailure("codec " + plan::to_string(descriptor) + ": " + *status.unavailable);
  }
  return std::make_unique<CudaCodec>(descriptor);
}

}  // namespace rackrail::runtime

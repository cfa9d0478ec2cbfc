#include "runtime/cuda/factory.hpp"

#include <cuda_runtime_api.h>

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
    const CudaStream stream;
    const DeviceBuffer<float> values(input.size());
    const DeviceBuffer<float> errors(residual.size());
    const DeviceBuffer<std::byte> bytes(output.size());
    const DeviceBuffer<std::byte> scratch(codec_->scratch_bytes(input.size()));
    copy_to_device(input, values, stream.get());
    copy_to_device<float>(residual, errors, stream.get());
    codec_->encode({.input = values.span(),
                    .residual = errors.span(),
                    .output = bytes.span(),
                    .scratch = scratch.span(),
                    .key = key},
                   stream.get());
    copy_to_host(errors, residual, stream.get());
    copy_to_host(bytes, output, stream.get());
    stream.synchronize();
  }

  void decode(std::span<const std::byte> encoded, std::span<float> output) const override {
    decode(encoded, Into::kStore, output);
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> output) const override {
    decode(encoded, Into::kAdd, output);
  }

 private:
  void decode(std::span<const std::byte> encoded, Into into, std::span<float> output) const {
    const CudaStream stream;
    const DeviceBuffer<std::byte> bytes(encoded.size());
    const DeviceBuffer<float> values(output.size());
    const DeviceBuffer<std::uint32_t> refused(1);
    copy_to_device(encoded, bytes, stream.get());
    copy_to_device<float>(output, values, stream.get());
    check_cuda(cudaMemsetAsync(refused.data(), 0, sizeof(std::uint32_t), stream.get()),
               "cudaMemsetAsync");
    codec_->decode(bytes.span(), into, values.span(), refused.data(), stream.get());
    std::uint32_t impossible = 0;
    copy_to_host(refused, std::span(&impossible, 1), stream.get());
    copy_to_host(values, output, stream.get());
    stream.synchronize();
    if (impossible != 0) {
      throw RuntimeFailure("codec " + plan::to_string(descriptor()) +
                           " on a GPU: " + std::to_string(impossible) +
                           " indices that are not ascending or too large");
    }
  }

  std::unique_ptr<DeviceCodec> codec_;
};

std::string describe_device(int device) {
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return std::string(properties.name) + " (compute capability " + std::to_string(properties.major) +
         "." + std::to_string(properties.minor) + ", " +
         std::to_string(properties.totalGlobalMem >> 30U) + " GiB)";
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
      return {.unavailable = "no GPU: this machine has no CUDA driver", .detail = {}};
    }
    int devices = 0;
    check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
    std::string detail;
    for (int device = 0; device < devices; ++device) {
      detail += (device == 0 ? "" : ", ") + describe_device(device);
    }
    if (devices == 0) {
      return {.unavailable = "no GPU: the driver knows none", .detail = {}};
    }
    return {.unavailable = {}, .detail = detail + "; driver for CUDA " + version_text(driver)};
  } catch (const CudaError& error) {
    std::string reason = std::string("no GPU: ") + error.what();
    if (error.code() == cudaErrorInsufficientDriver) {
      reason += ": the driver is for CUDA " + version_text(driver) + ", this build for " +
                version_text(CUDART_VERSION);
    }
    return {.unavailable = reason, .detail = {}};
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

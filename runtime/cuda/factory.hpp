// What the rest of the runtime sees of CUDA: whether there is a device, and codecs that run on it.
// No CUDA header is seen here; a build without CUDA has the same functions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/codec.hpp"

namespace rackrail::runtime {

struct CudaStatus {
  std::optional<std::string> unavailable;  ///< why this build or machine cannot use a GPU
  std::string detail;                      ///< else the devices and the driver's version
  /// Whether NVIDIA's Multi-Process Service has what several processes launch overlap on the first
  /// device; without it they take turns of some milliseconds.
  bool has_mps = false;
};

/// Asks the driver anew at each call; changes no setting and keeps no memory of a device.
CudaStatus cuda_status();

/// Whether there are kernels for this codec; never in a build without CUDA.
bool has_cuda_codec(const plan::Codec& descriptor);

/// The codec on the current device for buffers in host memory, which it copies to and fro, so that
/// it can stand in for make_codec() where results matter and not time. (What lies on the device is
/// encoded with runtime/cuda/device_codec.hpp.) Thread-safe. Throws RuntimeFailure where
/// cuda_status() names a reason or there are no kernels.
std::unique_ptr<Codec> make_cuda_codec(const plan::Codec& descriptor);

}  // namespace rackrail::runtime

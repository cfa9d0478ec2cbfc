// How the messages of device programs travel: by NCCL, or over a transport of the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <span>

#include "runtime/device/device_program.hpp"
#include "runtime/nccl/communicator.hpp"

namespace rackrail::runtime {

/// Used by one thread, whose current device is that of the memory.
class DeviceMessages {
 public:
  virtual ~DeviceMessages() = default;
  DeviceMessages() = default;
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  /// Once per bucket, before the first message; `program` stays where it is.
  virtual void prepare(BucketId bucket, const DeviceProgram& program) = 0;
  /// Before an exchange from or into this memory is enqueued. May wait until the device has nothing
  /// left to do; aborting from another thread ends that. Throws CudaError.
  virtual void learn(std::span<std::byte> /*memory*/) {}
  /// Enqueues an exchange of a prepared program; `gradient` and `scratch` are the bucket's. Returns
  /// without waiting for it. Throws NcclError, CudaError, PeerLostError.
  virtual void enqueue(BucketId bucket, const ExchangeOperation& exchange,
                       std::span<std::byte> gradient, std::span<std::byte> scratch,
                       cudaStream_t stream) = 0;
  /// Throws NcclError or PeerLostError where a peer is gone.
  virtual void check_health() = 0;
};

/// Each exchange is one group of sends and receives of a communicator of all ranks by their
/// numbers.
class NcclMessages final : public DeviceMessages {
 public:
  /// Keeps a reference.
  explicit NcclMessages(NcclCommunicator& world) : world_(world) {}

  void prepare(BucketId bucket, const DeviceProgram& program) override;
  void enqueue(BucketId bucket, const ExchangeOperation& exchange, std::span<std::byte> gradient,
               std::span<std::byte> scratch, cudaStream_t stream) override;
  void check_health() override { world_.check_health(); }

 private:
  NcclCommunicator& world_;
};

}  // namespace rackrail::runtime

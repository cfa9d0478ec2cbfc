// The executor for gradients on a device: device programs (runtime/device/) on CUDA streams, with
// NCCL inside the groups, and NCCL or a transport of the host between them.
//
// launch() enqueues all of a bucket's program at once and returns. It uses a CUDA stream per
// DeviceLane, and an event where a program goes from one stream to another. The host does not wait
// for the device, so backward continues; a stream that needs the sum waits for it. The host only
// polls until NCCL has accepted each call.
//
// Between the groups: DeviceMessages is NCCL by the world's communicator (NcclMessages), or goes
// over a Transport (HostMessages), by way of pinned memory or not, which is how UCX carries what
// crosses racks.
//
// Concurrent communicators. Sums and gathers of different buckets run at the same time, on
// communicators of their own. All ranks make all calls in one order, because the programs are those
// of one plan and all ranks launch buckets in the same order. Kernels of two communicators of one
// device can block each other only if together they fill it, which NCCL's few thread blocks do not
// (NcclCommunicatorOptions::most_thread_blocks).
//
// A lost peer. The first call that finds out throws NcclError (PeerLostError from a transport), and
// so do all later ones; kernels on the device wait until the communicators are aborted or shrunk.
// Earlier steps are whole, the gradients of this one are unspecified.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cuda/device_codec.hpp"
#include "runtime/cuda/handles.hpp"
#include "runtime/device/device_program.hpp"
#include "runtime/nccl/communicator.hpp"
#include "runtime/nccl/device_messages.hpp"

namespace rackrail::runtime {

/// What a rank needs of NCCL for a plan: all ranks by their numbers, and twice those of its group
/// by their places in it; none of these where every rank is alone in its group. Nothing at all
/// (default) where every rank is alone and messages go another way.
struct DeviceCommunicators {
  std::optional<NcclCommunicator> world;
  std::optional<NcclCommunicator> sums;
  std::optional<NcclCommunicator> gathers;

  /// With all ranks, of which `all` is the communicator. Throws NcclError.
  static DeviceCommunicators make(NcclCommunicator all, const RankGroups& groups, Rank self);
  /// All of them at once.
  void abort() noexcept;
  /// As NcclCommunicator::close, within the deadline each.
  bool close(Duration deadline) noexcept;
};

/// Used by one thread, whose current device is that of the communicators.
class DeviceExecutor {
 public:
  /// Keeps references to plan, communicators (which must be there as far as `groups` have several
  /// ranks) and messages, and takes device memory for residuals
  /// and for what is encoded and arrives. Throws PlanError for groups that are none, RuntimeFailure
  /// where a codec has no kernels, CudaError.
  DeviceExecutor(const plan::Plan& plan, Rank self, const RankGroups& groups,
                 DeviceCommunicators& communicators, DeviceMessages& messages);
  /// After the device has ended all that was launched, or the communicators were aborted.
  ~DeviceExecutor();
  DeviceExecutor(const DeviceExecutor&) = delete;
  DeviceExecutor& operator=(const DeviceExecutor&) = delete;

  /// As Executor::begin_step.
  void begin_step(std::uint32_t step);
  /// Once what `producer` has been given so far is done, the gradient (Bucket::elements floats on
  /// the device) becomes the sum over all ranks, in place. Every rank launches every bucket once in
  /// a step, all in the same order; steps may follow each other without waiting, as long as a
  /// gradient is not written before its sum was waited for. Throws RuntimeFailure for a bucket that
  /// the plan lacks, another size or a second launch; NcclError, PeerLostError, CudaError.
  void launch(BucketId bucket, std::span<float> gradient, cudaStream_t producer);
  /// Has `consumer` wait for the bucket's sum; the host does not. Throws RuntimeFailure unless it
  /// was launched in this step.
  void wait_on(BucketId bucket, cudaStream_t consumer);
  /// Whether the device has the bucket's sum; throws as wait_on().
  bool is_done(BucketId bucket) const;
  /// Throws NcclError or PeerLostError where a peer is gone or something else went wrong in the
  /// meantime.
  void check_health();

  /// As Executor's; they wait for what was launched. Residuals that this plan has no place for are
  /// ignored; throws RuntimeFailure for one of another size.
  std::map<std::string, std::vector<float>> residuals() const;
  void set_residuals(const std::map<std::string, std::vector<float>>& residuals);

  /// What a launch of the bucket does.
  const DeviceProgram& program(BucketId bucket) const;

  /// Number of codes that no encoder makes (damaged messages), of all that were looked at before
  /// the bucket, whose sum the device must have, was done: not 0 where the sum may lack something.
  std::uint32_t refused_codes(BucketId bucket) const;

 private:
  struct Bucket;

  cudaStream_t stream(DeviceLane lane) const {
    return streams_[static_cast<std::size_t>(lane)].get();
  }
  void enqueue(const CollectiveOperation& operation, const Bucket& bucket, DeviceLane lane);
  void enqueue(const ExchangeOperation& operation, const Bucket& bucket, DeviceLane lane);
  void enqueue(const EncodeOperation& operation, const Bucket& bucket, DeviceLane lane);
  void enqueue(const DecodeOperation& operation, const Bucket& bucket, DeviceLane lane);
  std::uint32_t* refused_here(BucketId bucket) const {
    return reinterpret_cast<std::uint32_t*>(refused_here_.data()) + bucket.index();
  }
  const DeviceCodec& codec_of(const Bucket& bucket, std::uint8_t codec) const;
  std::size_t prepare(Bucket& bucket);
  void rehearse();

  const plan::Plan& plan_;
  Rank self_;
  DeviceCommunicators& communicators_;
  DeviceMessages& messages_;
  std::array<CudaStream, kDeviceLanes> streams_;
  std::vector<std::vector<std::unique_ptr<DeviceCodec>>> codecs_;  ///< by schedule
  std::map<std::string, DeviceBuffer<float>> residuals_;
  DeviceBuffer<std::byte> codec_scratch_;  ///< of the lane that encodes
  DeviceBuffer<std::uint32_t> refused_;
  PinnedBuffer refused_here_;  ///< as it was at each bucket's end
  std::vector<std::unique_ptr<Bucket>> buckets_;
  std::optional<std::uint32_t> step_;
};

}  // namespace rackrail::runtime

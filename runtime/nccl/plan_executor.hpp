// A plan executed for gradients that lie on a GPU, as a job sees it: runtime/plan_executor.hpp over
// DeviceExecutor. No CUDA or NCCL header is seen here; a build without CUDA has the same functions.
//
// Data of launch() is device memory that the stream of the options writes and reads. A launch
// returns at once; the host waits by asking the device now and then, so that a lost peer, or an
// abort, ends the wait even while kernels hang.
//
// Threads: as Executor, calls of several threads come one after the other, and a wait lets others
// in. A calling thread's current device stays what it is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device/stages.hpp"
#include "runtime/nccl/library.hpp"
#include "runtime/plan_executor.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {

/// What carries gradients between GPUs.
enum class DevicePath : std::uint8_t {
  kNccl,       ///< collectives inside groups, sends and receives between them
  kTransport,  ///< messages alone, over the job's transport
  kHybrid,     ///< NCCL inside groups, messages over the transport between them
};
/// Whether messages over a transport are staged through pinned memory, or it is given the device's
/// (DeviceMessaging). Each rank may do as it can.
enum class Staging : std::uint8_t { kWhereNeeded, kAlways, kNever };

/// Whether they are over this one. Throws RuntimeFailure where they must not be and have to be.
bool is_staged(Staging staging, Transport& transport);
/// What carries gradients, in words: "NCCL", "pinned memory", "device memory", …
std::string_view to_string(DevicePath path, bool is_staged);

struct DevicePlanOptions {
  int device = 0;
  void* stream = nullptr;  ///< cudaStream_t
  DevicePath path = DevicePath::kNccl;
  Staging staging = Staging::kWhereNeeded;
  /// With NCCL; else every rank is alone.
  RankGroups groups;
  /// With NCCL.
  const NcclFunctions* nccl = nullptr;
  /// With NCCL: says something to all ranks and returns what each said, by rank.
  std::function<std::vector<std::string>(const std::string&)> exchange;
  /// With NCCL: whether the job is over already, so that nobody waits for a lost rank to join. May
  /// be called as long as the executor lives; must not throw. None: it never is.
  std::function<bool()> is_over;
  std::uint32_t epoch = 0;
};

/// Collective: all ranks call it. Keeps references to plan and transport. Timeline and encoding
/// times are not measured; bytes of collectives are not counted. Throws RuntimeFailure (NcclError,
/// CudaError among them), PlanError for invalid groups.
std::unique_ptr<PlanExecutor> make_device_plan_executor(const plan::Plan& plan, Rank self,
                                                        Transport& transport,
                                                        const DevicePlanOptions& options);

}  // namespace rackrail::runtime

// A worker's GPU: which one it has, what computes there, and what carries its gradients to others.
//
// Ranks tell each other where they are and what they have, so all of them make the same choice.
// Each takes the first GPU that it sees and that no rank before it on its host has. It does not
// matter whether all of them see all of the host's GPUs or a launcher shows each its own. NCCL is
// used where all have it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "runtime/launch/job_settings.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/nccl/plan_executor.hpp"
#include "runtime/trainer/compute.hpp"

namespace rackrail::runtime {

/// What one rank says of itself.
struct GpuOffer {
  std::string host;
  std::vector<std::string> devices;  ///< as cuda_devices() has them
  std::string reason;                ///< why there is none
  std::string nccl;                  ///< why it cannot be used; empty: it can
  /// Equal for the ranks of one machine: names of hosts are not always different.
  std::string machine;
  std::string nccl_host;      ///< what NCCL takes this process's host for (NCCL_HOSTID)
  std::optional<int> device;  ///< that the program says it has; none: it does not care
  bool has_mps = false;       ///< CudaStatus::has_mps
};
std::string to_json(const GpuOffer& offer);
/// Of this process, which computes on `device` if it says so; whether to look for NCCL, and for
/// cuBLAS, without which there is no GPU then.
GpuOffer gpu_offer(std::optional<int> device, bool wants_nccl, bool wants_cublas);

/// What a rank asks for.
struct GpuWish {
  bool computes = true;       ///< it needs cuBLAS
  std::optional<int> device;  ///< as GpuOffer has it
  std::string no_nccl;        ///< why it cannot use NCCL whatever there is; empty: nothing
};

struct GpuChoice {
  int device = 0;
  DevicePath path = DevicePath::kNccl;
  Staging staging = Staging::kWhereNeeded;
  RankGroups hosts;
  std::string note;  ///< what the user should know; empty: nothing
};
/// What all ranks come to when each says what it has by `exchange` (ExecutorSite::exchange). Throws
/// as choose_gpu().
GpuChoice agree_on_gpu(
    const GpuSettings& settings, Rank self, const GpuWish& wish,
    const std::function<std::vector<std::string>(const std::string& own)>& exchange);
/// Of rank `self`; `offers` are those of all ranks, as JSON. Throws RuntimeFailure where a rank has
/// no GPU of its own (and they are not shared), or NCCL is asked for and missing or would refuse:
/// two ranks on one GPU, unless each takes itself for a host (shared_gpu_variables); or messages
/// are to be direct and a rank's GPU is served by MPS, under which they hang.
GpuChoice choose_gpu(const GpuSettings& settings, Rank self,
                     const std::vector<std::string>& offers);

/// NCCL variables for a process whose GPU is shared with others, to be set before its first call.
/// NCCL refuses two ranks on one device of one host, so each rank pretends to be a host of its own
/// (NCCL_HOSTID). Where the whole job `is_here`, on this machine and its network, ranks use the
/// loopback interface. Variables that the user has set stay, except NCCL_HOSTID.
std::map<std::string, std::string> shared_gpu_variables(Rank rank, bool is_here);
/// Sets them in this process, as NCCL reads only the environment. Other threads may be reading it
/// at the same time. So nothing is set where there are other threads, or where that is unknown. It
/// then returns an explanation, unless all variables are set already, to whatever values.
[[nodiscard]] std::optional<std::string> share_gpu_as(Rank rank, bool is_here);

/// For Session::start(): executors for gradients that `stream` (a cudaStream_t) writes and reads,
/// which must outlive them.
MakeExecutor device_executors(const GpuChoice& choice, void* stream);

/// Made once the ranks have met; may be taken along to a later epoch.
class GpuWorker {
 public:
  explicit GpuWorker(GpuChoice choice);

  const std::shared_ptr<trainer::Compute>& compute() const { return compute_; }
  const GpuChoice& choice() const { return choice_; }
  /// For Session::start(): executors for gradients that compute() has made.
  MakeExecutor make_executor() const;

 private:
  GpuChoice choice_;
  std::shared_ptr<trainer::Compute> compute_;
};

}  // namespace rackrail::runtime

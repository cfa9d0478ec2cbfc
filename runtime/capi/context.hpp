// A process's place in a job, as the C interface shows it: a session, its plan, and which buckets
// are under way.
//
// Steps. The executor wants its steps to count up, and every bucket at most once in each. All ranks
// make the same calls in the same order, so each can say for itself when a step is over: when a
// bucket is started that was started in it already, or an array is summed.
//
// Threads. One mutex guards the state. It is held while an array is summed or a plan is adopted, so
// that the calls of other threads come before or after it. It is not held while a bucket is
// awaited.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/capi/bucket_plans.hpp"
#include "runtime/capi/settings.hpp"
#include "runtime/capi/stall_notice.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/cuda/gpu_arrays.hpp"
#include "runtime/launch/session.hpp"

namespace rackrail::runtime {
struct GpuChoice;    // runtime/launch/gpu_worker.hpp
struct GpuSettings;  // runtime/launch/job_settings.hpp
}  // namespace rackrail::runtime

namespace rackrail::capi {

class Context {
 public:
  /// Joins; rank 0 also runs the coordinator. Throws ConfigError, PlanError, RuntimeFailure.
  explicit Context(Settings settings);
  /// Without finish() or abort(), the others take this rank for lost.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Rank rank() const { return settings_.launch.rank; }
  std::size_t world_size() const { return settings_.launch.world_size; }

  // All of these throw PeerLostError once the job is over, ConfigError for a wrong use.

  /// Memory of the program; `stream` (a cudaStream_t) has written it where it is on the GPU.
  struct Array {
    std::span<float> data;
    bool is_on_gpu = false;
    void* stream = nullptr;
  };
  /// `factor`: what the array is multiplied with before it is summed. Arrays on the GPU only in a
  /// job of RACKRAIL_CUDA.
  void all_reduce(const Array& array, float factor);
  /// The number of the first request's bucket.
  std::uint32_t plan(std::span<const BucketRequest> requests);
  void forget_errors();
  void start(std::uint32_t bucket, const Array& array, float factor);
  void wait(std::uint32_t bucket);
  /// JSON, as rackrail_describe() has it.
  std::string describe() const;

  void finish();
  /// From any thread, whatever is under way; the first end counts.
  void abort(const std::string& reason);

 private:
  enum class State : std::uint8_t { kIdle, kStarted, kWaitedFor };
  /// Of a bucket that was started with an array of the host, where sums are made on the GPU.
  struct HostCopy {
    std::span<float> host;  ///< empty: it was started with one of the GPU since
    trainer::Floats here;   ///< stays for the next time
  };

  void join();
  void begin_alone();
  void require_running() const;
  void require_bucket(std::uint32_t bucket) const;
  void require_nothing_under_way(const std::string& what) const;
  void next_step(std::uint32_t call = 0);
  std::vector<BucketRequest> agree(std::span<const BucketRequest> requests);
  plan::Plan distribute(std::span<const BucketRequest> requests);
  void follow_alone(const Array& array);
  void settle_alone();
  void launch(std::uint32_t bucket, const Array& array, float factor);
  void send_parts(const std::vector<Part>& parts, std::span<float> data);
  runtime::MakeExecutor gpu_executors();
  using Exchange = std::function<std::vector<std::string>(const std::string& own)>;
  runtime::GpuChoice take_gpu(const runtime::GpuSettings& settings, const Exchange& exchange);
  void require_place(const Array& array) const;
  std::span<float> room(trainer::Floats& memory, std::size_t size);
  std::span<float> bring(const Array& array, trainer::Floats& copy, float factor);
  template <typename Act>
  void watched(Act act);

  const Settings settings_;
  mutable std::mutex mutex_;                  ///< guards what follows
  std::optional<std::string> over_;           ///< why the job is
  bool is_finished_ = false;                  ///< by finish()
  std::uint32_t step_ = 0;                    ///< the next one
  bool in_step_ = false;                      ///< whether this executor has begun one
  std::vector<State> states_;                 ///< by bucket, in this step
  std::vector<std::int64_t> elements_;        ///< by bucket
  std::vector<float> padded_;                 ///< memory of the part that is shorter than its piece
  std::string no_nccl_;                       ///< why not, whatever there is; empty: nothing
  std::unique_ptr<runtime::GpuArrays> gpu_;   ///< where sums are made; null: on the host
  trainer::Floats copy_here_;                 ///< of the host's array that is summed; only grows
  trainer::Floats padded_here_;               ///< as padded_, on the GPU; only grows
  std::map<std::uint32_t, HostCopy> copies_;  ///< by bucket
  plan::Plan planned_;                        ///< what was planned for, without the pieces
  std::optional<plan::Plan> made_;            ///< of rank 0: what the settings name a file of
  std::unique_ptr<runtime::CoordinatorServer> server_;  ///< of rank 0
  std::unique_ptr<runtime::Session> session_;           ///< none in a job of one
  std::unique_ptr<StallNotice> stall_;                  ///< likewise
};

}  // namespace rackrail::capi

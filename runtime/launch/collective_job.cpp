#include "runtime/launch/collective_job.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/own_addresses.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/cuda/gpu_arrays.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/launch/signals.hpp"
#include "runtime/launch/spawn.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::runtime {
namespace {

/// By which share equal values may come out wrong: by nothing, unless a codec is lossy.
float tolerance_of(const plan::TransferGraph& graph) {
  constexpr float kOfEightBits = 0.07F;  // e4m3 rounds by 2⁻⁴ at most
  const auto codecs = graph.codecs();
  return std::any_of(codecs.begin(), codecs.end(),
                     [](const plan::Codec& codec) { return codec.is_lossy(); })
             ? kOfEightBits
             : 0;
}
/// Where one rank's buckets lie, one at a time.
class BucketMemory {
 public:
  /// `arrays`: of the GPU; null: the host.
  BucketMemory(std::size_t elements, GpuArrays* arrays) : arrays_(arrays), host_(elements) {
    if (arrays_ != nullptr) {
      device_ = arrays_->make(elements);
    }
  }

  std::span<float> span() { return arrays_ != nullptr ? device_.span() : std::span(host_); }
  void fill(float value) {
    std::fill(host_.begin(), host_.end(), value);
    if (arrays_ != nullptr) {
      arrays_->copy(host_, device_.span());
    }
  }
  /// Within a share of the value.
  bool is_full_of(float value, float tolerance) {
    if (arrays_ != nullptr) {
      arrays_->copy(device_.span(), host_);
    }
    return std::all_of(host_.begin(), host_.end(),
                       [&](float each) { return std::abs(each - value) <= value * tolerance; });
  }

 private:
  GpuArrays* arrays_;
  std::vector<float> host_;
  trainer::Floats device_;
};

class CollectiveRank {
 public:
  CollectiveRank(const plan::Plan& plan, const LaunchEnvironment& launch,
                 const HostPort& coordinator, const CollectiveJobOptions& options)
      : plan_(plan),
        launch_(launch),
        gpu_(options.gpu),
        on_measured_(options.on_measured),
        session_({.coordinator = coordinator,
                  .token = read_job_token(""),
                  .tls = tls_of_environment(),
                  .rank = launch.rank,
                  .world_size = launch.world_size,
                  .plan_digest = plan::digest(plan),
                  .transport = options.transport,
                  .rendezvous_deadline = options.rendezvous_deadline}) {}

  void run() {
    try {
      session_.join();
      session_.start(plan_, {}, gpu_ ? take_gpu() : MakeExecutor());
      session_.finish(nlohmann::json(measure()).dump());
    } catch (const std::exception& error) {
      session_.fail({error.what(), false});
      throw;
    }
  }

 private:
  MakeExecutor take_gpu() {
    const GpuChoice choice =
        agree_on_gpu(*gpu_, launch_.rank, {.computes = false, .device = {}, .no_nccl = {}},
                     [this](const auto& own) { return session_.coordinator().exchange(own); });
    arrays_ = make_gpu_arrays(choice.device);
    return device_executors(choice, arrays_->stream());
  }

  /// Seconds per bucket.
  std::vector<double> measure() {
    std::vector<double> seconds;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      BucketMemory memory(static_cast<std::size_t>(plan_.buckets[b].elements), arrays_.get());
      memory.fill(static_cast<float>(launch_.rank.value() + 1));
      reduce(b, memory);
      const auto ranks = launch_.world_size;
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      if (!memory.is_full_of(sum, tolerance_of(plan_.schedules[plan_.buckets[b].schedule]))) {
        throw RuntimeFailure("bucket " + std::to_string(b) + " has a wrong sum on rank " +
                             std::to_string(launch_.rank.value()));
      }
      memory.fill(0);  // sums of sums would overflow
      reduce(b, memory);
      const int count = repetitions(Bytes(plan_.buckets[b].elements) * 4);
      std::vector<Duration> times;
      for (int i = 0; i < count; ++i) {
        const Duration start = trainer::wall_clock();
        reduce(b, memory);
        times.push_back(trainer::wall_clock() - start);
      }
      const Duration each = trainer::time_of_each(times);
      seconds.push_back(each.seconds());
      on_measured_(BucketId(b), each);
    }
    return seconds;
  }

  void reduce(std::size_t bucket, BucketMemory& memory) {
    session_.executor().begin_step(step_++);
    session_.executor().launch(BucketId(bucket), memory.span());
    session_.executor().wait_all();
  }

  const plan::Plan& plan_;
  const LaunchEnvironment& launch_;
  const std::optional<GpuSettings> gpu_;
  const std::function<void(BucketId, Duration)> on_measured_;
  std::uint32_t step_ = 0;
  std::unique_ptr<GpuArrays> arrays_;  // its stream outlives the executor
  Session session_;
};

CoordinatorOptions coordinator_options(const plan::Plan& plan, const HostPort& listen,
                                       std::string token, const CollectiveJobOptions& options) {
  CoordinatorOptions coordinator;
  coordinator.listen = listen;
  coordinator.token = std::move(token);
  coordinator.tls = tls_of_environment();
  coordinator.membership.world_size = plan.rank_count();
  coordinator.membership.rendezvous_deadline = options.rendezvous_deadline;
  coordinator.membership.plan_digest = plan::digest(plan);
  coordinator.membership.version = build_config::kVersion;
  return coordinator;
}

std::vector<Duration> slowest(const std::optional<CoordinatorOutcome>& outcome,
                              std::size_t buckets) {
  if (!outcome || !outcome->ok) {
    throw RuntimeFailure(outcome ? outcome->reason.line : "the coordinator came to no end");
  }
  std::vector<Duration> times(buckets);
  for (const std::string& result : outcome->results) {
    const nlohmann::json seconds = nlohmann::json::parse(result, nullptr, false);
    if (!seconds.is_array() || seconds.size() != buckets) {
      throw RuntimeFailure("a rank reported no times of its collectives");
    }
    for (std::size_t b = 0; b < buckets; ++b) {
      times[b] = std::max(times[b], Duration::from_seconds(seconds[b].get<double>()));
    }
  }
  return times;
}

}  // namespace

int repetitions(Bytes bucket) {
  constexpr std::int64_t kFewest = 6;  // three stretches of two, for a median of time_of_each()
  // Of fewer, of 1 MiB on fresh connections, times were up to half as much again in other runs.
  constexpr std::int64_t kMost = 101;
  constexpr Bytes kTogether = 128_MiB;
  return static_cast<int>(
      std::clamp(kTogether.count() / std::max<std::int64_t>(bucket.count(), 1), kFewest, kMost));
}

std::optional<std::vector<Duration>> run_collectives(const plan::Plan& plan,
                                                     const LaunchEnvironment& launch,
                                                     const CollectiveJobOptions& options) {
  if (launch.rank.value() != 0 || options.is_led) {
    CollectiveRank(plan, launch, launch.coordinator, options).run();
    return std::nullopt;
  }
  CoordinatorServer server(
      coordinator_options(plan, everywhere(launch.coordinator), read_job_token(""), options));
  CollectiveRank(plan, launch, own_address(server.address()), options).run();
  return slowest(server.wait_for(kEndPatience), plan.buckets.size());
}

LocalCollectives run_local_collectives(const plan::Plan& plan,
                                       const std::vector<std::string>& words,
                                       const CollectiveJobOptions& options) {
  const InterruptGuard interrupts;
  const std::string token = make_job_token();
  CoordinatorServer server(coordinator_options(plan, {"127.0.0.1", 0}, token, options));
  ChildProcesses children([](std::size_t, std::string_view) {});
  for (std::size_t r = 0; r < plan.rank_count(); ++r) {
    ChildCommand command;
    command.words = words;
    if (options.gpu && options.gpu->shares) {
      command.environment = shared_gpu_variables(Rank(r), true);
    }
    command.environment["RACKRAIL_RANK"] = std::to_string(r);
    command.environment["RACKRAIL_LOCAL_RANK"] = std::to_string(r);
    command.environment["RACKRAIL_WORLD_SIZE"] = std::to_string(plan.rank_count());
    command.environment["RACKRAIL_COORDINATOR"] = to_string(server.address());
    command.environment[kJobTokenVariable] = token;
    children.start(command);
  }
  constexpr Duration kLook = 200_ms;
  constexpr Duration kStopGrace = 3_s;
  std::optional<ChildEnd> failed;
  while (children.running() > 0 && !failed && interrupts.received() == 0) {
    for (const ChildEnd& end : children.wait_for(kLook, interrupts.file_descriptor())) {
      if (!end.ok() && !failed) {
        failed = end;
      }
    }
  }
  children.terminate(kStopGrace);
  if (interrupts.received() != 0) {
    return {.times = {}, .interrupted_by = interrupts.received()};
  }
  if (failed) {
    throw RuntimeFailure("all-reduces: rank " + std::to_string(failed->child) + " " +
                         describe(*failed) + ": " + failed->last_line);
  }
  return {.times = slowest(server.wait_for(kEndPatience), plan.buckets.size())};
}

}  // namespace rackrail::runtime

#include "runtime/launch/collective_job.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/coordinator/server.hpp"
#include "runtime/launch/session.hpp"
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

class CollectiveRank {
 public:
  CollectiveRank(const plan::Plan& plan, const LaunchEnvironment& launch,
                 const HostPort& coordinator, const CollectiveJobOptions& options)
      : plan_(plan),
        launch_(launch),
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
      session_.start(plan_);
      session_.finish(nlohmann::json(measure()).dump());
    } catch (const std::exception& error) {
      session_.fail({error.what(), false});
      throw;
    }
  }

 private:
  /// Seconds per bucket.
  std::vector<double> measure() {
    std::vector<double> medians;
    for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
      const auto elements = static_cast<std::size_t>(plan_.buckets[b].elements);
      std::vector<float> data(elements, static_cast<float>(launch_.rank.value() + 1));
      reduce(b, data);
      const auto ranks = launch_.world_size;
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      const float tolerance = sum * tolerance_of(plan_.schedules[plan_.buckets[b].schedule]);
      if (std::any_of(data.begin(), data.end(),
                      [&](float value) { return !(std::abs(value - sum) <= tolerance); })) {
        throw RuntimeFailure("bucket " + std::to_string(b) + " has a wrong sum on rank " +
                             std::to_string(launch_.rank.value()));
      }
      std::fill(data.begin(), data.end(), 0.0F);  // sums of sums would overflow
      reduce(b, data);
      const int count = repetitions(Bytes(plan_.buckets[b].elements) * 4);
      std::vector<double> times;
      for (int i = 0; i < count; ++i) {
        const Duration start = trainer::wall_clock();
        reduce(b, data);
        times.push_back((trainer::wall_clock() - start).seconds());
      }
      std::sort(times.begin(), times.end());
      medians.push_back(times[times.size() / 2]);
    }
    return medians;
  }

  void reduce(std::size_t bucket, std::vector<float>& data) {
    session_.executor().begin_step(step_++);
    session_.executor().launch(BucketId(bucket), data);
    session_.executor().wait_all();
  }

  const plan::Plan& plan_;
  const LaunchEnvironment& launch_;
  std::uint32_t step_ = 0;
  Session session_;
};

std::vector<Duration> slowest(const CoordinatorOutcome& outcome, std::size_t buckets) {
  std::vector<Duration> times(buckets);
  for (const std::string& result : outcome.results) {
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
  constexpr std::int64_t kFewest = 3;
  constexpr std::int64_t kMost = 30;
  constexpr Bytes kTogether = 64_MiB;
  return static_cast<int>(
      std::clamp(kTogether.count() / std::max<std::int64_t>(bucket.count(), 1), kFewest, kMost));
}

std::optional<std::vector<Duration>> run_collectives(const plan::Plan& plan,
                                                     const LaunchEnvironment& launch,
                                                     const CollectiveJobOptions& options) {
  if (launch.rank.value() != 0) {
    CollectiveRank(plan, launch, launch.coordinator, options).run();
    return std::nullopt;
  }
  CoordinatorOptions coordinator;
  coordinator.listen = launch.coordinator;
  coordinator.token = read_job_token("");
  coordinator.tls = tls_of_environment();
  coordinator.membership.world_size = launch.world_size;
  coordinator.membership.rendezvous_deadline = options.rendezvous_deadline;
  coordinator.membership.plan_digest = plan::digest(plan);
  coordinator.membership.version = build_config::kVersion;
  CoordinatorServer server(std::move(coordinator));
  CollectiveRank(plan, launch, server.address(), options).run();
  const std::optional<CoordinatorOutcome> outcome = server.wait_for(kEndPatience);
  if (!outcome || !outcome->ok) {
    throw RuntimeFailure(outcome ? outcome->reason.line : "the coordinator came to no end");
  }
  return slowest(*outcome, plan.buckets.size());
}

}  // namespace rackrail::runtime

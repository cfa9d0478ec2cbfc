// What a training job did, for people (`train`) and for programs (`train --json`).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "runtime/launch/job.hpp"
#include "sim/simulator.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// A job that trained to its end, as its leader saw it.
struct TrainingSummary {
  std::uint32_t steps = 0;
  double loss = 0;             ///< of the last step, mean over the ranks
  std::vector<double> losses;  ///< likewise, by step of this run
  std::optional<double> accuracy;
  Duration step_time;  ///< median over the steps, of the slowest rank
  double sync_share = 0;
  Duration cpu_time;
  bool parameters_agree = true;
  std::optional<double> noise_scale;  ///< live estimate at the end, in samples
};

TrainingSummary summarise(const plan::Plan& plan, const runtime::JobResult& job);

/// What the job and its leader have to say.
std::vector<std::string> notes_of(const runtime::JobResult& job);

/// Bytes that crossed each tier of the plan's cluster, by the tier's name; empty when the cluster
/// is not known here.
std::map<std::string, std::int64_t> bytes_over_tiers(
    const runtime::JobResult& job, const std::optional<topology::Topology>& cluster);

std::string training_text(const plan::Plan& plan, const runtime::JobResult& job,
                          const TrainingSummary& summary,
                          const std::optional<sim::StepResult>& predicted,
                          const std::map<std::string, std::int64_t>& tiers);
nlohmann::json training_json(const plan::Plan& plan, const runtime::JobResult& job,
                             const TrainingSummary& summary,
                             const std::optional<sim::StepResult>& predicted,
                             const std::map<std::string, std::int64_t>& tiers);

/// A Perfetto trace of the measured step beside the predicted one, where there is one.
void write_training_trace(const std::string& path, const plan::Plan& plan,
                          const runtime::JobResult& job,
                          const std::optional<sim::StepResult>& predicted);

}  // namespace rackrail::cli

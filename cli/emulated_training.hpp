// The training of a built-in model on an emulated network (runtime/emulate), as `validate
// <cluster>` and `train --emulate` carry it out: planned for the network as it is on this machine,
// where what computing and messages cost is measured in one of its hosts, or by a plan that was
// made for the cluster.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/local_prediction.hpp"
#include "cli/session.hpp"
#include "cli/temporary_folder.hpp"
#include "plan/calibration.hpp"
#include "plan/codec.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"
#include "runtime/emulate/network.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/launch/signals.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

/// Thrown from where a signal was noticed, to end everything in order.
struct Interrupted {
  int signal;
};
/// Throws Interrupted.
void require_no_interrupt(const runtime::InterruptGuard& interrupts);

/// A cluster whose ranks have somebody to talk to. An error names `file`.
void require_two_ranks(const topology::Topology& cluster, const std::string& file);

struct BuiltInTraining {
  std::filesystem::path file;
  std::string text;
  std::int64_t local_batch = 0;  ///< samples per worker and step
};
/// A file, or the name of a shipped one, which becomes an input. `local_batch`: 0: as it says.
BuiltInTraining load_built_in_training(Session& session, const std::string& name_or_path,
                                       std::int64_t local_batch = 0);

struct MachineCosts {
  plan::Calibration calibration;
  plan::Workload workload;  ///< of the training's model
};
/// What `rackrail calibrate` finds in the host of rank 0, where messages go over sockets. Its files
/// are left in `folder`. Throws Interrupted.
MachineCosts measure_costs(const runtime::emulate::EmulatedNetwork& network,
                           const BuiltInTraining& training, const TemporaryFolder& folder,
                           const runtime::InterruptGuard& interrupts);

/// A plan for the model on `machine` (machine_as_network, cli/emulation.hpp). It uses `codec` where
/// that may be used, if one is given.
plan::Plan plan_for_network(const topology::Topology& machine, const MachineCosts& costs,
                            std::uint64_t seed, const std::optional<plan::Codec>& codec = {});

/// A worker in each of the network's hosts. `plan` is executed as it is.
runtime::JobResult run_in_network(const runtime::emulate::EmulatedNetwork& network,
                                  const plan::Plan& plan, runtime::JobOptions job);

/// A job that was not started, because the user interrupted, has no workers.
struct EmulatedJob {
  runtime::JobResult result;
  nlohmann::json links;  ///< of the network, measured before
};
/// By a plan for the cluster of `network`; so are those that come later.
EmulatedJob run_emulated_job(Session& session, const plan::Plan& plan,
                             const runtime::emulate::NetworkPlan& network, runtime::JobOptions job);

/// Of a training without a plan.
struct PlanlessTraining {
  std::string training;     ///< file, or the name of a shipped one
  std::string calibration;  ///< file; empty: measured in the network
  std::string workload;     ///< file, or the name of a shipped one; empty: measured there
  trainer::Synchrony synchrony;
};
struct PlannedJob {
  EmulatedJob job;
  plan::Plan plan;  ///< as executed; this and `predicted`: only where the job was started
  std::optional<TrainingPrediction> predicted;
};
/// Plans for the network of `cluster` as it is here, predicts the step, and trains.
PlannedJob run_planned_job(Session& session, const topology::Topology& cluster,
                           const runtime::emulate::NetworkPlan& network,
                           const PlanlessTraining& asked, runtime::JobOptions job);

}  // namespace rackrail::cli

// The options of `rackrail train`, and which of them go together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/batch_watch.hpp"
#include "cli/gpu_options.hpp"
#include "cli/heartbeat_options.hpp"
#include "cli/inputs.hpp"
#include "cli/synchrony_options.hpp"
#include "runtime/launch/environment.hpp"

namespace rackrail::cli {

struct TrainOptions {
  std::string plan;
  ClusterOptions cluster;
  std::string training = "digits-mlp";
  std::size_t workers = 0;
  std::int64_t steps = 0;
  std::string checkpoints;
  bool resume = false;
  std::string transport = "ucx";
  GpuOptions gpu;
  std::string calibration;
  std::string workload;
  std::string trace;
  std::string token_file;
  std::string listen;
  std::string emulate;
  double scale = 1;
  std::string on_loss = "stop";
  std::string on_slow = "ignore";
  std::string on_noise = "ignore";
  BatchWatch::Options noise;
  std::string state;
  HeartbeatOptions heartbeats;
  std::string replacement_timeout = "60 s";
  SynchronyOptions synchrony;
  bool has_seed = false;  ///< whether it was said

  /// The option that has ranks measure their steps; empty: none has.
  std::string watches() const {
    return on_slow != "ignore"    ? "--on-slow " + on_slow
           : on_noise != "ignore" ? "--on-noise " + on_noise
                                  : "";
  }
  /// Whether the cluster and the workload are needed, to plan again.
  bool may_plan() const { return on_loss != "stop" || !watches().empty(); }

  void add_to(CLI::App& command);
  /// Options that need each other, and those that a launched process cannot have. Throws
  /// ConfigError.
  void require_consistent(const std::optional<runtime::LaunchEnvironment>& launch) const;
};

}  // namespace rackrail::cli

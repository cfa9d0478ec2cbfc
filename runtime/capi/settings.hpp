// What a job's context needs to know, from a rackrail_config and the environment.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "runtime/capi/bucket_plans.hpp"
#include "runtime/capi/rackrail.h"
#include "runtime/launch/environment.hpp"
#include "runtime/launch/job_settings.hpp"

namespace rackrail::capi {

struct Settings {
  /// Who this is; a job of one where neither the configuration nor a launcher says.
  runtime::LaunchEnvironment launch;
  std::string token;  ///< of the job; empty: none
  bool is_network_private = false;
  /// Told where rank 0 listens; may be empty.
  std::function<void(const std::string& addresses)> on_listening;
  std::string cluster;      ///< file or shipped name; empty: all ranks around one switch
  std::string calibration;  ///< file of what `rackrail calibrate` measured; empty: none
  CodecChoice codec;        ///< of planned buckets, without a plan
  std::string plan;         ///< file; empty: planned when it is known what for
  std::string transport;
  /// Where sums are made, if not on the host, and how they get to other ranks.
  struct Gpu {
    std::optional<int> device;  ///< none: the first that no other rank of the machine has
    runtime::GpuPath path = runtime::GpuPath::kAuto;
    bool shares = false;  ///< several ranks are on it, so NCCL must take each for a host
  };
  std::optional<Gpu> gpu;
  Duration timeout;
};

/// `config` may be null. Throws ConfigError.
Settings read_settings(const rackrail_config* config, const runtime::EnvironmentMap& environment);

}  // namespace rackrail::capi

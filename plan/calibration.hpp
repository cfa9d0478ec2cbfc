// What `rackrail calibrate` measures on one machine, as a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

struct Calibration {
  std::size_t cores = 1;
  Bandwidth core_bandwidth;   ///< message bytes that one core moves per second, both ends counted
  Duration message_overhead;  ///< core time per message, both ends counted
  Duration latency;           ///< of a small message between two processes
  DeviceRates rates;          ///< codecs and additions, of one core
  std::string transport;      ///< the transport that was measured
  double load = 0;            ///< load average (1 minute) when it was measured
};

std::string to_json(const Calibration& calibration);
/// Codecs that the planner uses only when asked for may be missing, as in files of earlier
/// versions; theirs are the rates of the device class "cpu". Throws ConfigError (file, field,
/// found, expected).
Calibration read_calibration(const std::filesystem::path& path);

/// The part of it that holds wherever such a processor is a rank.
topology::MeasuredProcessor measured_processor(const Calibration& calibration);

}  // namespace rackrail::plan

// What `rackrail calibrate` measures on one machine, as a file, and the topology that it stands
// for.
//
// Model. Workers on one machine share its cores, and everything they do costs core time: training,
// encoding, and moving a message from one process to another. So the machine is a single shared
// link whose bandwidth is (cores × bytes that one core moves per second); messages are flows over
// it, and computation of d seconds is a flow of d × (one core's bandwidth) that may use one core at
// most. The simulator's max–min solver then gives processor sharing for all of it at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/units.hpp"
#include "plan/cost_model.hpp"
#include "topology/topology.hpp"

namespace rackrail::cli {

struct Calibration {
  std::size_t cores = 1;
  Bandwidth core_bandwidth;   ///< message bytes that one core moves per second, both ends counted
  Duration message_overhead;  ///< core time per message, both ends counted
  Duration latency;           ///< of a small message between two processes
  plan::DeviceRates rates;    ///< codecs and additions, of one core
  std::string transport;      ///< the transport that was measured
  double load = 0;            ///< load average (1 minute) when it was measured
};

std::string to_json(const Calibration& calibration);
/// Codecs that the planner uses only when asked for may be missing, as in files of earlier
/// versions; theirs are the rates of the device class "cpu". Throws ConfigError (file, field,
/// found, expected).
Calibration read_calibration(const std::filesystem::path& path);

/// `ranks` workers ("worker0" …) of device class "cpu" around the shared cores of this machine.
topology::Topology local_machine(const Calibration& calibration, std::size_t ranks);

}  // namespace rackrail::cli

// The GPU of a machine whose file shows its links but not their rates.
#pragma once

#include <string>
#include <vector>

#include "topology/readers/nccl_machine.hpp"
#include "topology/readers/overlay.hpp"

namespace rackrail::topology {

struct GpuGuess {
  std::string named;      ///< by the text around the tables; empty: by nothing
  std::string likeliest;  ///< otherwise; empty: no guess
  std::string evidence;   ///< "NV12 between GPUs"
};

/// Gives the GPUs their class, unless the overlay has one, and by it all devices the rate of PCIe,
/// unless the overlay has that. Notes what was assumed.
void assume_gpus(NcclMachine& machine, const Overlay& overlay, const GpuGuess& guess,
                 std::vector<std::string>& notes);

}  // namespace rackrail::topology

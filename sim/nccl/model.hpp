// How long NCCL's all-reduce takes on a machine: the schedules, chunks and rates of this folder,
// run by the simulator.
//
// What repeats is simulated once. The whole loops of a ring are identical and do not overlap, so a
// time is launch + loops · (loop + tail) + the last loop. A tree's pipeline of many loops reaches
// its steady state long before kLoopsSimulated, so the rest is added at the steady rate. Tests
// compare both with simulations of everything.
#pragma once

#include <cstdint>
#include <optional>

#include "base/units.hpp"
#include "sim/nccl/machine.hpp"
#include "sim/nccl/parameters.hpp"

namespace rackrail::sim::nccl {

inline constexpr std::uint32_t kLoopsSimulated = 32;

struct Choice {
  std::optional<Algorithm> algorithm;  ///< NCCL's own choice if none
  std::optional<Protocol> protocol;
};

struct Prediction {
  Duration time;
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  std::uint64_t flows = 0;  ///< that were simulated
};

/// All-reduce of `size` (at least one float) on every rank of the machine. Throws ConfigError when
/// the machine cannot run the algorithm that is asked for.
Prediction all_reduce(const Machine& machine, Bytes size, const Choice& choice,
                      const Parameters& parameters);

/// NCCL's tuning formula (graph/tuning.cc): latency + bytes / bandwidth with its own constants for
/// every algorithm and protocol that the machine can run, the least wins. Not with the fitted
/// parameters: NCCL does not know them when it chooses.
struct Tuned {
  Algorithm algorithm = Algorithm::kRing;
  Protocol protocol = Protocol::kSimple;
  double estimate_s = 0;  ///< what the formula says
};
Tuned tune(const Machine& machine, Bytes size, const Choice& choice);

/// The protocol that the same formula takes for a ring that goes round once: an all-gather or a
/// reduce-scatter of `size` in all.
Protocol tune_one_way_ring(const Machine& machine, Bytes size);

}  // namespace rackrail::sim::nccl

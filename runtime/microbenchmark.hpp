// What exchanging gradients costs on this machine, in core time: the figures that the simulator
// needs to predict a run of local workers. Measured in core seconds rather than in wall time, so
// that a busy neighbour disturbs little.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/units.hpp"
#include "plan/cost_model.hpp"

namespace rackrail::runtime {

/// Encode, decode and add rates of one core on slices of 1 MiB (medians of several runs).
plan::DeviceRates measure_codec_rates();

struct MessageCosts {
  Bandwidth core_bandwidth;   ///< message bytes per second of core time, both ends together
  Duration message_overhead;  ///< core time per message, both ends together
  Duration latency;           ///< from send to receipt of a small message between idle ranks
};

/// Runs all-reduces of two sizes over executors on `transport` ("ucx"), one thread as rank each,
/// and solves time = messages · overhead + bytes / bandwidth. `rates` says what the additions in it
/// cost. Takes about a second. Throws RuntimeFailure when the transport is not available.
MessageCosts measure_message_costs(std::string_view transport, std::size_t ranks,
                                   const plan::DeviceRates& rates);

}  // namespace rackrail::runtime

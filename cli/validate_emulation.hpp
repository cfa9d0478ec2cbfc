// `rackrail validate <cluster>`: predictions against an execution on the emulated network.
//
// The network is built and measured (runtime/emulate). What messages, codecs and the built-in model
// of the training cost on this machine is measured in one of its hosts, over its sockets. With that
// the simulator predicts, for the topology that was built,
//
//   * what each link carries: its rate times TCP's share of payload;
//   * a message of each size from 1 KiB to 16 MiB over a link of each kind, between two ranks for
//     which it is the slowest on the way (cli/emulated_messages.hpp);
//   * an all-reduce of each size from 1 KiB to 64 MiB, by the schedule that is predicted fastest,
//   or
//     by each there is, to see what another choice would have been worth;
//   * a training step of a built-in model, by a plan that is made for that topology with whatever
//     codecs are best, and by one with each codec that was asked for, where that may be used.
//
// Then all of it is executed, and predicted and measured times stand side by side. Workers share
// the cores of the machine: computation, codecs and the cost per message are simulated as sharing
// them; what the kernel spends per byte on forwarding is not.
#pragma once

#include <optional>

#include "cli/emulated_collectives.hpp"
#include "cli/inputs.hpp"
#include "cli/session.hpp"

namespace rackrail::cli {

struct EmulationValidation {
  ClusterOptions cluster;
  CollectiveSelection collectives;
  Bytes from;  ///< smaller messages and all-reduces are left out
  Bytes to;    ///< and larger ones
  double scale = 1;
  std::string output;                    ///< file for the result as JSON; empty: none
  std::string training = "digits-mlp";   ///< file, or the name of a shipped one
  std::int64_t local_batch = 0;          ///< samples per worker and step; 0: as the training says
  std::int64_t steps = 30;               ///< of each training
  std::vector<plan::Codec> step_codecs;  ///< trainings beside the one with what is best
  double worst_allowed = 0;  ///< share; an error above it, of whatever is timed, is status 1
  double mean_allowed = 0;   ///< likewise for ErrorSummary::mean
};

/// Rows are printed as they are measured, and what there is when a signal ends it is summed up, as
/// a part. Leaves in the session kNotMet also where a link does not hold its rate.
void validate_by_emulation(Session& session, const EmulationValidation& options);

}  // namespace rackrail::cli

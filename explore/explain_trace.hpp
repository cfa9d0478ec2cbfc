// "Is this job communication-bound, by what, and what would help?", from one rank's trace.
//
// The GPU's time within the steps has three parts: it computes (kernels and copies, alone or beside
// communication), it only communicates (exposed communication), or it is idle, which means that the
// CPU did not launch work in time.
//
// The time of a collective is split by what the fastest of this trace show is possible here:
//   transfer  bus bytes / the best bus bandwidth among the collectives that are not small
//   latency   the least time of a small collective
//   waiting   the rest: for ranks that came later, or for links that were shared
// A trace of one rank cannot tell these two apart. A wait that every collective has counts as
// transfer. Exposed time is split as the whole collective is.
//
// Gains follow Amdahl: time that is saved within a collective shortens the step by as much as of
// the collective is exposed, and nothing else moves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "plan/workloads/collective_names.hpp"
#include "plan/workloads/kineto_trace.hpp"

namespace rackrail::explore {

/// The collectives of one kind, size, type and group.
struct TracedCollectives {
  plan::CollectiveKind kind{};
  std::int64_t bytes = 0;  ///< each, as nccl-tests counts them; 0: not known
  std::string dtype;
  std::int64_t ranks = 0;  ///< 0: not known
  double per_step = 0;     ///< how many
  Duration time;           ///< mean of one
  Duration shortest;
  Duration exposed;                              ///< per step
  std::optional<Bandwidth> algorithm_bandwidth;  ///< mean, over the whole time of the collective
  std::optional<Bandwidth> bus_bandwidth;
};

/// What the step's time is bound by.
enum class TraceBound : std::uint8_t { kCompute, kCommunication, kLaunches };
/// What most of the exposed communication is.
enum class CommunicationCause : std::uint8_t { kBandwidth, kLatency, kWaiting };

struct TraceGain {
  std::string what;  ///< "links twice as fast"
  Duration step_time;
  double gain = 0;  ///< share of the step that it saves
};

struct TraceExplanation {
  std::int64_t steps = 0;
  // Per step:
  Duration step_time;
  Duration compute;
  Duration communication;  ///< exposed or not
  Duration exposed;
  Duration idle;
  // Of the exposed communication:
  Duration transfer;
  Duration latency;
  Duration waiting;
  std::vector<TracedCollectives> collectives;  ///< the most exposed first
  TraceBound bound{};
  std::optional<CommunicationCause> cause;  ///< none without exposed communication
  std::string verdict;                      ///< one sentence
  std::vector<TraceGain> gains;             ///< the largest first; none below 1 %
  std::vector<std::string> notes;

  double share(Duration time) const { return time / step_time; }
};

std::string_view name_of(TraceBound bound);          ///< "compute", "communication", "launches"
std::string_view name_of(CommunicationCause cause);  ///< "bandwidth", "latency", "waiting"

TraceExplanation explain_trace(const plan::Trace& trace);

}  // namespace rackrail::explore

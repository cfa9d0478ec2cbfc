// What schedules occupy while they run, for the timeline of
// planner/compression/compression_timeline.hpp.
//
// Resources are those that the simulator has: every link, every route of a (src, dst) pair (a slice
// occupies it for the message overhead and its bytes), and on every rank a codec and a reduction
// stream (each call a launch and the bytes over the rate of plan::DeviceRates; a copy is also
// decoded by its sender; what is shared or forwarded is not encoded again). On a GPU codecs run
// beside backward; on ranks with a processor (Topology::processor_of) they take cores from it: with
// c cores for n ranks a busy stream runs at ρ₁ = min(1, c/n) alone and at ρ₂ = min(1, c/2n) beside
// another, so a codec call of time t delays backward by t·(1/ρ₂ − 1/ρ₁).
//
// Most resources of a regular cluster carry the same in every schedule; each such class is kept
// once. Work is O(transfers · route length) per schedule, once; then O(terms) per bucket and
// option.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/compression/compression_timeline.hpp"
#include "planner/tuning/candidates.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class ScheduleLoads {
 public:
  /// Reads the candidates once and keeps nothing of them. Device rates are those of the ranks'
  /// classes. With `counts`, one for each candidate, as if the others were not there: there is no
  /// option() of them.
  ScheduleLoads(std::span<const Candidate> candidates, const topology::Topology& topology,
                const std::vector<bool>& counts = {});

  std::size_t resource_count() const { return resources_; }
  /// By which factor backward takes longer than on a core of its own.
  double compute_stretch() const { return compute_stretch_; }
  /// `candidate` moving `elements` in slices; `alone` is its time on the idle cluster. No resource
  /// is busy longer than that. Harm is left at 0.
  TimelineOption option(std::size_t candidate, std::int64_t elements, std::int64_t slice_elements,
                        Duration alone) const;

 private:
  friend class LoadCounter;
  /// Transfers that cost a resource the same: count · slices · fixed + count · bytes / rate.
  struct Term {
    std::uint32_t weight = 0;  ///< of the chunk range, of the candidate's `all`
    plan::Codec codec;         ///< whose encoded bytes; FP32 for work of a device
    Duration fixed;            ///< per slice
    Bandwidth rate;
    std::int64_t count = 0;
  };
  struct Counted {
    std::vector<Term> terms;
    Duration first = Duration(INT64_MAX);  ///< least time from the start to a transfer on it
    Duration last = Duration(INT64_MAX);   ///< least time from a transfer on it to the end
  };
  struct Load {
    std::vector<Term> terms;
    double lead_share = 0.5;  ///< of the time in which the collective runs and does not use it
  };
  struct Schedule {
    std::int64_t all = 1;          ///< sum of the chunks' weights
    std::vector<Load> loads;       ///< by resource
    std::vector<Term> codec_work;  ///< of the rank with the fewest cores, if they are too few
  };
  void find_processors(const topology::Topology& topology,
                       const std::vector<std::vector<Counted>>& counted);
  Duration busy(const Schedule& schedule, const std::vector<Term>& terms, std::int64_t elements,
                std::int64_t slice_elements) const;

  std::size_t resources_ = 0;
  std::vector<Schedule> schedules_;
  double compute_stretch_ = 1;
  double delay_per_work_ = 0;  ///< of backward, per codec time
};

}  // namespace rackrail::planner

// Times of training steps and what they come down to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.hpp"

namespace rackrail::trainer {

/// One step of one rank, in wall-clock time unless said otherwise.
struct StepTimes {
  Duration step;         ///< from the wait for the first batch to the end of the update
  Duration forward;      ///< all passes
  Duration backward;     ///< all passes, launches included
  Duration synchronise;  ///< after backward, until all gradients are summed: the exposed part
  Duration optimizer;
  Duration input_wait;   ///< for batches from the loader
  Duration compute_cpu;  ///< processor time of the computing thread in forward, backward, optimiser
  Duration process_cpu;  ///< processor time of all threads of the process in the step

  Duration compute() const { return forward + backward + optimizer; }
};

/// Medians over the measured steps, except the last two members. One slow step (an evaluation
/// elsewhere, another process) does not move a median.
struct StepSummary {
  std::int64_t steps = 0;  ///< number of measured steps
  Duration step_time;
  Duration compute_time;
  Duration compute_cpu_time;
  Duration process_cpu_time;
  Duration sync_time;
  Duration input_wait;
  double sync_share = 0;  ///< median of synchronise / step
  /// Where some steps synchronise and others do not, a median is of one kind: the mean, and the
  /// share of all the time together.
  Duration mean_step_time;
  double overall_sync_share = 0;
};
StepSummary summarise(const std::vector<StepTimes>& steps);

/// The middle value (the lower of two middle ones). `values` must not be empty.
Duration median(std::vector<Duration> values);

/// What one of a row takes, of the times of all, in order; precondition: at least two. Whoever is
/// done early begins the next one early and waits in it for the others, so long and short times
/// often take turns, and their median would be one or the other. They are averaged in stretches of
/// an even number, eight or more where there are so many, without what is left at the end; this is
/// the median of those, so a few late ones do not move it.
Duration time_of_each(std::span<const Duration> times);

/// Time since an unspecified moment: monotonic, and processor time of the calling thread and of all
/// threads.
Duration wall_clock();
Duration thread_cpu_clock();
Duration process_cpu_clock();

}  // namespace rackrail::trainer

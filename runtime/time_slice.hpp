// How soon a thread runs that has slept, beside others that compute.
//
// Model. Linux (EEVDF, since 6.6) lets the thread run that is to have its time slice next by its
// share of the processor, and a thread that wakes up does not interrupt one whose slice is not over
// yet, 1.4 ms on two cores and more on more. Where every core computes, a thread that moves
// messages waits for that at each of its wake-ups, and what takes it microseconds is late by
// milliseconds, at each hop of a schedule. A thread may ask for shorter slices (since 6.12): then
// it interrupts those with longer ones. A thread that has had more than its share of the processor
// waits as before, so it takes a larger one where it may.
#pragma once

#include <optional>

#include "base/units.hpp"

namespace rackrail::runtime {

/// That the calling thread was given; none where the kernel knows no slices of single threads, or
/// the thread is not of the ordinary scheduling class.
std::optional<Duration> time_slice() noexcept;

/// The shortest slices that there are (0.1 ms), for the calling thread. Does nothing where
/// time_slice() has none. Whether the thread has them now.
bool take_short_time_slices() noexcept;

/// A share of the processor that is 9.3 times that of other threads (nice −10), for the calling
/// thread, where the process may take it (CAP_SYS_NICE, or RLIMIT_NICE). Whether the thread has it
/// now.
bool take_larger_share() noexcept;

}  // namespace rackrail::runtime

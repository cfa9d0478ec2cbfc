// Thread blocks as fibers; see cuda_runtime.h beside this. Not for several threads at a time, but
// enqueue() lets them take turns.
#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include "tests/support/emulated_gpu/cuda_runtime_api.h"

namespace emulated_gpu {

struct Place {
  dim3 thread;
  dim3 block;
  dim3 block_size;
  dim3 grid_size;
};

/// Of the fiber that runs; only fibers.cpp writes to it.
inline Place place;

/// Runs `kernel` once for each thread of the grid. Throws std::logic_error when threads wait for
/// others that do not come.
void run_grid(dim3 grid_size, dim3 block_size, const std::function<void()>& kernel);

/// Does `work`, or keeps it where the stream is being captured into a graph.
void enqueue(cudaStream_t stream, std::function<void()> work);

/// Whether what is enqueued on this stream next would find done all that has been enqueued on the
/// streams that this thread has made: by order in a stream, events, and waiting on the host. The
/// work itself is done at once in any case.
bool has_seen_all(cudaStream_t observer);

/// Returns when all threads of the block have called it.
void wait_for_block();
/// The values of the 32 threads of a warp, all of which must call it.
std::array<unsigned, 32> exchange(unsigned value);

/// How often this thread has taken or released memory of the device; a real one may wait then until
/// it has done all that it was given.
extern thread_local int memory_calls;
/// Of this thread, in bytes: what is larger is not to be had.
extern thread_local std::size_t largest_allocation;
/// Notes a launch of a kernel by this thread.
void note_launch(const void* kernel);
/// How many kernels this thread has launched since it forgot them; the driver loads each the first
/// time, and may wait likewise.
std::size_t loaded_kernels();
void forget_kernels();

/// How many of this thread's next questions about events come too early.
extern thread_local int early_questions;

}  // namespace emulated_gpu

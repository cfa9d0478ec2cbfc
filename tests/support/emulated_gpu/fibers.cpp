#include "tests/support/emulated_gpu/fibers.hpp"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

namespace emulated_gpu {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr unsigned kWarp = 32;

/// What threads wait at, any number of times.
struct Barrier {
  unsigned arrived = 0;
  unsigned generation = 0;
};

/// A stack that runs one thread after the other. It is entered by a context once, and from then on
/// by jumps, which unlike swapcontext() make no system call.
struct Fiber {
  jmp_buf place = {};
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  bool is_entered = false;
  bool has_ended = true;
};

struct Warp {
  Barrier barrier;
  // Of the exchange under way and the one before: nobody is two behind.
  std::array<std::array<unsigned, kWarp>, 2> values = {};
};

struct Machine {
  jmp_buf scheduler = {};
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier block_barrier;
  const std::function<void()>* kernel = nullptr;
  std::exception_ptr failure;
  bool has_progressed = false;
  unsigned random = 1;
};

Machine machine;

void yield() {
  const dim3 thread = place.thread;
  if (_setjmp(machine.fibers[thread.x].place) == 0) {
    _longjmp(machine.scheduler, 1);
  }
  place.thread = thread;
}

void wait_at(Barrier& barrier, unsigned size) {
  const unsigned generation = barrier.generation;
  machine.has_progressed = true;
  if (++barrier.arrived == size) {
    barrier.arrived = 0;
    ++barrier.generation;
    return;
  }
  while (barrier.generation == generation) {
    yield();
  }
}

[[noreturn]] void run_fiber() {
  for (;;) {
    try {
      (*machine.kernel)();
    } catch (...) {
      machine.failure = std::current_exception();
    }
    machine.fibers[place.thread.x].has_ended = true;
    machine.has_progressed = true;
    yield();
  }
}

void resume(Fiber& fiber) {
  if (_setjmp(machine.scheduler) != 0) {
    return;
  }
  if (fiber.is_entered) {
    _longjmp(fiber.place, 1);
  }
  fiber.is_entered = true;
  ucontext_t context = {};
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  makecontext(&context, run_fiber, 0);
  setcontext(&context);
}

unsigned random_number() {
  machine.random = machine.random * 1664525U + 1013904223U;
  return machine.random >> 8U;
}

/// Resumes each of these fibers that has not ended, in some order; whether there was one.
bool run_round(unsigned begin, unsigned size) {
  const unsigned start = random_number();
  // Odd, so that all of a power of two are reached; other sizes go one by one.
  const unsigned step = (size & (size - 1)) == 0 ? random_number() | 1U : 1U;
  bool any = false;
  for (unsigned i = 0; i < size; ++i) {
    const unsigned thread = begin + (start + i * step) % size;
    Fiber& fiber = machine.fibers[thread];
    if (!fiber.has_ended) {
      any = true;
      place.thread.x = thread;
      resume(fiber);
    }
  }
  return any;
}

/// Lets one warp after the other run as far as it can without the rest; whether there was one.
bool run_warps_apart(unsigned size) {
  const auto warps = static_cast<unsigned>(machine.warps.size());
  const unsigned start = random_number();
  bool any = false;
  bool any_progress = false;
  for (unsigned i = 0; i < warps; ++i) {
    const unsigned begin = (start + i) % warps * kWarp;
    do {
      machine.has_progressed = false;
      any = run_round(begin, std::min(kWarp, size - begin)) || any;
      any_progress = any_progress || machine.has_progressed;
    } while (machine.has_progressed);
  }
  machine.has_progressed = any_progress;
  return any;
}

void run_block(unsigned size) {
  machine.block_barrier = {};
  machine.warps.assign((size + kWarp - 1) / kWarp, {});
  for (unsigned thread = 0; thread < size; ++thread) {
    machine.fibers[thread].has_ended = false;
  }
  const bool apart = random_number() % 2 == 0;
  do {
    machine.has_progressed = false;
    if (!(apart ? run_warps_apart(size) : run_round(0, size))) {
      return;
    }
  } while (machine.has_progressed);
  throw std::logic_error("emulated GPU: threads wait for others that do not come");
}

}  // namespace

void run_grid(dim3 grid_size, dim3 block_size, const std::function<void()>& kernel) {
  place.block_size = block_size;
  place.grid_size = grid_size;
  machine.kernel = &kernel;
  machine.failure = nullptr;
  if (machine.fibers.size() < block_size.x) {
    machine.fibers.resize(block_size.x);
  }
  const bool backwards = random_number() % 2 == 0;
  for (unsigned i = 0; i < grid_size.x; ++i) {
    place.block.x = backwards ? grid_size.x - 1 - i : i;
    run_block(block_size.x);
    if (machine.failure) {
      std::rethrow_exception(machine.failure);
    }
  }
}

void wait_for_block() { wait_at(machine.block_barrier, place.block_size.x); }

std::array<unsigned, 32> exchange(unsigned value) {
  const unsigned thread = place.thread.x;
  Warp& warp = machine.warps[thread / kWarp];
  auto& values = warp.values[warp.barrier.generation % 2];
  values[thread % kWarp] = value;
  wait_at(warp.barrier, kWarp);
  return values;
}

}  // namespace emulated_gpu

// How far apart two cores are: the time that a value takes from one to the other through their
// caches, in nanoseconds, between the first two cores that this process may be moved to.
//
// A virtual machine's cores may share a cache at one moment and lie on two sockets at the next:
// what takes threads that talk to each other 0.08 ms takes them 0.15 ms then. scripts/cores.py asks
// for it beside each timing.
//
// Prints the least of many short rounds, which other threads on these cores disturb little; 0 where
// there is one core only.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 60;
constexpr int kMessages = 1000;  // of a round, there and back

void stay_on(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  if (pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) != 0) {
    std::cerr << "core_distance: no thread may be bound to core " << core << '\n';
    std::exit(1);
  }
}

/// Of the machine, or of the part of it that the process is confined to.
std::vector<int> own_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    CPU_SET(core, &cores);
  }
  sched_setaffinity(0, sizeof cores, &cores);  // whoever started it may have been bound to one
  CPU_ZERO(&cores);
  std::vector<int> own;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &cores) != 0) {
        own.push_back(core);
      }
    }
  }
  return own;
}

double nanoseconds_between(int first, int second) {
  using Clock = std::chrono::steady_clock;
  std::atomic<int> value = 0;
  std::thread other([&] {
    stay_on(second);
    for (int i = 0; i < kRounds * kMessages; ++i) {
      while (value.load(std::memory_order_acquire) != 2 * i + 1) {
      }
      value.store(2 * i + 2, std::memory_order_release);
    }
  });
  stay_on(first);
  double least = std::numeric_limits<double>::max();
  int i = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (const int end = i + kMessages; i < end; ++i) {
      value.store(2 * i + 1, std::memory_order_release);
      while (value.load(std::memory_order_acquire) != 2 * i + 2) {
      }
    }
    const std::chrono::duration<double, std::nano> time = Clock::now() - start;
    least = std::min(least, time.count() / kMessages / 2);
  }
  other.join();
  return least;
}

}  // namespace

int main() {
  const std::vector<int> cores = own_cores();
  std::cout << (cores.size() < 2 ? 0 : nanoseconds_between(cores[0], cores[1])) << '\n';
  return 0;
}

// The same flows in rackrail and in SimGrid, at the level of flows in both.
//
// Network: hosts at 100 Gbit/s on leaves of 32, one spine per host of a leaf; a flow goes over
// spine (destination mod 32), which is what SimGrid's fat trees do. Host links have a latency of 1
// us and the others none, so every route has 2 us: SimGrid's CM02 weighs flows by the inverse of
// their latencies, and with equal ones it shares max–min fairly, as rackrail does.
//
// A flow is one message between two ranks. No time is spent on anything but messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rackrail::bench {

enum class Pattern {
  kRing,      ///< all-reduce of 1 GiB: 2(n − 1) steps of 1/n; each waits for the step before
  kAllToAll,  ///< every rank sends 64 MB/n to every other one, all at once
  kChurn,     ///< every rank sends kChurnMessages one by one: any receiver, 1 kB to 4 MB
};

struct Case {
  Pattern pattern = Pattern::kRing;
  std::size_t ranks = 0;  ///< a multiple of 32
};

constexpr std::int64_t kRingBytes = std::int64_t{1} << 30U;
constexpr std::int64_t kAllToAllBytes = 64'000'000;
constexpr std::size_t kChurnMessages = 16;

std::string name(const Case& what);

struct Message {
  std::size_t to = 0;
  std::int64_t bytes = 0;
};
/// Message `number` of rank `from` under kChurn; the same in every run.
Message churn_message(std::size_t ranks, std::size_t from, std::size_t number);

struct Outcome {
  std::uint64_t flows = 0;
  double simulated_seconds = 0;
  double setup_cpu_seconds = 0;  ///< of the processor, until the first flow can start
};

Outcome run_rackrail(const Case& what);
/// Once per process.
Outcome run_simgrid(const Case& what);
std::string simgrid_version();

/// Processor time of this process.
double cpu_seconds();

}  // namespace rackrail::bench

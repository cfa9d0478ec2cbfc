// How the ranks of a training synchronise; the keywords are those of simulated scenarios.
//
//   synchronous          gradients are summed in every step (the default)
//   local_steps: N       every rank learns for itself, and after every N steps the parameters
//                        become the mean over the ranks (periodic averaging, local SGD: Stich,
//                        ICLR 2019)
//   staleness: K         an asynchronous parameter server: a rank may be up to K steps ahead of the
//                        slowest one (stale synchronous parallel: Ho et al., NIPS 2013)
#pragma once

#include <cstdint>
#include <optional>

namespace rackrail::trainer {

/// At most one of the two is given.
struct Synchrony {
  std::optional<std::int64_t> local_steps;
  std::optional<std::int64_t> staleness;

  bool is_synchronous() const { return !local_steps && !staleness; }
};

}  // namespace rackrail::trainer

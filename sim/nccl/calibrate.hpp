// Fitting the parameters to measured times.
//
// Least squares on the logarithms: Σ (log predicted/measured / kNoise)² over the cases, plus
// Σ (log value/usual / spread)² over the parameters (parameter_table). The second sum is what is
// known beforehand; it decides where the cases say nothing (a network's rate from one host), and
// hardly counts where they do. The minimum is found by the simplex of Nelder and Mead (1965) in the
// logarithms of the values, from the usual values on; no randomness.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/nccl/machine.hpp"
#include "sim/nccl/model.hpp"

namespace rackrail::sim::nccl {

struct Measured {
  std::string what;
  std::size_t nodes = 1;
  std::size_t gpus_per_node = 1;
  Bytes size;
  double seconds = 0;
  std::vector<std::size_t> hosts;  ///< which of the cluster, `nodes` of them; empty: the first ones
  Choice choice;                   ///< what is known to have run
};

/// The machines that cases were measured on, each made once. Keeps a reference to the cluster.
class Machines {
 public:
  explicit Machines(const topology::Topology& cluster) : cluster_(cluster) {}
  /// Throws ConfigError when the cluster has not so many hosts or GPUs.
  const Machine& of(const Measured& one);

 private:
  using Key = std::pair<std::vector<std::size_t>, std::size_t>;  // hosts, GPUs of each
  const topology::Topology& cluster_;
  std::map<Key, Machine> machines_;
};

struct Fit {
  Parameters parameters;
  double rms_log_error = 0;              ///< over the cases
  std::vector<std::string_view> fitted;  ///< parameters on which the cases depend
};

/// `start` gives what is not fitted (channels). Of cases of one machine size, at most
/// kCasesPerMachine are used, spread evenly over the logarithm of the size. Throws ConfigError
/// without cases.
inline constexpr std::size_t kCasesPerMachine = 32;
Fit fit(const topology::Topology& cluster, std::span<const Measured> cases,
        const Parameters& start);

/// A minimum of `f` near `start`, by the simplex method with first steps of `scale`; at most about
/// `evaluations` calls, fewer where the simplex's values agree to 1e-4.
std::vector<double> minimise(const std::function<double(const std::vector<double>&)>& f,
                             const std::vector<double>& start, double scale, int evaluations);

}  // namespace rackrail::sim::nccl

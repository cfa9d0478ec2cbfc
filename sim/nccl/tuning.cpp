// Bandwidths here are NCCL's bus bandwidths times algbw/busbw; shares of LL and LL128 are those of
// tuning.cc, limits per channel of sm80.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.hpp"
#include "sim/nccl/model.hpp"
#include "sim/nccl/schedules.hpp"

namespace rackrail::sim::nccl {

namespace {

constexpr double kGiga = 1e9;
constexpr double kNcclLinkShare = 0.8;      // 20 of 25 GB/s per NVLink
constexpr double kNcclNetworkShare = 0.96;  // 12 of 12.5 GB/s per 100 Gbit/s
constexpr double kNcclSharpShare = 0.85;

double ring_share(Protocol protocol, std::size_t gpus) {
  switch (protocol) {
    case Protocol::kLl:
      return 0.5;
    case Protocol::kLl128:
      return gpus < 2 ? 0.7 : 0.92;
    case Protocol::kSimple:
      break;
  }
  return 1;
}

double tree_share(Protocol protocol, std::size_t hosts) {
  switch (protocol) {
    case Protocol::kLl:
      return 1 / 3.8;
    case Protocol::kLl128:
      return hosts == 1 ? 7.0 / 9.0 : payload_share(Protocol::kLl128);
    case Protocol::kSimple:
      break;
  }
  return 0.92;
}

/// NCCL's correction of the tree's bandwidth at medium sizes: powers of two from 64 B.
double tree_correction(Protocol protocol, std::int64_t bytes) {
  constexpr std::array<std::array<double, 22>, kProtocols> kFactors{{
      {1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6,
       0.5, 0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0},
      {1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6,
       0.6, 0.6, 0.5, 0.6, 0.6, 0.7, 0.7, 0.8, 0.9, 0.9, 1.0},
      {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6,
       0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.6, 0.7, 0.8, 0.9},
  }};
  const auto units = static_cast<std::uint64_t>(bytes) / 64;
  const auto index =
      static_cast<std::size_t>(std::max(0, static_cast<int>(std::bit_width(units)) - 1));
  const auto& factors = kFactors[static_cast<std::size_t>(protocol)];
  return index < factors.size() ? factors[index] : 1;
}

struct Formula {
  double latency_s = 0;
  double algbw_Bps = 0;
};

/// LL is bound by the threads that poll: 87.7 GB/s in one host, 22.5 over two, 19 over more.
double ll_limit_Bps(std::size_t hosts) {
  const auto h = static_cast<double>(hosts);
  return kGiga * (hosts == 1 ? 87.7 : hosts == 2 ? 22.5 * h : 19.0 * h);
}

/// Of the slower of a GPU's port and its host's NICs, as NCCL counts them.
double bus_Bps(const Machine& machine) {
  const double nic = machine.hosts().size() > 1 ? machine.slowest_nic_Bps() * kNcclNetworkShare
                                                : std::numeric_limits<double>::max();
  return machine.gpus_per_node() > 1 ? std::min(machine.port_Bps() * kNcclLinkShare, nic) : nic;
}

/// A ring of so many steps, `across` of which are between hosts.
Formula ring_formula(const Machine& machine, Protocol protocol, double steps, double across) {
  const double hop = hop_latency_s(Algorithm::kRing, protocol, machine.hosts().front().hop);
  const double wire = hop_latency_s(Algorithm::kRing, protocol, HopKind::kNetwork);
  const double algbw_per_bus = static_cast<double>(machine.rank_count()) / steps;
  Formula result{base_latency_s(Algorithm::kRing, protocol) + std::max(0.0, steps - across) * hop +
                     across * wire,
                 bus_Bps(machine) * ring_share(protocol, machine.gpus_per_node()) * algbw_per_bus};
  if (protocol == Protocol::kLl) {
    result.algbw_Bps =
        std::min(result.algbw_Bps, ll_limit_Bps(machine.hosts().size()) * algbw_per_bus);
  }
  return result;
}

Formula formula(const Machine& machine, Bytes size, Algorithm algorithm, Protocol protocol) {
  const std::size_t hosts = machine.hosts().size();
  const auto n = static_cast<double>(machine.rank_count());
  const auto g = static_cast<double>(machine.gpus_per_node());
  const double steps = 2 * (n - 1);
  if (algorithm == Algorithm::kRing) {
    return ring_formula(machine, protocol, steps, hosts > 1 ? 2.0 * static_cast<double>(hosts) : 0);
  }
  const double hop = hop_latency_s(algorithm, protocol, machine.hosts().front().hop);
  const double wires = static_cast<double>(tree_depth(hosts)) *
                       hop_latency_s(algorithm, protocol, HopKind::kNetwork);
  if (algorithm == Algorithm::kTree) {
    Formula result{base_latency_s(algorithm, protocol) + 2 * ((g - 1) * hop + wires),
                   bus_Bps(machine) * tree_share(protocol, hosts) * 0.5 *
                       tree_correction(protocol, size.count())};
    if (protocol == Protocol::kLl) {
      result.algbw_Bps = std::min(result.algbw_Bps, ll_limit_Bps(hosts) * n / steps);
    }
    return result;
  }
  // NVLS. An inner host takes in two children and, of the other tree, its parent: twice the buffer.
  const double nic = hosts > 1 ? machine.slowest_nic_Bps() * kNcclNetworkShare
                               : std::numeric_limits<double>::max();
  return {2 * hop + 2 * wires,
          std::min(machine.port_Bps() * kNcclLinkShare * kNcclSharpShare * g / (g + 1),
                   hosts > 2 ? nic / 2 : nic)};
}

double seconds_of(const Formula& cost, Bytes size) {
  return cost.latency_s + static_cast<double>(size.count()) / cost.algbw_Bps;
}

/// Why the machine cannot run it; empty if it can.
std::string refusal(const Machine& machine, Algorithm algorithm, Protocol protocol) {
  const bool is_nvls = algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree;
  if (is_nvls && !machine.has_sharp()) {
    return "hosts of 3 or more GPUs on a switch that multicasts and reduces";
  }
  if (is_nvls && (algorithm == Algorithm::kNvls) != (machine.hosts().size() == 1)) {
    return algorithm == Algorithm::kNvls ? "one host (nvls-tree for several)" : "several hosts";
  }
  if (is_nvls && protocol != Protocol::kSimple) {
    return "protocol simple";
  }
  if (protocol == Protocol::kLl128 && machine.gpus_per_node() > 1 &&
      machine.hosts().front().hop != HopKind::kNvlink) {
    return "NVLink, which keeps 128 bytes in order";
  }
  return {};
}

}  // namespace

Tuned tune(const Machine& machine, Bytes size, const Choice& choice) {
  Tuned best;
  best.estimate_s = std::numeric_limits<double>::infinity();
  std::string reason;
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kTree, Algorithm::kNvls, Algorithm::kNvlsTree}) {
    for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
      if ((choice.algorithm && *choice.algorithm != algorithm) ||
          (choice.protocol && *choice.protocol != protocol)) {
        continue;
      }
      const std::string why_not = refusal(machine, algorithm, protocol);
      if (!why_not.empty()) {
        reason = std::string(to_string(algorithm)) + " needs " + why_not;
        continue;
      }
      const double estimate = seconds_of(formula(machine, size, algorithm, protocol), size);
      if (estimate < best.estimate_s) {
        best = {algorithm, protocol, estimate};
      }
    }
  }
  if (!std::isfinite(best.estimate_s)) {
    throw ConfigError(ErrorContext{"", "cluster '" + machine.cluster().name() + "'",
                                   "what cannot run the algorithm and protocol asked for", reason});
  }
  return best;
}

Protocol tune_one_way_ring(const Machine& machine, Bytes size) {
  const double steps = static_cast<double>(machine.rank_count()) - 1;
  const double across = static_cast<double>(machine.hosts().size()) - 1;
  Protocol best = Protocol::kSimple;
  double least = std::numeric_limits<double>::infinity();
  for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
    if (!refusal(machine, Algorithm::kRing, protocol).empty()) {
      continue;
    }
    const double estimate =
        seconds_of(ring_formula(machine, protocol, std::max(1.0, steps), across), size);
    if (estimate < least) {
      least = estimate;
      best = protocol;
    }
  }
  return best;
}

}  // namespace rackrail::sim::nccl

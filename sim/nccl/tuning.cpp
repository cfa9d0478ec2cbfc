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

Formula formula(const Machine& machine, Bytes size, Algorithm algorithm, Protocol protocol) {
  const std::size_t hosts = machine.hosts().size();
  const std::size_t gpus = machine.gpus_per_node();
  const auto n = static_cast<double>(machine.rank_count());
  const auto h = static_cast<double>(hosts);
  const auto g = static_cast<double>(gpus);
  const HopKind inside = machine.hosts().front().hop;
  const double hop = hop_latency_s(algorithm, protocol, inside);
  const double wire = hop_latency_s(algorithm, protocol, HopKind::kNetwork);
  const double port = machine.port_Bps() * kNcclLinkShare;
  const double nic = hosts > 1 ? machine.slowest_nic_Bps() * kNcclNetworkShare
                               : std::numeric_limits<double>::max();
  // LL is bound by the threads that poll: 87.7 GB/s in one host, 22.5 over two, 19 over more.
  const double ll_limit = kGiga * (hosts == 1 ? 87.7 : hosts == 2 ? 22.5 * h : 19.0 * h);
  const double bus = gpus > 1 ? std::min(port, nic) : nic;
  Formula result{base_latency_s(algorithm, protocol), 0};
  switch (algorithm) {
    case Algorithm::kRing: {
      const double steps = 2 * (n - 1);
      const double across = hosts > 1 ? 2 * h : 0;
      result.latency_s += std::max(0.0, steps - across) * hop + across * wire;
      result.algbw_Bps = bus * ring_share(protocol, gpus) * n / steps;
      break;
    }
    case Algorithm::kTree:
      result.latency_s += 2 * ((g - 1) * hop + static_cast<double>(tree_depth(hosts)) * wire);
      result.algbw_Bps =
          bus * tree_share(protocol, hosts) * 0.5 * tree_correction(protocol, size.count());
      break;
    case Algorithm::kNvls:
    case Algorithm::kNvlsTree:
      result.latency_s = 2 * hop + 2 * static_cast<double>(tree_depth(hosts)) * wire;
      // An inner host takes in two children and, of the other tree, its parent: twice the buffer.
      result.algbw_Bps = std::min(port * kNcclSharpShare * g / (g + 1), hosts > 2 ? nic / 2 : nic);
      break;
  }
  if (protocol == Protocol::kLl) {
    result.algbw_Bps = std::min(result.algbw_Bps, ll_limit * n / (2 * (n - 1)));
  }
  return result;
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
      const Formula cost = formula(machine, size, algorithm, protocol);
      const double estimate = cost.latency_s + static_cast<double>(size.count()) / cost.algbw_Bps;
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

}  // namespace rackrail::sim::nccl

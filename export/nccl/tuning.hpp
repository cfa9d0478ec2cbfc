// Which algorithm and protocol NCCL should use for an all-reduce of each size on a cluster, by the
// model of NCCL in sim/nccl, and what that gains over NCCL's own choice.
//
// NCCL chooses by a formula of latency and bandwidth with constants of its own, which knows neither
// how its pipelines fill nor what the links between switches carry. The model simulates both. Where
// another choice is predicted to be faster by less than kWorthOverriding, NCCL's own choice stays:
// less than that is within the model's error.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/units.hpp"
#include "sim/nccl/model.hpp"
#include "topology/topology.hpp"

namespace rackrail::exporting::nccl {

inline constexpr double kWorthOverriding = 0.1;  ///< of the time of NCCL's own choice

/// What NCCL can be told for one size.
struct Setting {
  sim::nccl::Algorithm algorithm = sim::nccl::Algorithm::kRing;
  sim::nccl::Protocol protocol = sim::nccl::Protocol::kSimple;
  int channels = 0;
  Bytes chunk;  ///< per channel; 0: NCCL's own. NCCL asks for it from 2.30 on

  bool operator==(const Setting&) const = default;
};

struct SizeTuning {
  Bytes size;     ///< of the all-reduce's buffer
  Setting usual;  ///< what NCCL chooses by itself
  Duration usual_time;
  Setting chosen;  ///< `usual` where nothing is worth another choice
  Duration time;
  /// What NCCL's formula takes for a ring that gathers, scatters or broadcasts so much in all.
  sim::nccl::Protocol one_way = sim::nccl::Protocol::kSimple;

  bool is_overridden() const { return chosen != usual; }
  /// Share of NCCL's own time that the choice saves.
  double gain() const { return 1 - time / usual_time; }
};

/// Of the communicators with so many hosts and GPUs.
struct ShapeTuning {
  std::size_t nodes = 1;
  std::size_t gpus_per_node = 1;
  std::vector<SizeTuning> sizes;  ///< powers of two, in ascending order
  bool has_sharp = false;         ///< GPUs of a host share a switch that adds (NVLS)
  int channels = 0;               ///< of rings and trees
  int nvls_channels = 0;

  std::size_t ranks() const { return nodes * gpus_per_node; }
};

/// For 1, 2, 4 … and all hosts of the cluster, with the GPUs that each of them has. Throws
/// ConfigError where ranks are no GPUs or alone.
std::vector<ShapeTuning> tune_all_reduces(const topology::Topology& cluster,
                                          const sim::nccl::Parameters& parameters,
                                          const std::function<void(double)>& progress);

}  // namespace rackrail::exporting::nccl

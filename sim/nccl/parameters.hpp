// The constants of the NCCL model: those that NCCL itself assumes, and those that are fitted.
//
// NCCL's own tables (graph/topo.h, tuning.cc) say how long a hop takes in each protocol and what
// share of a link carries payload. What they leave open depends on machine and version, and is few:
// eight physical parameters, each with a usual value, how far machines stray from it (calibrate.hpp
// takes that for a prior), and hard limits. None of them depends on the number of GPUs or nodes, so
// what is fitted on some counts holds for others.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace rackrail::sim::nccl {

enum class Algorithm : std::uint8_t { kRing, kTree, kNvls, kNvlsTree };
enum class Protocol : std::uint8_t { kLl, kLl128, kSimple };
inline constexpr std::size_t kProtocols = 3;

std::string_view to_string(Algorithm algorithm);
std::string_view to_string(Protocol protocol);

struct Parameters {
  double launch_s = 0;          ///< start of the kernel on all GPUs to its end, beside the steps
  double link_efficiency = 0;   ///< payload rate of a GPU's port in Simple, of its nominal rate
  double slice_overhead_s = 0;  ///< what a thread block spends on handing on one slice (Simple)
  double pass_share = 0;        ///< cost of a block's unfilled pass, of a full one (schedules.hpp)
  double tail_share = 0;        ///< time of the loop's unoverlapped copy, of the hop's own time
  double sharp_efficiency = 0;  ///< NVLS's rate, of link_efficiency · nominal
  double network_efficiency = 0;  ///< payload rate of the network's links, of their nominal rate
  double network_latency = 0;     ///< latency of a network hop, of NCCL's table
  int channels = 0;               ///< thread blocks per GPU; not fitted
  int nvls_channels = 0;          ///< the same for NVLS; not fitted
  /// Largest chunk of an NVLS tree over four or more hosts; not fitted. NCCL began with 128 KiB, as
  /// for fewer hosts; later versions take 64 KiB (NCCL_NVLSTREE_MAX_CHUNKSIZE).
  Bytes nvls_tree_chunk;
};

/// One fitted parameter: how it is called in files, its usual value and how it may be.
struct ParameterInfo {
  std::string_view name;
  double Parameters::*member;
  bool is_time;   ///< a duration in seconds; else a share
  double usual;   ///< before any calibration
  double spread;  ///< standard deviation of its logarithm among machines (a prior, a judgement)
  double least;
  double most;
  std::string_view source;  ///< of the usual value
};
std::span<const ParameterInfo> parameter_table();
Parameters usual_parameters();

/// Reads configs/nccl/<name>.yaml or any such file. Throws ConfigError with file and line.
Parameters read_parameters(const std::filesystem::path& file);
/// YAML with a comment of `origin` (may have several lines), each value with its unit.
std::string to_yaml(const Parameters& parameters, std::string_view name, std::string_view origin);

/// NCCL's latency per hop by protocol (LL, LL128, Simple), tuning.cc.
using ByProtocol = std::array<double, kProtocols>;
enum class HopKind : std::uint8_t { kNvlink, kPcie, kNetwork };
double hop_latency_s(Algorithm algorithm, Protocol protocol, HopKind kind);
double base_latency_s(Algorithm algorithm, Protocol protocol);
/// Payload of a link's bytes: LL has half flags, LL128 8 of 128 bytes.
double payload_share(Protocol protocol);

}  // namespace rackrail::sim::nccl

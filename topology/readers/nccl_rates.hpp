// The rates that NCCL and RCCL assume for links, by generation, and the latencies of their cost
// model (NCCL: src/graph/topo.h, src/graph/tuning.cc; RCCL: the same files).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace rackrail::topology {

/// One NVLink in one direction, by compute capability ("80" is 8.0).
std::optional<Bandwidth> nvlink_rate(int sm);

/// What NCCL takes when it does not know: NVLink of A100.
Bandwidth default_nvlink_rate();

/// One xGMI link in one direction, by RCCL's `gcn` ("908", "gfx942").
std::optional<Bandwidth> xgmi_rate(std::string_view gcn);

Bandwidth default_xgmi_rate();

/// One PCIe lane in one direction, from text such as "16.0 GT/s PCIe".
std::optional<Bandwidth> pcie_lane_rate(std::string_view link_speed);
/// What NCCL takes when it does not know: PCIe 3.0.
Bandwidth default_pcie_lane_rate();

/// Between two CPU sockets.
std::optional<Bandwidth> socket_rate(std::string_view arch, std::string_view vendor, int family,
                                     int model);
Bandwidth default_socket_rate();

/// GPU model by compute capability, RCCL's gcn, or PCI vendor and device; empty when unknown.
std::string gpu_model_by_sm(int sm);
std::string gpu_model_by_gcn(std::string_view gcn);
std::string gpu_model_by_pci(std::string_view vendor, std::string_view device);

/// What a model's name says ("A100", "NVIDIA H100 80GB HBM3").
struct GpuModel {
  std::string_view name;
  std::optional<Bandwidth> link;  ///< one NVLink or xGMI in one direction; none: it has none
  Bandwidth pcie;                 ///< x16 of its generation
  std::string_view pcie_name;     ///< "PCIe 4.0 x16"
};
std::optional<GpuModel> gpu_model_named(std::string_view text);

// NCCL's latencies are from GPU to GPU (NVLink 0.6 us, PCIe 1.0 us); each passes two links of ours
// where a switch is between.
inline constexpr Duration kNvlinkLatency = 600_ns;
inline constexpr Duration kNvswitchLatency = 300_ns;
inline constexpr Duration kPcieLatency = 500_ns;
inline constexpr Duration kSocketLatency = 500_ns;
/// NIC to ToR where nobody says: NCCL's 2.7 us of a ring step over the network, less the PCIe part.
inline constexpr Duration kNicLatency = 850_ns;

}  // namespace rackrail::topology

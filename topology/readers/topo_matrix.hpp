// The matrix of `nvidia-smi topo -m`: how each GPU and NIC of a machine reaches each other one.
//
// NVML compares the places of two devices in the tree of the machine: below one PCIe bridge (PIX),
// below several bridges of one root port (PXB), on one host bridge (PHB), in one NUMA node (NODE),
// or none of these (SYS). Each level is an equivalence, and each holds within the next, so that the
// levels give the tree back: sockets, PCIe switches, devices. Between GPUs with NVLink the number
// of links (NV12) hides the place; it then follows from the NICs and the NUMA affinity.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topology/readers/nccl_machine.hpp"

namespace rackrail::topology {

/// Of one GPU, to all peers and switches together.
inline constexpr int kMostNvlinks = 18;

/// From near to far.
enum class TopoRelation : std::uint8_t { kSelf, kPix, kPxb, kPhb, kNode, kSys, kNvlink, kUnknown };

struct TopoCell {
  TopoRelation relation = TopoRelation::kUnknown;
  int links = 0;  ///< of kNvlink

  friend bool operator==(const TopoCell&, const TopoCell&) = default;
};

/// "PIX", "NV12"; "N/A" where unknown.
std::string to_string(const TopoCell& cell);

struct TopoDevice {
  std::string label;  ///< "GPU0", "NIC3", "mlx5_0"
  bool is_gpu = false;
  std::string name;      ///< of a NIC in the machine; empty: unknown
  std::string numa;      ///< NUMA node of a GPU; empty: unknown
  std::size_t line = 0;  ///< of its row; 0: none
};

struct TopoMatrix {
  std::vector<TopoDevice> devices;
  std::vector<TopoCell> cells;  ///< row by row
  std::string gpu_model;        ///< that the text around it names; empty: none, or several
  std::vector<std::string> notes;

  TopoCell& at(std::size_t row, std::size_t column) { return cells[row * devices.size() + column]; }
  const TopoCell& at(std::size_t row, std::size_t column) const {
    return cells[row * devices.size() + column];
  }
};

/// Whether some of the text looks like such a matrix.
bool has_topo_matrix(std::string_view content);

/// The first matrix of the text; others are noted. It is symmetric. Throws ConfigError that names
/// the line, and of cells that contradict each other both.
TopoMatrix parse_topo_matrix(const std::string& file, std::string_view content);

/// The machine that has this matrix. Throws ConfigError for one that no machine has.
NcclMachine machine_of(const TopoMatrix& matrix, const std::string& file,
                       std::vector<std::string>& notes);

}  // namespace rackrail::topology

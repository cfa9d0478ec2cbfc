// Where in their machines ranks are attached: socket, PCIe switch, adapter.
#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// The nearest vertex of each kind by hops inside the machine, NVLink and other GPUs left out; the
/// first one where several are equally near. None sorts before all others.
struct Attachment {
  std::optional<NodeId> cpu;
  std::optional<NodeId> pci_switch;
  std::optional<NodeId> nic;

  auto operator<=>(const Attachment&) const = default;
};

/// By rank. Nothing is known of ranks that belong to no machine. O(vertices + links of each rank's
/// machine).
std::vector<Attachment> attachments(const Topology& topology);

}  // namespace rackrail::topology

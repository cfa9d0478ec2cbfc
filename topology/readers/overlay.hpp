// What a file about one machine lacks and the user says in an overlay
// (docs/reference/cluster-file.md): how many such machines, the network between them, the GPUs,
// rates.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "topology/readers/cluster_spec.hpp"

namespace rackrail::topology {

struct Overlay {
  std::optional<std::string> name;  ///< of the cluster
  bool names_hosts = false;         ///< whether it says how many hosts there are
  std::vector<RackGroup> racks{RackGroup{}};
  Network network;
  std::string device_class;                      ///< of all GPUs; empty: as the file tells
  std::optional<Bytes> memory;                   ///< of each GPU
  std::shared_ptr<const DeviceFigures> figures;  ///< Node::figures of each GPU
  Bandwidth host_staging;                        ///< Node::host_staging of each GPU
  /// Bus ids or names: what is a GPU or NIC where the file does not tell, else which of them count.
  std::vector<std::string> gpus;
  std::vector<std::string> nics;
  std::optional<std::int64_t> nic_count;  ///< of each machine, for files without NICs
  std::optional<GpuFabric> nvlink;
  std::optional<LinkClass> nic;   ///< NIC to ToR
  std::optional<LinkClass> pcie;  ///< of all PCIe devices, whatever the file tells
};

/// Throws ConfigError. Without a path: one machine by itself.
Overlay read_overlay(const std::optional<std::filesystem::path>& path);

}  // namespace rackrail::topology

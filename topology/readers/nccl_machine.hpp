// What an NCCL topology XML says about one machine, with what it leaves open marked as open.
//
// Two kinds of files share the format. Dumps (NCCL_TOPO_DUMP_FILE) name GPUs, NICs and NVLinks.
// Hint files of cloud vendors have only `pci` elements, told apart by their class code, sometimes
// not even that; an overlay then says what they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace rackrail::topology {

/// "0000:3b:00.0" in a form that compares: lower case, domain with four digits or more.
std::string normalised_bus_id(const std::string& text);

struct GpuLink {
  enum class To : std::uint8_t { kSwitch, kDevice };
  To to = To::kDevice;
  std::string target;  ///< bus id of the peer, normalised
  Bandwidth rate;      ///< of all links to it together, in one direction
};

struct PciDevice {
  enum class Role : std::uint8_t { kBridge, kGpu, kNic, kOther, kUnknown };
  Role role = Role::kUnknown;
  bool is_described = false;           ///< has a `gpu` or `nic` element, not just a class code
  std::string bus_id;                  ///< normalised; empty for a NIC directly below a CPU
  std::optional<Bandwidth> rate;       ///< to its parent
  std::optional<std::size_t> parent;   ///< index of a device; none: directly below the CPU
  std::size_t cpu = 0;                 ///< index of its CPU
  std::optional<std::int64_t> number;  ///< of a GPU or NIC as the file counts them
  std::string device_class;            ///< of a GPU, where the file tells
  std::vector<GpuLink> links;          ///< of a GPU
  std::optional<Bandwidth> cpu_link;   ///< of a GPU with a coherent link to its CPU
  std::optional<Bandwidth> port_rate;  ///< of a NIC, all its ports together
  std::string names;                   ///< of a NIC's ports in the machine, separated by spaces
  bool has_no_gpudirect = false;       ///< of a NIC: one of its ports has gdr="0"
  std::string where;                   ///< "line 12" of its element
};

struct NcclMachine {
  std::string host_hash;           ///< empty where the file has none
  std::vector<std::string> cpus;   ///< NUMA ids, for messages
  Bandwidth socket_rate;           ///< between two CPUs
  std::vector<PciDevice> devices;  ///< a parent stands before its children
};

struct NcclFile {
  std::vector<NcclMachine> machines;  ///< one per host_hash
  std::vector<std::string> notes;
};

/// Throws ConfigError for what is not NCCL topology XML, naming the other format where it can.
NcclFile parse_nccl_xml(const std::string& file, const std::string& content);

}  // namespace rackrail::topology

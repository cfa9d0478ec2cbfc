// What a file says about the inside of machines, with what it leaves open marked as open: NCCL
// topology XML, the matrix of `nvidia-smi topo -m`, the tables of `rocm-smi --showtopo`.
//
// Two kinds of XML files share the format. Dumps (NCCL_TOPO_DUMP_FILE) name GPUs, NICs and NVLinks.
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

/// Links of a GPU to one peer or to NVSwitches.
struct GpuLink {
  enum class To : std::uint8_t { kSwitch, kDevice };
  enum class Kind : std::uint8_t { kNvlink, kXgmi };
  To to = To::kDevice;
  Kind kind = Kind::kNvlink;
  std::string target;      ///< bus id of the peer, normalised
  std::size_t island = 0;  ///< of a switch: GPUs of other islands are not on it
  std::int64_t count = 1;
  std::optional<Bandwidth> each;  ///< of one link in one direction; none: as of the GPU's class
};

struct PciDevice {
  enum class Role : std::uint8_t { kBridge, kGpu, kNic, kOther, kUnknown };
  Role role = Role::kUnknown;
  bool is_described = false;           ///< has a `gpu` or `nic` element, not just a class code
  std::string bus_id;                  ///< normalised; empty where the file has none
  std::string label;                   ///< what the file calls it where it has no bus id
  std::optional<Bandwidth> rate;       ///< to its parent
  std::optional<std::size_t> parent;   ///< index of a device; none: directly below the CPU
  std::size_t cpu = 0;                 ///< index of its CPU
  std::optional<std::int64_t> number;  ///< of a GPU or NIC as the file counts them
  std::string device_class;            ///< of a GPU, where the file tells
  bool is_class_assumed = false;       ///< the class is the likeliest, not the file's
  std::vector<GpuLink> links;          ///< of a GPU
  std::optional<Bandwidth> cpu_link;   ///< of a GPU with a coherent link to its CPU
  std::optional<Bandwidth> port_rate;  ///< of a NIC, all its ports together
  std::string names;                   ///< of a NIC's ports in the machine, separated by spaces
  bool has_no_gpudirect = false;       ///< of a NIC: one of its ports has gdr="0"
  std::string where;                   ///< "line 12" of its element
};

/// Bus id or label, for messages.
const std::string& name_of(const PciDevice& device);

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

/// Throws ConfigError for what is not NCCL topology XML, naming the other format and what to give
/// instead where it can.
NcclFile parse_nccl_xml(const std::string& file, const std::string& content);

}  // namespace rackrail::topology

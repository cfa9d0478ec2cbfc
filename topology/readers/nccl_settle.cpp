#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "topology/readers/nccl_cluster.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

using Role = PciDevice::Role;

class MachineSettler {
 public:
  MachineSettler(std::string file, const Overlay& overlay, std::vector<std::string>& notes)
      : file_(std::move(file)), overlay_(overlay), notes_(notes) {}

  void settle(NcclMachine& machine) {
    trust_descriptions(machine, Role::kGpu);
    trust_descriptions(machine, Role::kNic);
    apply_roles(machine, overlay_.gpus, Role::kGpu, "gpus");
    apply_roles(machine, overlay_.nics, Role::kNic, "nics");
    drop_repeated(machine);
    require_gpus(machine);
    settle_pcie(machine);
    settle_gpu_links(machine);
    note_staging(machine);
    for (PciDevice& device : machine.devices) {
      if (device.role == Role::kGpu && !overlay_.device_class.empty()) {
        device.device_class = overlay_.device_class;
      }
    }
  }

 private:
  void note(std::string text) {
    if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) {
      notes_.push_back(std::move(text));
    }
  }

  /// A dump describes each GPU and NIC that counts; others of their class are a display adapter of
  /// the board, or a port that is not used.
  void trust_descriptions(NcclMachine& machine, Role role) {
    const auto is_of_role = [role](const PciDevice& d) { return d.role == role; };
    if (std::none_of(machine.devices.begin(), machine.devices.end(),
                     [&](const PciDevice& d) { return is_of_role(d) && d.is_described; })) {
      return;
    }
    for (PciDevice& device : machine.devices) {
      if (!is_of_role(device) || device.is_described) continue;
      device.role = Role::kOther;
      note(fmt::format("{}: {} has the class of a {} but no '{}' element as others have: left out",
                       device.where, device.bus_id, role == Role::kGpu ? "GPU" : "NIC",
                       role == Role::kGpu ? "gpu" : "nic"));
    }
  }

  void apply_roles(NcclMachine& machine, const std::vector<std::string>& bus_ids, Role role,
                   const char* key) const {
    for (const std::string& text : bus_ids) {
      const std::string id = normalised_bus_id(text);
      const auto device = std::find_if(machine.devices.begin(), machine.devices.end(),
                                       [&](const PciDevice& d) { return d.bus_id == id; });
      if (device == machine.devices.end()) {
        throw ConfigError(ErrorContext{file_, fmt::format("overlay, {}", key),
                                       fmt::format("no device '{}'", text),
                                       "bus ids of devices in the file"});
      }
      device->role = role;
    }
  }

  void drop_repeated(NcclMachine& machine) {
    std::set<std::string> seen;
    for (PciDevice& device : machine.devices) {
      const bool is_named = device.role == Role::kGpu || device.role == Role::kNic;
      if (!is_named || device.bus_id.empty()) continue;
      if (!seen.insert(device.bus_id).second) {
        note(fmt::format("{}: bus id {} stands there twice; the first one counts", device.where,
                         device.bus_id));
        device.role = Role::kOther;
      }
    }
  }

  void require_gpus(const NcclMachine& machine) {
    const auto count = [&](Role role) {
      return std::count_if(machine.devices.begin(), machine.devices.end(),
                           [role](const PciDevice& d) { return d.role == role; });
    };
    const auto unknown = count(Role::kUnknown);
    if (count(Role::kGpu) == 0) {
      std::string ids;
      for (const PciDevice& device : machine.devices) {
        if (device.role == Role::kUnknown) ids += (ids.empty() ? "" : ", ") + device.bus_id;
      }
      throw ConfigError(ErrorContext{
          file_, "",
          unknown > 0 ? fmt::format("{} devices without a class ({}) and no GPU", unknown, ids)
                      : "no GPU",
          "GPUs (class 0x03...), or an overlay whose 'gpus' lists their bus ids"});
    }
    if (unknown > 0) {
      note(
          fmt::format("{} devices without a class are left out; an overlay may name them in "
                      "'gpus' or 'nics'",
                      unknown));
    }
  }

  void settle_pcie(NcclMachine& machine) {
    Bandwidth widest(0);
    for (const PciDevice& device : machine.devices) {
      if (device.rate) widest = std::max(widest, *device.rate);
    }
    const bool is_guess = widest == Bandwidth(0);
    const Bandwidth assumed = overlay_.pcie ? overlay_.pcie->bandwidth
                              : is_guess    ? default_pcie_lane_rate() * 16
                                            : widest;
    bool replaces = false;
    for (PciDevice& device : machine.devices) {
      if (device.role == Role::kOther || device.role == Role::kUnknown) continue;
      if (device.rate && (!overlay_.pcie || *device.rate == assumed)) continue;
      replaces = replaces || device.rate;
      if (!overlay_.pcie) {
        note(fmt::format(
            "PCIe devices of unknown speed: {} assumed{}", to_string(assumed),
            is_guess ? " (PCIe 3.0 x16, as NCCL does)" : ", the widest that is in the file"));
      }
      device.rate = assumed;
    }
    if (replaces) {
      note(fmt::format("the overlay's 'pcie' replaces the rates of PCIe that the file has: {}",
                       to_string(assumed)));
    }
  }

  void settle_gpu_links(NcclMachine& machine) {
    bool has_links = false;
    std::size_t gpus = 0;
    for (PciDevice& device : machine.devices) {
      gpus += device.role == Role::kGpu ? 1 : 0;
      has_links = has_links || !device.links.empty();
      if (overlay_.nvlink) device.links.clear();
    }
    if (has_links && overlay_.nvlink) {
      note("the overlay's 'nvlink' replaces the links between GPUs that the file has");
    } else if (!has_links && !overlay_.nvlink && gpus > 1) {
      note(
          "the file has no links between GPUs: they talk over PCIe, unless an overlay says "
          "'nvlink'");
    }
  }

  void note_staging(const NcclMachine& machine) {
    const bool is_likely =
        std::any_of(machine.devices.begin(), machine.devices.end(), [](const PciDevice& device) {
          return device.role == Role::kNic && device.has_no_gpudirect;
        });
    if (is_likely && overlay_.names_hosts && overlay_.host_staging == Bandwidth(0)) {
      note(
          "by the file (gdr=\"0\") NICs cannot read the memory of GPUs: an overlay may say at "
          "which "
          "'host_staging' rate messages are copied to host memory");
    }
  }

  std::string file_;
  const Overlay& overlay_;
  std::vector<std::string>& notes_;
};

}  // namespace

void settle_machine(NcclMachine& machine, const std::string& file, const Overlay& overlay,
                    std::vector<std::string>& notes) {
  MachineSettler(file, overlay, notes).settle(machine);
}

}  // namespace rackrail::topology

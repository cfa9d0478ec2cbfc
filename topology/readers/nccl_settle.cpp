#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
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
    add_nics(machine);
    settle_classes(machine);
    settle_pcie(machine);
    settle_gpu_links(machine);
    note_staging(machine);
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

  /// A list of devices whose roles the file tells says which of them count.
  void apply_roles(NcclMachine& machine, const std::vector<std::string>& names, Role role,
                   const char* key) {
    std::set<std::size_t> chosen;
    for (const std::string& text : names) {
      const auto device = std::find_if(machine.devices.begin(), machine.devices.end(),
                                       [&](const PciDevice& d) { return is_named(d, text); });
      if (device == machine.devices.end()) {
        throw ConfigError(ErrorContext{file_, fmt::format("overlay, {}", key),
                                       fmt::format("no device '{}'", text),
                                       "bus ids or names of devices in the file"});
      }
      chosen.insert(static_cast<std::size_t>(device - machine.devices.begin()));
    }
    if (chosen.empty()) return;
    const bool is_choice = std::all_of(chosen.begin(), chosen.end(), [&](std::size_t i) {
      return machine.devices[i].role == role;
    });
    std::size_t left_out = 0;
    for (std::size_t i = 0; i < machine.devices.size(); ++i) {
      PciDevice& device = machine.devices[i];
      if (chosen.contains(i)) {
        device.role = role;
      } else if (is_choice && device.role == role) {
        device.role = Role::kOther;
        ++left_out;
      }
    }
    if (left_out > 0) {
      note(fmt::format("the overlay's '{}' leaves out {} of the file's {}", key, left_out, key));
    }
  }

  static bool is_named(const PciDevice& device, const std::string& text) {
    if (!device.bus_id.empty() && device.bus_id == normalised_bus_id(text)) return true;
    if (!device.label.empty() && is_same_in_any_case(device.label, text)) return true;
    std::istringstream names(device.names);
    return std::find(std::istream_iterator<std::string>(names),
                     std::istream_iterator<std::string>(),
                     text) != std::istream_iterator<std::string>();
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
        if (device.role == Role::kUnknown)
          ids += fmt::format("{}\"{}\"", ids.empty() ? "" : ", ", device.bus_id);
      }
      throw ConfigError(ErrorContext{
          file_, "",
          unknown > 0 ? fmt::format("{} devices without a class and no GPU", unknown) : "no GPU",
          unknown > 0
              ? fmt::format("an overlay whose 'gpus' and 'nics' say which is which, of: [{}]", ids)
              : "GPUs (class 0x03...), or an overlay whose 'gpus' lists their bus ids"});
    }
    if (unknown > 0) {
      note(
          fmt::format("{} devices without a class are left out; an overlay may name them in "
                      "'gpus' or 'nics'",
                      unknown));
    }
  }

  /// As many NICs as the overlay says, each beside a GPU, spread evenly.
  void add_nics(NcclMachine& machine) {
    if (!overlay_.nic_count) return;
    std::vector<std::size_t> gpus;
    std::size_t nics = 0;
    for (std::size_t i = 0; i < machine.devices.size(); ++i) {
      if (machine.devices[i].role == Role::kGpu) gpus.push_back(i);
      nics += machine.devices[i].role == Role::kNic ? 1 : 0;
    }
    if (nics > 0) {
      throw ConfigError(ErrorContext{
          file_, "overlay, nics",
          fmt::format("{} for a file that has {}", counted(*overlay_.nic_count, "NIC"), nics),
          "a number for files without NICs, or a list of those that count"});
    }
    const auto count = static_cast<std::size_t>(*overlay_.nic_count);
    for (std::size_t i = 0; i < count; ++i) {
      const PciDevice& gpu = machine.devices[gpus[i * gpus.size() / count]];
      PciDevice nic;
      nic.role = Role::kNic;
      nic.is_described = true;
      nic.label = fmt::format("nic{}", i);
      nic.number = static_cast<std::int64_t>(i);
      nic.parent = gpu.parent;
      nic.cpu = gpu.cpu;
      nic.rate = gpu.rate;
      machine.devices.push_back(std::move(nic));
    }
    note(fmt::format("{} from the overlay, spread evenly over the GPUs' PCIe switches or CPUs",
                     counted(*overlay_.nic_count, "NIC")));
  }

  void settle_classes(NcclMachine& machine) {
    if (overlay_.device_class.empty()) return;
    for (PciDevice& device : machine.devices) {
      if (device.role != Role::kGpu) continue;
      if (!device.device_class.empty() && !device.is_class_assumed &&
          !is_same_in_any_case(device.device_class, overlay_.device_class)) {
        note(fmt::format("device class {} counts instead of {}, which the file names",
                         overlay_.device_class, device.device_class));
      }
      device.device_class = overlay_.device_class;
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
    for (PciDevice& device : machine.devices) {
      for (GpuLink& link : device.links) settle_rate(device, link);
    }
    drop_loose_links(machine);
  }

  /// Links that end at the GPU itself, as virtual machines show them, or at what is not there.
  void drop_loose_links(NcclMachine& machine) {
    std::set<std::string> gpus;
    std::set<std::string> others;
    for (const PciDevice& device : machine.devices) {
      (device.role == Role::kGpu ? gpus : others).insert(device.bus_id);
    }
    std::vector<std::string> to_self;
    std::vector<std::string> to_nowhere;
    for (PciDevice& device : machine.devices) {
      std::erase_if(device.links, [&](const GpuLink& link) {
        if (link.to == GpuLink::To::kSwitch) return false;
        const bool is_self = link.target == device.bus_id;
        if (is_self) {
          to_self.push_back(device.bus_id);
        } else if (!gpus.contains(link.target) && !others.contains(link.target)) {
          to_nowhere.push_back(fmt::format("{} to {}", device.bus_id, link.target));
        }
        return is_self || !gpus.contains(link.target);
      });
    }
    constexpr std::string_view kRemedy = "left out; an overlay's 'nvlink' may say what they join";
    if (!to_self.empty()) {
      note(fmt::format("links of {} ({}{}) point at the GPU itself: {}",
                       counted(static_cast<std::int64_t>(to_self.size()), "GPU"), to_self.front(),
                       to_self.size() > 1 ? ", ..." : "", kRemedy));
    }
    if (!to_nowhere.empty()) {
      note(fmt::format("links to GPUs that the file does not have ({}{}): {}", to_nowhere.front(),
                       to_nowhere.size() > 1 ? ", ..." : "", kRemedy));
    }
  }

  void settle_rate(const PciDevice& device, GpuLink& link) {
    if (link.each) return;
    const std::optional<GpuModel> model = gpu_model_named(device.device_class);
    if (model && model->link) {
      link.each = model->link;
      return;
    }
    const bool is_xgmi = link.kind == GpuLink::Kind::kXgmi;
    link.each = is_xgmi ? default_xgmi_rate() : default_nvlink_rate();
    note(fmt::format("{} of unknown generation: {} GB/s per link assumed",
                     is_xgmi ? "xgmi" : "nvlink", link.each->bytes_per_second() / 1'000'000'000));
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

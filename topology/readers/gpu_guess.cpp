#include "topology/readers/gpu_guess.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse_units.hpp"
#include "topology/readers/nccl_rates.hpp"

namespace rackrail::topology {
namespace {

using Role = PciDevice::Role;

void note_links(const NcclMachine& machine, const GpuModel& model,
                std::vector<std::string>& notes) {
  const auto has_open_rate = [](const PciDevice& device) {
    return std::any_of(device.links.begin(), device.links.end(),
                       [](const GpuLink& link) { return !link.each; });
  };
  if (!model.link || std::none_of(machine.devices.begin(), machine.devices.end(), has_open_rate)) {
    return;
  }
  notes.push_back(
      fmt::format("each link between GPUs: {} in each direction, as NCCL counts those "
                  "of {}; an overlay's 'nvlink' may say otherwise",
                  to_string(*model.link), model.name));
}

}  // namespace

void assume_gpus(NcclMachine& machine, const Overlay& overlay, const GpuGuess& guess,
                 std::vector<std::string>& notes) {
  std::string name = overlay.device_class;
  if (name.empty()) {
    name = guess.named.empty() ? guess.likeliest : guess.named;
    for (PciDevice& device : machine.devices) {
      if (device.role != Role::kGpu) continue;
      device.device_class = name;
      device.is_class_assumed = true;
    }
    if (!guess.named.empty()) {
      notes.push_back(fmt::format("device class {}, which the text around the table names", name));
    } else if (!name.empty()) {
      notes.push_back(
          fmt::format("the file does not name the GPUs: {} assumed, the likeliest with "
                      "{}; --device-class says otherwise",
                      name, guess.evidence));
    }
  }
  const std::optional<GpuModel> model = gpu_model_named(name);
  if (!model) return;
  if (!overlay.nvlink) note_links(machine, *model, notes);
  if (overlay.pcie) return;
  for (PciDevice& device : machine.devices) device.rate = model->pcie;
  notes.push_back(
      fmt::format("the file has no rates of PCIe: {} assumed ({}, that of {}); an "
                  "overlay's 'pcie' may say otherwise",
                  to_string(model->pcie), model->pcie_name, model->name));
}

}  // namespace rackrail::topology

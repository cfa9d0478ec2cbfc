// What data sheets say about the devices that train: the figures behind compute_scale
// (workload.hpp) and device_rates (cost_model.hpp).
//
// To add a class: a file in configs/devices; nothing is compiled.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/device_figures.hpp"

namespace rackrail::topology {
class Topology;
struct Node;
}  // namespace rackrail::topology

namespace rackrail::plan {

struct DeviceClass : topology::DeviceFigures {
  std::string name;
  std::vector<std::string> aliases;  ///< as drivers and vendors call it
};

/// All known classes, by name: those of the shipped configs/devices, and those of
/// $RACKRAIL_CONFIGS/devices, which replace shipped ones of the same name. The files are read at
/// the first call. Throws ConfigError for a file that is broken.
std::span<const DeviceClass> device_classes();

/// The class of that name or alias in any case (a100 is A100); null when unknown.
const DeviceClass* find_device_class(std::string_view name);

/// The same, or else the class with the longest name or alias that is part of this one ("NVIDIA
/// GB200 NVL72" is a GB200), also without the letters after its number (an L40 is taken as an
/// L40S). Null where there is none.
const DeviceClass* likeliest_device_class(std::string_view name);

/// What a GPU is taken as whose name says nothing: H100.
const DeviceClass& default_gpu();

/// The class by which a vertex is predicted: the likeliest by the name of its class. Without one a
/// GPU is the default GPU, and all else is a CPU.
const DeviceClass& device_class_of(const topology::Node& node);
/// Its figures: those of the cluster file, if it has some, else those of device_class_of().
const topology::DeviceFigures& device_figures_of(const topology::Node& node);

/// The name as its file has it; as it is where it is unknown.
std::string_view device_class_name(std::string_view name);

/// Gives the device classes of ranks these names. Readers of clusters call it, so that ranks of one
/// class are identical and a plan's digest is the same for all spellings. Classes that the cluster
/// file describes keep theirs.
void name_device_classes(topology::Topology& topology);

}  // namespace rackrail::plan

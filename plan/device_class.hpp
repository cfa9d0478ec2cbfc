// What data sheets say about the devices that train: the figures behind compute_scale
// (workload.hpp) and device_rates (cost_model.hpp).
//
// To add a class: a line in the table of device_class.cpp, with its data sheet.
#pragma once

#include <span>
#include <string_view>

#include "base/units.hpp"

namespace rackrail::topology {
class Topology;
}  // namespace rackrail::topology

namespace rackrail::plan {

struct DeviceClass {
  std::string_view name;
  /// Peak rate of the matrix products of FP32 training as frameworks run it by default (TF32 tensor
  /// cores where the device has them, without sparsity), in TFLOP/s.
  double matrix_tflops = 0;
  Bandwidth memory;        ///< peak bandwidth of the device's memory, all channels
  Bandwidth codec_memory;  ///< what the codecs of one rank can draw from it (see device_class.cpp)
  Duration launch;         ///< fixed cost of one codec or reduction call among others
  Duration wake;           ///< what the first of them waits beyond that
};

/// All known classes, by name.
std::span<const DeviceClass> device_classes();

/// The class of that name in any case (a100 is A100); null when unknown.
const DeviceClass* find_device_class(std::string_view name);

/// The name as the table has it; as it is where it is unknown.
std::string_view device_class_name(std::string_view name);

/// Gives the device classes of ranks these names. Readers of clusters call it, so that ranks of one
/// class are identical and a plan's digest is the same for all spellings.
void name_device_classes(topology::Topology& topology);

}  // namespace rackrail::plan

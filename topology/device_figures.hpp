// What a data sheet says about a device that trains: the figures by which codecs, additions and
// compute times are predicted (plan/device_class.hpp). A file of configs/devices or an entry of
// `device_classes` in a cluster file gives them.
#pragma once

#include <optional>

#include "base/units.hpp"

namespace rackrail {
class ConfigValue;
}  // namespace rackrail

namespace rackrail::topology {

struct DeviceFigures {
  /// Peak rate of the matrix products of FP32 training as frameworks run it by default (TF32 tensor
  /// cores where the device has them, without sparsity), in TFLOP/s.
  double matrix_tflops = 0;
  Bandwidth memory;        ///< peak bandwidth of the device's memory, all channels
  Bandwidth codec_memory;  ///< what the codecs of one rank can draw from it
  Duration launch;         ///< fixed cost of one codec or reduction call among others
  Duration wake;           ///< what the first of them waits beyond that
  std::optional<Bytes> memory_size;
};

/// Whether a map has a figure beside `memory` and `source`.
bool has_device_figures(const ConfigValue& map);
/// The keys `matrix_tflops` and `memory_bandwidth`, which it must have, and `memory`,
/// `codec_memory`, `launch` and `wake`; other keys are left to the caller. Throws ConfigError.
DeviceFigures read_device_figures(const ConfigValue& map);

}  // namespace rackrail::topology

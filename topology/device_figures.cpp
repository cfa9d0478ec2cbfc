#include "topology/device_figures.hpp"

#include <algorithm>

#include "base/config_tree.hpp"

namespace rackrail::topology {
namespace {

// A CUDA kernel starts 5 us after its call, but of kernels that are queued one behind the other
// each costs about 1 us beyond its work (A. Gray, "Getting Started with CUDA Graphs", NVIDIA 2019:
// kernels of 2.9 us every 3.8 us, and every 9.6 us when each is waited for).
constexpr Duration kLaunch = 1_us;
constexpr Duration kWake = 4_us;

}  // namespace

bool has_device_figures(const ConfigValue& map) {
  return std::ranges::any_of(map.members(), [](const auto& member) {
    return member.first != "memory" && member.first != "source";
  });
}

DeviceFigures read_device_figures(const ConfigValue& map) {
  constexpr double kLeastRate = 0.001;
  constexpr double kMostRate = 1e6;
  DeviceFigures figures;
  figures.matrix_tflops = map.require("matrix_tflops").ratio(kLeastRate, kMostRate);
  figures.memory = map.require("memory_bandwidth").bandwidth();
  const ConfigValue* codecs = map.find("codec_memory");
  figures.codec_memory = codecs != nullptr ? codecs->bandwidth() : figures.memory;
  if (figures.codec_memory > figures.memory) {
    codecs->fail("at most the 'memory_bandwidth'");
  }
  const ConfigValue* launch = map.find("launch");
  figures.launch = launch != nullptr ? launch->duration() : kLaunch;
  const ConfigValue* wake = map.find("wake");
  figures.wake = wake != nullptr ? wake->duration() : kWake;
  if (const ConfigValue* memory = map.find("memory")) figures.memory_size = memory->bytes();
  return figures;
}

}  // namespace rackrail::topology

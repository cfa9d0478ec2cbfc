#include "plan/cost_model.hpp"

#include "plan/codecs/format.hpp"
#include "plan/device_class.hpp"

namespace rackrail::plan {
namespace {

// Codecs and additions do little arithmetic per byte, so they run at the speed of the memory. Of
// the peak, streaming kernels reach about 80 % (the share that the STREAM triad gets on these GPUs
// and on one core of a server).
constexpr double kSustainedShare = 0.8;

// Bytes that an addition reads and writes per FP32 element.
constexpr double kAdd = 4 + 4 + 4;

/// FP32 bytes of gradient per second when each element of 4 bytes moves `bytes_per_element`.
Bandwidth rate(Bandwidth memory, double bytes_per_element) {
  return scaled(memory, kSustainedShare * 4 / bytes_per_element);
}

}  // namespace

DeviceRates device_rates(std::string_view device_class) {
  const DeviceClass* device = find_device_class(device_class);
  if (device == nullptr) {
    device = find_device_class("cpu");
  }
  const Bandwidth memory = device->codec_memory;
  DeviceRates rates;
  for (const Codec& codec : all_codecs()) {
    const CodecTraffic traffic = codec_format(codec.kind).traffic(codec);
    rates.codecs[static_cast<std::size_t>(codec.kind)] = {rate(memory, traffic.encode),
                                                          rate(memory, traffic.decode_add)};
  }
  rates.reduce = rate(memory, kAdd);
  rates.launch = device->launch;
  rates.wake = device->wake;
  return rates;
}

}  // namespace rackrail::plan

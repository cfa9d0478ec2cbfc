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

DeviceRates device_rates(const topology::DeviceFigures& device) {
  const Bandwidth memory = device.codec_memory;
  DeviceRates rates;
  for (const Codec& codec : all_codecs()) {
    const CodecTraffic traffic = codec_format(codec.kind).traffic(codec);
    rates.codecs[static_cast<std::size_t>(codec.kind)] = {rate(memory, traffic.encode),
                                                          rate(memory, traffic.decode_add)};
  }
  rates.reduce = rate(memory, kAdd);
  rates.launch = device.launch;
  rates.wake = device.wake;
  return rates;
}

DeviceRates device_rates(std::string_view device_class) {
  const DeviceClass* likeliest = likeliest_device_class(device_class);
  return device_rates(likeliest != nullptr ? *likeliest : default_gpu());
}

CodecEffort codec_effort(const Codec& codec) {
  const CodecFormat& format = codec_format(codec.kind);
  const CodecTraffic own = format.traffic(codec);
  const CodecTraffic usual = format.traffic(Codec{.kind = codec.kind});
  return {.encode = own.encode / usual.encode, .decode = own.decode_add / usual.decode_add};
}

bool is_measured(const topology::Topology& topology, Rank rank) {
  const topology::Node& node = topology.node(topology.node_of(rank));
  return topology.measured_processor().has_value() &&
         &device_figures_of(node) == find_device_class("cpu");
}

DeviceRates device_rates(const topology::Topology& topology, Rank rank) {
  DeviceRates rates = device_rates(device_figures_of(topology.node(topology.node_of(rank))));
  if (!is_measured(topology, rank)) {
    return rates;
  }
  const auto& measured = topology.measured_processor();
  for (const Codec& codec : all_codecs()) {
    const auto found = measured->codecs.find(to_string(codec));
    if (found != measured->codecs.end()) {
      rates.codecs[static_cast<std::size_t>(codec.kind)] = {found->second.encode,
                                                            found->second.decode};
    }
  }
  rates.reduce = measured->reduce;
  rates.launch = measured->launch;
  rates.wake = {};
  return rates;
}

}  // namespace rackrail::plan

#include "plan/device_class.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "base/text.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {
namespace {

// Matrix rate and memory bandwidth are the peaks of the vendors' data sheets:
//   T4     NVIDIA T4 data sheet (2019): FP32 8.1 TFLOP/s, GDDR6 320 GB/s
//   V100   NVIDIA V100 data sheet (2020), SXM2: FP32 15.7 TFLOP/s, HBM2 900 GB/s
//   A10G   AWS EC2 G5 and NVIDIA A10 data sheet: TF32 70 TFLOP/s (dense), GDDR6 600 GB/s
//   A100   NVIDIA A100 data sheet (2021), SXM 40 GB: TF32 156 TFLOP/s (dense), HBM2 1,555 GB/s
//   H100   NVIDIA H100 data sheet (2023), SXM: TF32 494 TFLOP/s (dense), HBM3 3.35 TB/s
//   H200   NVIDIA H200 data sheet (2024), SXM: TF32 494 TFLOP/s (dense), HBM3e 4.8 TB/s
//   MI100  AMD Instinct MI100 data sheet (2020): FP32 matrix 46.1 TFLOP/s, HBM2 1,228.8 GB/s
//   MI250X AMD Instinct MI250X data sheet (2021), one of its two dies, which is what ROCm counts as
//          a GPU: FP32 matrix 47.9 TFLOP/s, HBM2e 1,638.4 GB/s
//   MI300X AMD Instinct MI300X data sheet (2023): TF32 653.7 TFLOP/s (dense), HBM3 5.3 TB/s
//   cpu    one socket of Intel Xeon Platinum 8358: 32 cores · 2.6 GHz · 2 AVX-512 FMA units
//          (64 FLOP per cycle) = 5.3 TFLOP/s; 8 channels of DDR4-3200 = 204.8 GB/s
// A GPU's codecs run on the whole device. On a CPU one thread per rank encodes and decodes while
// the other cores compute; a core sustains about one channel of the memory, 25.6 GB/s. A CUDA
// kernel starts 5 µs after its call, but of kernels that are queued one behind the other each costs
// about 1 µs beyond its work (A. Gray, "Getting Started with CUDA Graphs", NVIDIA 2019: kernels
// of 2.9 µs every 3.8 µs, and every 9.6 µs when each is waited for). On a CPU a call is a function
// call and a cold cache, 0.5 µs.
constexpr std::array kClasses{
    DeviceClass{"T4", 8.1, Bandwidth(320'000'000'000), Bandwidth(320'000'000'000), 1_us, 4_us},
    DeviceClass{"V100", 15.7, Bandwidth(900'000'000'000), Bandwidth(900'000'000'000), 1_us, 4_us},
    DeviceClass{"A10G", 70, Bandwidth(600'000'000'000), Bandwidth(600'000'000'000), 1_us, 4_us},
    DeviceClass{"A100", 156, Bandwidth(1'555'000'000'000), Bandwidth(1'555'000'000'000), 1_us,
                4_us},
    DeviceClass{"H100", 494, Bandwidth(3'350'000'000'000), Bandwidth(3'350'000'000'000), 1_us,
                4_us},
    DeviceClass{"H200", 494, Bandwidth(4'800'000'000'000), Bandwidth(4'800'000'000'000), 1_us,
                4_us},
    DeviceClass{"MI100", 46.1, Bandwidth(1'228'800'000'000), Bandwidth(1'228'800'000'000), 1_us,
                4_us},
    DeviceClass{"MI250X", 47.9, Bandwidth(1'638'400'000'000), Bandwidth(1'638'400'000'000), 1_us,
                4_us},
    DeviceClass{"MI300X", 653.7, Bandwidth(5'300'000'000'000), Bandwidth(5'300'000'000'000), 1_us,
                4_us},
    DeviceClass{"cpu", 5.3, Bandwidth(204'800'000'000), Bandwidth(25'600'000'000), 500_ns,
                Duration()},
};

}  // namespace

std::span<const DeviceClass> device_classes() { return kClasses; }

const DeviceClass* find_device_class(std::string_view name) {
  const auto found = std::find_if(kClasses.begin(), kClasses.end(), [name](const DeviceClass& c) {
    return is_same_in_any_case(c.name, name);
  });
  return found == kClasses.end() ? nullptr : &*found;
}

std::string_view device_class_name(std::string_view name) {
  const DeviceClass* known = find_device_class(name);
  return known == nullptr ? name : known->name;
}

void name_device_classes(topology::Topology& topology) {
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId id = topology.node_of(Rank(r));
    topology::Node node = topology.node(id);
    if (const std::string_view name = device_class_name(node.device_class);
        name != node.device_class) {
      node.device_class = std::string(name);
      topology.set_node_properties(id, node);
    }
  }
}

}  // namespace rackrail::plan

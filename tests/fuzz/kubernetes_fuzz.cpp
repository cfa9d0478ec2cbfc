#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      R"({"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"a","labels":{"fabric.topograph.run/tier-0":"l","fabric.topograph.run/tier-1":"s","nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3"}},"status":{"allocatable":{"nvidia.com/gpu":"8"},"images":[{"names":["x"]}]}},{"apiVersion":"v1","kind":"Node","metadata":{"name":"b","labels":{"network.topology.nvidia.com/leaf":"l2","nvidia.com/gpu.clique":"u.1"}},"status":{"allocatable":{"nvidia.com/gpu":"8"}}}]})",
      R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"a","labels":{"topology.k8s.aws/network-node-layer-1":"x","topology.k8s.aws/network-node-layer-2":"y"}},"status":{"allocatable":{"nvidia.com/gpu":"8"}}}
{"apiVersion":"v1","kind":"Node","metadata":{"name":"b","labels":{"nvidia.com/gpu.clique":"u.1"}},"status":{"allocatable":{"nvidia.com/gpu":"8"}}})"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_network_as("kubernetes", rackrail::fuzz::text_of(data, size));
  return 0;
}

#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "topology: [ Switch, Ring, FullyConnected ]\nnpus_count: [ 2, 3, 2 ]\n"
      "bandwidth: [ 400, 50, 1 ]\nlatency: [ 936.25, 1000, 0 ]\n",
      "5 2 4\n3 4\n0 3 100Gbps 1000ns 0\n1 3 100Gbps 1us 0\n2 4 1GB/s 0.001ms 0\n"
      "3 4 400Gbps 1us 0\n",
      "6 2 1 1 6 A100\n4 5\n0 4 2400Gbps 1ns 0\n1 4 2400Gbps 1ns 0\n2 5 1Gbps 1us 0\n"
      "3 5 1Gbps 1us 0\n0 5 1Gbps 1us 0\n1 5 1Gbps 1us 0\n\nprose\n",
      "Nodes 8\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 1\nRadix_Down 2\nRadix_Up 2\n"
      "Downlink_Latency_ns 5\nTier 1\nDownlink_speed_Gbps 2\nRadix_Down 2\nRadix_Up 2\n"
      "Bundle 1\nTier 2\nDownlink_speed_Gbps 4\nRadix_Down 2\nSwitch_Latency_ns 7\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const char* format : {"astra-sim", "hpcc", "htsim"}) {
    rackrail::fuzz::read_network_as(format, rackrail::fuzz::text_of(data, size));
  }
  return 0;
}

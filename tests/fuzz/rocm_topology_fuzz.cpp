#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "== Weight between two GPUs ==\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n"
      "== Hops between two GPUs ==\n GPU0 GPU1\nGPU0 0 1\nGPU1 1 0\n"
      "== Link Type between two GPUs ==\n GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n"
      "== Numa Nodes ==\nGPU[0] : (Topology) Numa Node: 0\nGPU[1] : (Topology) Numa Node: 1\n",
      "LINK TYPE TABLE:\n 0000:0c:00.0 0000:22:00.0\n0000:0c:00.0 SELF PCIE\n"
      "0000:22:00.0 PCIE SELF\nNUMA BW TABLE:\n 0000:0c:00.0 0000:22:00.0\n"
      "0000:0c:00.0 N/A 50000-50000\n0000:22:00.0 50000-50000 N/A\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_as("rocm-topo", rackrail::fuzz::text_of(data, size));
  return 0;
}

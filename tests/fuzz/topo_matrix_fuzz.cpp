#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "\x1b[4m\tGPU0\tGPU1\tGPU2\tNIC0\tmlx5_1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
      "GPU0\t X \tNV12\tSYS\tPIX\tSYS\t0-31\t0\t\tN/A\n"
      "GPU1\tNV12\t X \tSYS\tPXB\tSYS\t0-31\t0\t\tN/A\n"
      "GPU2\tSYS\tSYS\t X \tSYS\tNODE\t32-63\t1\t\tN/A\n"
      "NIC0\tPIX\tPXB\tSYS\t X \tPHB\nmlx5_1\tSYSSYS\tNODE\tPHB\t X \n"
      "Legend:\n  X = Self\nNIC Legend:\n  NIC0: mlx5_0\nGPU 0: NVIDIA A100\n",
      "GPU0 GPU1 GPU2 GPU3\nGPU0 X NV18 NV18 NV18\nGPU1 NV18 X NV18 NV18\n"
      "GPU2 NV18 NV18 X NV18\nGPU3 NV18 NV18 NV18 X\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_as("nvidia-topo", rackrail::fuzz::text_of(data, size));
  return 0;
}

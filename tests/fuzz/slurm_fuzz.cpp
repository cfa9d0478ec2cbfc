#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      R"(SwitchName=leaf1 Nodes=n[01-02,4]x[1-2] LinkSpeed=1
SwitchName=leaf2 Nodes=m
SwitchName=s Switches=leaf[1-2] # up
)",
      R"(BlockName=b1 Nodes=n[1-2]
BlockName=b2 \
 Nodes="n3, n4"
BlockSizes=2,4
)",
      R"(- topology: t
  cluster_default: true
  tree:
    switches:
    - {switch: a, nodes: "n[1-2]"}
    - {switch: b, children: a}
- topology: u
  block: {block_sizes: [1], blocks: [{block: c, nodes: x}]}
)"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_network_as("slurm", rackrail::fuzz::text_of(data, size));
  return 0;
}

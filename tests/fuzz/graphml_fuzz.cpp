#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {R"(<graphml><key id="d0" for="edge" attr.name="bandwidth"/>
<key id="d1" for="edge" attr.name="delay"/><key id="d2" for="node" attr.name="type"/>
<graph edgedefault="undirected"><node id="a"><data key="d2">host</data></node><node id="b"/>
<node id="gpu1"/><edge source="a" target="b"><data key="d0">1 GB/s</data><data key="d1">1 us</data>
</edge><edge source="b" target="gpu1" directed="true"><data key="d0">1 GB/s</data></edge>
<edge source="gpu1" target="b"><data key="d0">2 Mbit/s</data></edge></graph></graphml>)"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_as("graphml", rackrail::fuzz::text_of(data, size));
  return 0;
}

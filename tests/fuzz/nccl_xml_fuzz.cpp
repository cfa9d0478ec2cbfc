#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">
<pci busid="0000:01:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
<pci busid="0000:02:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"><gpu dev="0" sm="80" rank="0" gdr="1">
<nvlink target="0000:03:00.0" count="12" tclass="0x068000"/></gpu></pci>
<pci busid="0000:04:00.0" class="0x020000" link_speed="16 GT/s" link_width="16"><nic>
<net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic></pci>
</pci></cpu></system>)"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_as("nccl-xml", rackrail::fuzz::text_of(data, size));
  return 0;
}

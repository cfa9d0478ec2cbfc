#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {R"text(#
vendid=0x2c9
switchguid=0xa1(a1)
Switch	65 "S-a1"		# "MF0;leaf:MQM9701/U1" enhanced port 0 lid 1 lmc 0
[1]	"H-11"[1](11) 		# "n1 mlx5_0" lid 11 4xNDR
[2][ext 7]	"H-12"[1](12) 		# "n2 HCA-1 (Mellanox Technologies)" lid 12 4xHDR
[3]	"S-b1"[1]		# "spine" lid 3 2xNDR
[4]	"S-b1"[2]		# "spine" lid 3 4x???
[65]	"H-99"[1](99) 		# "Mellanox Technologies Aggregation Node" lid 9 4xNDR

caguid=0x11
Ca	1 "H-11"		# "n1 mlx5_0"
[1](11) 	"S-a1"[1]		# lid 11 lmc 0 "MF0;leaf:MQM9701/U1" lid 1 4xEDR
)text"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_network_as("ibnetdiscover", rackrail::fuzz::text_of(data, size));
  return 0;
}

#include "tests/fuzz/clusters.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "# "
      "directed\nsource,target,bandwidth,latency,kind,tier,overhead,receive_overhead,flow_"
      "bandwidth,"
      "burst,cpu_share,adapter\ngpu0,s,1 GB/s,1 us,uplink,up,1 us,2 us,1 MB/s,1 MB,0.5,mlx5_0\n"
      "s,gpu0,1 GB/s,1 us,uplink,up,1 us,2 us,1 MB/s,1 MB,0.5,\"a,\"\"b\"\n",
      "source,target,bandwidth,latency\na,b,1 GB/s,1 us\n\nvertex,role,kind,host,rack,device_class,"
      "memory,host_staging,multicasts,reduces\na,rank,gpu,h,r,A100,40 GB,1 GB/s,,\n"
      "b,rank,gpu,h,r,,,,,\nc,,nvswitch,h,,,,,true,true\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rackrail::fuzz::read_as("edge-list", rackrail::fuzz::text_of(data, size));
  return 0;
}

#include <string>

#include "sim/measured/debug_log.hpp"
#include "tests/fuzz/fuzz.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  return {
      "NCCL version 2.21.5+cuda12.4\n"
      "a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB e:1<0>\n"
      "a:1:2 [0] NCCL INFO Using network IB\n"
      "a:1:2 [0] NCCL INFO comm 0x5 rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0\n"
      "a:1:2 [0] NCCL INFO Channel 00/02 :    0   1\n"
      "a:1:2 [0] NCCL INFO Ring 00 : 1 -> 0 -> 1\n"
      "a:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1|-1->0->1/-1/-1 [1] -1->0->1/-1/-1\n"
      "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n"
      "a:1:2 [0] NCCL INFO 2 coll channels, 0 nvls channels, 2 p2p channels\n"
      "a:1:2 [0] NCCL INFO Pattern 4, crossNic 0, nChannels 1, bw 1.0/2.0, type NVL/PIX, s 1\n"
      "a:1:2 [0] NCCL INFO Latency/AlgBw | Tree/ LL | Ring/Simple |\n"
      "a:1:2 [0] NCCL INFO AllReduce | 1.0/ 2.0 | 3.0/4.0 |\n"
      "a:1:2 [0] NCCL INFO AllReduce: 64 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n"
      "[2025-06-27 15:04:20] a:1:2 [0] x.cc:1 NCCL WARN y\n",
      "a:1:2 [0] NCCL INFO Algorithm | Tree | Ring | NVLS |\na:1:2 [0] NCCL INFO Protocol | LL | "
      "LL128 | Simple | LL |\na:1:2 [0] NCCL INFO Reduce | 1/2 | 3/4 | 5/6 | 7/8 |\n"
      "a:1:2 [0] NCCL INFO comm:0x7f, nRanks:2, nNodes:1, coll channels:2 collnet channels:2\n"
      "a:1:2 [0] NCCL INFO 64 Bytes -> Algo 1 proto 2 time 3.5\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const sim::measured::DebugLog log = sim::measured::read_debug_log(fuzz::text_of(data, size));
  fuzz::require(log.understood <= log.lines, "more lines understood than read");
  for (const auto& [channel, ring] : log.rings) {
    fuzz::require(ring.ranks.size() <= log.ranks, "a ring of more ranks than there are");
  }
  return 0;
}

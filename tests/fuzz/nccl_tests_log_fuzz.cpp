#include <string>

#include "sim/measured/formats.hpp"
#include "tests/fuzz/fuzz.hpp"

std::vector<std::string> rackrail::fuzz::seeds() {
  const std::string ranks =
      "# nThread 1 nGpus 1 minBytes 8\n#  Rank  0 Group  0 Pid 7 on a device  0 [0x0a] H100\n"
      "#  Rank  1 Group  0 Pid 7 on b device  0 [0x0a] H100\n";
  const std::string header =
      "# out-of-place in-place\n# size count type redop root time algbw busbw #wrong time algbw "
      "busbw #wrong\n# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n";
  return {
      ranks + header +
          " 16777216 4194304 float sum -1 200.0 83.89 83.89 0 190.0 88.30 88.30 N/A\n"
          "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 86\n",
      "# Collective test starting: all_gather_perf_mpi\n" + ranks + header +
          "[1,0]<stdout>: 64 2 float none -1a:1:2 [0] NCCL INFO AllGather: 64 Bytes -> Algo RING "
          "proto LL channel{Lo..Hi}={0..0}\n 20.1 0.00 0.00 0a:1:2 [0] NCCL INFO x\n 20.0 0 0 0\n",
      "# bytes N type op time algbw busbw res\n# 64 16 float sum 0.01 0.00 0.00 N/A\n"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rackrail;
  const std::string content(fuzz::text_of(data, size));
  fuzz::accepted([&] {
    const sim::measured::Measurements read =
        sim::measured::read_nccl_tests_log("fuzzed.log", content);
    for (const sim::measured::Row& row : read.rows) {
      const sim::nccl::Measured& one = row.measurement;
      fuzz::require(one.nodes >= 1 && one.nodes * one.gpus_per_node >= 2, "a row of one GPU");
      fuzz::require(one.seconds > 0 && one.size.count() > 0, "a row without size or time");
    }
    fuzz::require(read.all_reduces().size() <= read.rows.size(), "more cases than rows");
  });
  return 0;
}

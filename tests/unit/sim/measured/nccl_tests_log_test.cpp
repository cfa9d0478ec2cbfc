#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "sim/measured/formats.hpp"
#include "sim/measured/measurements.hpp"

namespace rackrail::sim::measured::nccl_tests_log_test {

constexpr double kTime = 200e-6;

/// "#  Rank  0 Pid 7 on node0 device  0 [0x0a] NVIDIA H100" …
std::string ranks(int nodes, int gpus, const std::string& hash = "#  ", bool has_groups = false) {
  std::string text =
      "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor)\n#\n# Using devices\n";
  for (int rank = 0; rank < nodes * gpus; ++rank) {
    text += fmt::format(
        "{}Rank {:2}{} Pid {:6} on {:>10} device {:2} [0x{:02x}] NVIDIA H100 80GB HBM3\n", hash,
        rank, has_groups ? " Group  0" : "", 100 + rank, fmt::format("node{}", rank / gpus),
        rank % gpus, 16 + rank % gpus);
  }
  return text + "#\n";
}

constexpr const char* kPlaces =
    "#                                                      out-of-place                in-place\n";
const std::string kHeader = std::string(kPlaces) +
                            "#       size         count      type   redop    root     time   algbw "
                            "  busbw #wrong     time   "
                            "algbw   busbw #wrong\n"
                            "#        (B)    (elements)                               (us)  (GB/s) "
                            " (GB/s)            (us)  "
                            "(GB/s)  (GB/s)       \n";
const std::string kHeaderWithoutRoot = std::string(kPlaces) +
                                       "#       size         count      type   redop     time   "
                                       "algbw   busbw  error     time   algbw   "
                                       "busbw  error\n"
                                       "#        (B)    (elements)                       (us)  "
                                       "(GB/s)  (GB/s)            (us)  (GB/s)  "
                                       "(GB/s)       \n";

/// 16 MiB in 200 µs, 190 in place; busbw is `factor` of algbw.
std::string row(double factor, const std::string& middle, const std::string& error = "0",
                const std::string& last = "0") {
  const double algbw = 16777216 / 200e-6 * 1e-9;
  const double faster = 16777216 / 190e-6 * 1e-9;
  return fmt::format(
      "    16777216       4194304     float {}    200.0  {:.2f}  {:.2f}  {}   190.0  {:.2f}  "
      "{:.2f}  {}\n",
      middle, algbw, factor * algbw, error, faster, factor * faster, last);
}

const std::string kEnd = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 150.1\n#\n";

Measurements read(const std::string& content, const std::string& name = "x.log") {
  REQUIRE(format_of(content) == Format::kNcclTestsLog);
  return read_nccl_tests_log(name, content);
}

void check_one(const Measurements& read, std::size_t nodes, std::size_t gpus) {
  const std::vector<nccl::Measured> cases = read.all_reduces();
  REQUIRE(cases.size() == 1);
  CHECK(cases[0].nodes == nodes);
  CHECK(cases[0].gpus_per_node == gpus);
  CHECK(cases[0].size.count() == 16777216);
  CHECK(cases[0].seconds == Approx(kTime));
}

bool notes(const Measurements& read, const std::string& part) {
  for (const std::string& note : read.notes) {
    if (note.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST_CASE("columns are where the header says, in all versions", "[logs]") {
  const double factor = 2 * 15.0 / 16;
  for (const std::string hash : {"# ", "#  ", "#   ", "#    ", "#", ""}) {
    INFO(hash);
    check_one(read(ranks(2, 8, hash) + kHeader + row(factor, "sum -1") + kEnd), 2, 8);
    check_one(read(ranks(2, 8, hash) + kHeaderWithoutRoot + row(factor, "sum") + kEnd), 2, 8);
    check_one(read(ranks(2, 8, hash, true) + kHeader + row(factor, "sum -1") + kEnd), 2, 8);
  }
  const Measurements both = read(ranks(2, 8) + kHeader + row(factor, "sum -1") + kEnd);
  REQUIRE(both.rows.size() == 2);
  CHECK(both.rows[1].is_in_place);
  CHECK(both.rows[1].measurement.seconds == Approx(190e-6));
  CHECK(notes(both, "1 table without a name taken for all-reduce"));
}

TEST_CASE("nccl-tests 1 prints milliseconds, and no unit", "[logs]") {
  check_one(
      read("# Using devices\n#   Rank  0 on       host device  0 [0x05] GeForce RTX 2080 Ti\n"
           "#   Rank  1 on       host device  1 [0x06] GeForce RTX 2080 Ti\n\n"
           "#                                                 out-of-place                    "
           "in-place\n"
           "#      bytes             N    type      op     time  algbw  busbw      res     time  "
           "algbw  busbw      res\n"
           "    16777216       4194304   float     sum    0.200  83.89  83.89    0e+00    0.190  "
           "88.30  88.30    0e+00\n"),
      1, 2);
}

TEST_CASE("the tests of NCCL 1 list devices", "[logs]") {
  check_one(read("# Using devices\n#   Device  0 ->  0 [0x0a] GeForce GTX TITAN X\n"
                 "#   Device  1 ->  1 [0x09] GeForce GTX TITAN X\n"
                 "#      bytes             N    type      op     time  algbw  busbw      res\n"
                 "    16777216      16777216    char     sum    0.200  83.89  83.89    0e+00\n"),
            1, 2);
}

TEST_CASE("columns of other versions do not move the time", "[logs]") {
  const std::string header =
      std::string(kPlaces) +
      "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 "
      "i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv% timestamp\n"
      "# (B) (elements) (us) (GB/s) (GB/s) (us) (us) (us) (us) (GB/s)\n";
  const Measurements wide = read(
      ranks(1, 8) + header +
      "16777216 4194304 float sum -1 200.0 83.89 146.80 0 1 2 3 4 190.0 88.30 154.53 0 1 2 3 4 "
      "2025-01-01 12:00:00\n");
  check_one(wide, 1, 8);
  CHECK(wide.rows.at(1).measurement.seconds == Approx(190e-6));
  const Measurements in_place =
      read(ranks(1, 8) + "#    in-place\n# size count type redop root time algbw busbw #wrong\n" +
           "16777216 4194304 float sum -1 200.0 83.89 146.80 0\n");
  check_one(in_place, 1, 8);
  CHECK(in_place.rows.at(0).is_in_place);
  // Of old all-to-alls, where the cells are blank though the header has them.
  const Measurements blank = read(ranks(1, 8) + kHeader + row(0.875, "") + kEnd);
  REQUIRE(blank.rows.size() == 2);
  CHECK(blank.rows[0].operation == Operation::kAllToAll);
  CHECK(blank.rows[0].measurement.seconds == Approx(kTime));
}

TEST_CASE("prefixes, colours, carriage returns and lines of NCCL do not matter", "[logs]") {
  const std::string log = ranks(2, 8) + kHeader + row(1.875, "sum -1") + kEnd;
  for (const std::string tag :
       {"0: ", "[1,0]<stdout>:", "2024-05-01T10:00:00.5Z ", "[pod/launcher-x/launcher] ",
        "(head, rank=0, pid=3) [1,0]<stdout>:", "\x1b[36mbench-0 |\x1b[0m ", "unknown-prefix> "}) {
    INFO(tag);
    std::string tagged;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);) {
      tagged +=
          tag + line + "\r\n" + tag + "node0:100:117 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1\r\n";
    }
    check_one(read(tagged), 2, 8);
  }
}

TEST_CASE("a file may hold many tables, of other ranks and operations", "[logs]") {
  const Measurements many =
      read(ranks(1, 8) + kHeader + row(1.75, "sum -1") + kEnd + ranks(1, 4) + kHeader +
           row(1.5, "sum -1") + kEnd + ranks(2, 8) + kHeader + row(15.0 / 16, "sum -1") + kEnd +
           kHeader + row(15.0 / 16, "none -1") + kEnd + kHeader +
           row(15.0 / 16, "none -1", "0", "N/A") + kEnd + kHeader + row(1, "none 0") + kEnd);
  CHECK(many.all_reduces().size() == 2);
  CHECK(many.all_reduces()[0].gpus_per_node == 8);
  CHECK(many.all_reduces()[1].gpus_per_node == 4);
  CHECK(many.others() == std::map<Operation, std::size_t>{{Operation::kReduceScatter, 1},
                                                          {Operation::kAllGather, 1},
                                                          {Operation::kAllToAll, 1},
                                                          {Operation::kBroadcast, 1}});
}

TEST_CASE("the log's word for the operation counts more than figures", "[logs]") {
  const auto operation = [](const std::string& log, const std::string& name = "x.log") {
    return read(log, name).rows.at(0).operation;
  };
  const std::string small = "    64    16     float     sum      -1    20.0    0.00    0.00   0\n";
  CHECK(operation("# Collective test starting: reduce_scatter_perf\n" + ranks(1, 8) + kHeader +
                  small) == Operation::kReduceScatter);
  CHECK(operation("$ mpirun -np 8 ./build/all_reduce_perf -b 64 -e 64\n" + ranks(1, 8) + kHeader +
                  small) == Operation::kAllReduce);
  CHECK(operation("srun /opt/alltoall_perf_mpi\n" + ranks(1, 8) + kHeader +
                  row(0.875, "none -1")) == Operation::kAllToAll);
  // A command that the figures speak against is not this table's.
  CHECK(operation("srun /opt/all_gather_perf\n" + ranks(1, 8) + kHeader + row(1.75, "sum -1")) ==
        Operation::kAllReduce);
  // Of a small size the average has digits enough: 2 · 7/8 of 64 B / 20 µs.
  CHECK(operation(ranks(1, 8) + kHeader + small + "# Avg bus bandwidth    : 0.0056\n") ==
        Operation::kAllReduce);
  CHECK(operation(ranks(1, 8) + kHeader + small, "all-reduce.log") == Operation::kAllReduce);
  CHECK(operation(ranks(1, 8) + kHeader + small) == Operation::kUnknown);
  CHECK(operation(ranks(1, 8) + kHeader + small + kHeader + row(1.75, "sum -1")) ==
        Operation::kAllReduce);
}

TEST_CASE("what cannot be used is counted and named", "[logs]") {
  const std::string table = kHeader + row(1.875, "sum -1");
  const auto problem = [&](const std::string& list, const std::string& part) {
    const Measurements result = read(list + table);
    CHECK(result.rows.empty());
    CHECK(notes(result, "1 row left out: " + part));
  };
  problem("", "no '# Rank' lines");
  problem("#  Rank 71 Group  0 Pid 1 on h device  3 [0x01] NVIDIA GB200\n", "1 of 72 ranks");
  problem(ranks(1, 1), "one GPU only");
  problem(
      "# Rank 0 Pid 1 on a device 0 [0x0]\n# Rank 1 Pid 1 on a device 1 [0x1]\n"
      "# Rank 2 Pid 1 on b device 0 [0x0]\n",
      "3 GPUs on 2 hosts");
  const Measurements odd =
      read(ranks(2, 8) + kHeader + "some text\n" + row(1.875, "sum -1") +
           "    16777216       4194304     float     sum      -1    100.0  83.89  157.29  0\n" +
           "33554432 broken\n" + kEnd);
  CHECK(odd.all_reduces().size() == 1);
  CHECK(notes(odd, "2 lines in tables not understood"));
  CHECK(notes(odd, "1 row left out: time and algbw do not belong to the size"));
  CHECK(
      notes(read(ranks(2, 8) + kHeader + row(1.875, "sum -1", "12")), "1 row with wrong results"));
}

TEST_CASE("without a whole list of ranks NCCL's own lines count", "[logs]") {
  const Measurements said = read(
      "a:1:2 [0] NCCL INFO comm 0x5 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n" +
      kHeader + row(1.875, "sum -1"));
  check_one(said, 2, 8);
  CHECK(notes(said, "16 ranks on 2 hosts, as NCCL's own lines say"));
}

TEST_CASE("hosts are counted although somebody gave all one name", "[logs]") {
  std::string list;
  for (int rank = 0; rank < 16; ++rank) {
    list += fmt::format("#  Rank {:2} Group  0 Pid {} on xxxx device {:2} [0x{:02x}] NVIDIA H100\n",
                        rank, rank, rank % 8, rank % 8);
  }
  const Measurements hidden = read(list + kHeader + row(1.875, "sum -1"));
  check_one(hidden, 2, 8);
  CHECK(notes(hidden, "taken for 2 hosts"));
}

TEST_CASE("processes without MPI measured alone, groups at the same time", "[logs]") {
  std::string list;
  for (int process = 0; process < 2; ++process) {
    for (int rank = 0; rank < 4; ++rank) {
      list += fmt::format("# Rank {} Group 0 Pid {} on h{} device {} [0x0{}] T4\n", rank, process,
                          process, rank, rank);
    }
  }
  const Measurements alone = read(list + kHeader + row(1.5, "sum -1") + row(1.5, "sum -1"));
  CHECK(alone.all_reduces().size() == 2);
  CHECK(alone.all_reduces()[0].nodes == 1);
  CHECK(alone.all_reduces()[0].gpus_per_node == 4);
  CHECK(notes(alone, "without MPI"));
  list.clear();
  for (int rank = 0; rank < 16; ++rank) {
    list += fmt::format("# Rank {} Group {} Pid 1 on h{} device {} [0x0{}] H100\n", rank, rank % 8,
                        rank / 8, rank % 8, rank % 8);
  }
  const Measurements groups = read(list + kHeader + row(1, "sum -1"));
  check_one(groups, 2, 1);
  CHECK(notes(groups, "8 groups of 2 ranks ran at the same time"));
}

TEST_CASE("what NCCL says that it chose is taken for the row", "[logs]") {
  const Measurements chosen =
      read(ranks(2, 8) + kHeader +
           "node0:100:117 [0] NCCL INFO AllReduce: 16777216 Bytes -> Algo RING proto LL128 "
           "channel{Lo..Hi}={0..15}\n" +
           row(1.875, "sum -1") + kEnd + ranks(2, 8) + kHeader +
           "node0:100:117 [0] NCCL INFO 16777216 Bytes -> Algo 0 proto 2 time 34.6\n" +
           row(1.875, "sum -1") + kEnd);
  REQUIRE(chosen.all_reduces().size() == 2);
  CHECK(chosen.has_logged_choice);
  CHECK(chosen.all_reduces()[0].choice.algorithm == nccl::Algorithm::kRing);
  CHECK(chosen.all_reduces()[0].choice.protocol == nccl::Protocol::kLl128);
  CHECK(chosen.all_reduces()[1].choice.algorithm == nccl::Algorithm::kTree);
  CHECK(chosen.all_reduces()[1].choice.protocol == nccl::Protocol::kSimple);
}

TEST_CASE("formats are told by content", "[logs]") {
  CHECK(format_of("gpus,size_bytes,time_us\n2,1048576,50\n") == Format::kCsv);
  CHECK(format_of("\n# x\n{\"name\": \"allreduce\"}\n") == Format::kJsonLines);
  CHECK(format_of("h:1:2 [0] NCCL INFO Using network IB\n") == Format::kNcclDebugLog);
  CHECK(format_of("h:1:2 [0] NCCL INFO x\n" + kHeader) == Format::kNcclTestsLog);
  CHECK(format_of("name: cluster\nracks: { count: 2 }\n") == Format::kCsv);
}

}  // namespace rackrail::sim::measured::nccl_tests_log_test

#include "sim/measured/debug_log.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

namespace rackrail::sim::measured::debug_log_test {

using Ranks = std::vector<std::size_t>;

TEST_CASE("a log of NCCL 2.21 on two hosts", "[logs]") {
  std::string text = "NCCL version 2.21.5+cuda12.4\n";
  for (int rank = 0; rank < 4; ++rank) {
    const std::string at =
        fmt::format("{}: h{}:10{}:20{} [{}] NCCL INFO ", rank, rank / 2, rank, rank, rank % 2);
    text +=
        at + "NCCL_IB_HCA set by environment to mlx5.\n" + at +
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>\n" + at +
        "Using network IB\n" + at +
        fmt::format(
            "ncclCommInitRank comm 0x5 rank {} nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId "
            "0xab - Init START\n",
            rank) +
        at +
        fmt::format("comm 0x5 rank {} nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0\n", rank);
    if (rank == 0) {
      text += at + "Channel 00/02 :    0   1   2   3\n" + at + "Channel 01/02 :    0   3   2   1\n";
    }
    const char* trees[] = {
        "Trees [0] 1/2/-1->0->-1 [1] 1/-1/-1->0->2", "Trees [0] -1/-1/-1->1->0 [1] -1/-1/-1->1->0",
        "Trees [0] 3/-1/-1->2->0 [1] 3/0/-1->2->-1", "Trees [0] -1/-1/-1->3->2 [1] -1/-1/-1->3->2"};
    text += at + trees[rank] + "\n" + at +
            fmt::format("Channel 00/0 : {}[0] -> {}[1] via P2P/CUMEM/read\n", rank, rank ^ 1) + at +
            fmt::format("Channel 00/0 : {}[0] -> {}[1] [receive] via NET/IB/0/GDRDMA\n", rank ^ 2,
                        rank) +
            at +
            fmt::format("Channel 01/0 : {}[0] -> {}[1] [send] via NET/IB/1/GDRDMA/Shared\n", rank,
                        rank ^ 2) +
            at + "Connected all rings\n" + at +
            "2 coll channels, 0 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels "
            "per peer\n" +
            at +
            fmt::format(
                "ncclCommInitRank comm 0x5 rank {} nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId "
                "0xab - Init COMPLETE\n",
                rank);
  }
  text += "0: h0:100:200 [0] misc/ibvwrap.cc:100 NCCL WARN Call to ibv_x failed\n";
  const DebugLog log = read_debug_log(text);
  CHECK(log.version == "NCCL 2.21.5+cuda12.4");
  CHECK(log.ranks == 4);
  CHECK(log.nodes == 2);
  CHECK(log.hosts == std::set<std::string>{"h0", "h1"});
  CHECK(log.ranks_that_wrote.size() == 4);
  CHECK(log.communicators == 1);
  REQUIRE(log.rings.size() == 2);
  CHECK(log.rings.at(1).ranks == Ranks{0, 3, 2, 1});
  REQUIRE(log.trees.size() == 2);
  CHECK_FALSE(log.trees.at(0).at(0).parent);
  CHECK(log.trees.at(0).at(0).children == Ranks{1, 2});
  CHECK(log.trees.at(1).at(0).parent == 2U);
  CHECK(log.networks == std::set<std::string>{"IB"});
  CHECK(log.nics == std::set<Nic>{{"mlx5_0", "IB"}, {"mlx5_1", "RoCE"}});
  CHECK(log.connections ==
        std::map<std::string, std::size_t>{{"NET/IB/GDRDMA", 4}, {"P2P/CUMEM", 4}});
  CHECK(log.connections_with_gdr() == 4);
  CHECK(log.connections_without_gdr() == 0);
  REQUIRE(log.channels);
  CHECK(log.channels->collective == 2);
  CHECK(log.channels->nvls == 0U);
  CHECK(log.channels->peer_to_peer == 4U);
  CHECK(log.environment.at("NCCL_IB_HCA") == "mlx5");
  CHECK(log.warnings == std::vector<std::string>{"Call to ibv_x failed"});
  CHECK(log.understood == log.lines);
}

TEST_CASE("spellings of earlier versions", "[logs]") {
  // 2.4: trees up first, rings as "Ring", nvmlDev in brackets.
  const DebugLog first = read_debug_log(
      "h:1:2 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
      "h:1:2 [0] NCCL INFO Channel 00 :    0   1   2\n"
      "h:1:2 [0] NCCL INFO Ring 00 : 2 -> 0 [receive] via NET/Socket/0\n"
      "h:1:2 [0] NCCL INFO Ring 00 : 0 -> 1 [send] via NET/Socket/0\n"
      "h:1:2 [0] NCCL INFO Ring 00 : 0[0] -> 1[1] via direct shared memory\n"
      "h:1:2 [0] NCCL INFO Trees [0] -1->0->1/2/-1\n"
      "h:1:2 [0] NCCL INFO comm 0x7 rank 0 nranks 3 cudaDev 0 nvmlDev 0 - Init COMPLETE\n");
  CHECK(first.ranks == 3);
  CHECK(first.nodes == 0);
  CHECK(first.rings.at(0).ranks == Ranks{0, 1, 2});
  CHECK(first.trees.at(0).at(0).children == Ranks{1, 2});
  CHECK_FALSE(first.trees.at(0).at(0).parent);
  CHECK(first.nics == std::set<Nic>{{"eth0", "Socket"}});
  CHECK(first.connections == std::map<std::string, std::size_t>{{"NET/Socket", 1}, {"SHM", 1}});
  CHECK(first.connections_without_gdr() == 1);
  CHECK(first.communicators == 1);
  // 2.6: both directions of a tree.
  const DebugLog second = read_debug_log(
      "h:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1|-1->0->1/-1/-1 [1] "
      "-1/-1/-1->0->1|1->0->-1/-1/-1\n"
      "h:1:2 [0] NCCL INFO comm 0x7 rank 0 nranks 2 cudaDev 0 busId 7 - Init COMPLETE\n");
  CHECK(second.trees.at(0).at(0).children == Ranks{1});
  CHECK(second.trees.at(1).at(0).parent == 1U);
}

TEST_CASE("RCCL and other networks", "[logs]") {
  const DebugLog log = read_debug_log(
      "RCCL version : 2.22.3-develop:abc\n"
      "h:1:2 [0] NCCL INFO NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)\n"
      "h:1:2 [0] NCCL INFO Using network AWS Libfabric\n"
      "h:1:2 [0] NCCL INFO Channel 00/64 :    0    1 comm 0x7f nRanks 02 busId c1000\n"
      "h:1:2 [0] NCCL INFO Channel 03 : 1[c1000] -> 0[c1000] [send] via NET/AWS Libfabric/1/GDRDMA "
      "comm "
      "0x7f nRanks 02\n"
      "h:1:2 [0] NCCL INFO Connected all rings comm 0x7f nRanks 02 busId c1000\n"
      "h:1:2 [0] NCCL INFO comm:0x7f, nRanks:2, nNodes:1, coll channels:2 collnet channels:2, nvls "
      "channels:0, p2p channels:4, p2p channels per peer:2\n"
      "h:1:2 [0] NCCL INFO NVLS multicast support is not available on dev 0\n");
  CHECK(log.version == "RCCL 2.22.3-develop:abc");
  CHECK(log.ranks == 2);
  CHECK(log.nodes == 1);
  CHECK(log.rings.at(0).ranks == Ranks{0, 1});
  CHECK(log.networks == std::set<std::string>{"AWS Libfabric"});
  CHECK(log.nics == std::set<Nic>{{"cxi", "libfabric"}});
  CHECK(log.connections == std::map<std::string, std::size_t>{{"NET/AWS Libfabric/GDRDMA", 1}});
  CHECK(log.channels->collective == 2);
  CHECK(log.channels->peer_to_peer == 4U);
  CHECK(log.has_multicast == false);
}

TEST_CASE("what NCCL chose, by number and by name", "[logs]") {
  const auto old = parse_chosen("1048576 Bytes -> Algo 1 proto 2 time 34.693867");
  REQUIRE(old);
  CHECK(old->operation == Operation::kUnknown);
  CHECK(old->algorithm == "ring");
  CHECK(old->protocol == "simple");
  CHECK(old->estimate_us == Approx(34.693867));
  const auto now =
      parse_chosen("ReduceScatter: 4096 Bytes -> Algo NVLS_TREE proto LL channel{Lo..Hi}={0..15}");
  REQUIRE(now);
  CHECK(now->operation == Operation::kReduceScatter);
  CHECK(now->algorithm == "nvls-tree");
  CHECK(now->channels == 16U);
  CHECK_FALSE(parse_chosen("4096 Bytes -> Algo"));
  CHECK_FALSE(parse_chosen("many Bytes -> Algo 1 proto 2 time 3"));
  const DebugLog log = read_debug_log(
      "h:1:2 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n"
      "h:1:2 [0] NCCL INFO AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}\n"
      "h:1:2 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1}\n");
  REQUIRE(log.chosen.size() == 2);
  CHECK(log.chosen[0].times == 2);
}

TEST_CASE("the tuning table of both layouts", "[logs]") {
  const auto cell = [](const DebugLog& log, Operation operation, const std::string& algorithm,
                       const std::string& protocol) {
    for (const TuningCell& one : log.tuning) {
      if (one.operation == operation && one.algorithm == algorithm && one.protocol == protocol) {
        return std::pair(one.latency_us, one.bandwidth_GBps);
      }
    }
    return std::pair(-1.0, -1.0);
  };
  const DebugLog wide = read_debug_log(
      "h:1:2 [0] NCCL INFO Latency/AlgBw |    Tree/    LL |    Tree/ LL128 |    Ring/Simple |\n"
      "h:1:2 [0] NCCL INFO  Max NThreads |            512 |            640 |            512 |\n"
      "h:1:2 [0] NCCL INFO     AllReduce |     6.4/   2.1 |     8.2/   3.2 |    12.5/   9.8 |\n");
  CHECK(cell(wide, Operation::kAllReduce, "tree", "ll128") == std::pair(8.2, 3.2));
  CHECK(cell(wide, Operation::kAllReduce, "ring", "simple") == std::pair(12.5, 9.8));
  const DebugLog blocks = read_debug_log(
      "h:1:2 [0] NCCL INFO   Algorithm   |                  Tree                  |        Ring    "
      "  |  CollNetDirect |\n"
      "h:1:2 [0] NCCL INFO   Protocol    |   LL |  LL128 | Simple |  LL |  LL128 | Simple | LL | "
      "LL128 | Simple |\n"
      "h:1:2 [0] NCCL INFO  Max NThreads |  512 |    640 |    512 | 512 |  640 | 512 | 0 | 0 | 640 "
      "|\n"
      "h:1:2 [0] NCCL INFO ReduceScatter | 0.0/0.0 | 0.0/0.0 | 0.0/0.0 | 7.1/2.0 | 9.1/3.0 | "
      "11.1/4.0 | 0/0 | 0/0 | 0/0 |\n"
      "h:1:2 [0] NCCL INFO   Algorithm   |  CollNetChain | NVLS | NVLSTree |\n"
      "h:1:2 [0] NCCL INFO   Protocol    |   LL |  LL128 | Simple |  LL |  LL128 | Simple | LL | "
      "LL128 | Simple |\n"
      "h:1:2 [0] NCCL INFO ReduceScatter | 0/0 | 0/0 | 0/0 | 0/0 | 0/0 | 24.0/99.5 | 0/0 | 0/0 | "
      "0/0 |\n");
  CHECK(cell(blocks, Operation::kReduceScatter, "ring", "ll128") == std::pair(9.1, 3.0));
  CHECK(cell(blocks, Operation::kReduceScatter, "nvls", "simple") == std::pair(24.0, 99.5));
}

TEST_CASE("rings of many ranks are whole where each rank tells its place", "[logs]") {
  std::string text = "h:1:2 [0] NCCL INFO Channel 00/01 :";
  for (int rank = 0; rank < 20; ++rank) {
    text += fmt::format(" {:3}", rank);
  }
  text += "\n";
  for (int rank = 0; rank < 24; ++rank) {
    text += fmt::format(
        "h:1:{} [0] NCCL INFO comm 0x5 rank {} nRanks 24 nNodes 3 localRanks 8 localRank 0\n", rank,
        rank);
  }
  const DebugLog cut = read_debug_log(text);
  CHECK_FALSE(cut.rings.at(0).is_whole);
  for (int rank = 0; rank < 24; ++rank) {
    text += fmt::format("h:1:{} [0] NCCL INFO Ring 00 : {} -> {} -> {}\n", rank, (rank + 23) % 24,
                        rank, (rank + 1) % 24);
  }
  const DebugLog whole = read_debug_log(text);
  CHECK(whole.rings.at(0).is_whole);
  CHECK(whole.rings.at(0).ranks.size() == 24);
  CHECK(whole.rings.at(0).ranks.back() == 23);
}

TEST_CASE("of several communicators the largest counts", "[logs]") {
  const DebugLog log = read_debug_log(
      "h:1:2 [0] NCCL INFO comm 0x5 rank 0 nRanks 4 nNodes 1 localRanks 4 localRank 0\n"
      "h:1:2 [0] NCCL INFO Channel 00/02 :    0   1   2   3\n"
      "h:1:2 [0] NCCL INFO Trees [0] 1/-1/-1->0->-1\n"
      "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 4 commId 0x1 - Init COMPLETE\n"
      "h:1:2 [0] NCCL INFO comm 0x6 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0\n"
      "h:1:2 [0] NCCL INFO Channel 00/04 :    0   1\n"
      "h:1:2 [0] NCCL INFO Trees [0] -1/-1/-1->0->1\n"
      "h:1:2 [0] NCCL INFO ncclCommSplit comm 0x6 rank 0 nranks 2 commId 0x2 - Init COMPLETE\n");
  CHECK(log.ranks == 4);
  CHECK(log.communicators == 2);
  CHECK(log.rings.at(0).ranks == Ranks{0, 1, 2, 3});
  CHECK(log.trees.at(0).at(0).children == Ranks{1});
}

}  // namespace rackrail::sim::measured::debug_log_test

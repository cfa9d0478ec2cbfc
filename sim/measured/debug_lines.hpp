// Single lines of NCCL's debug log, without "host:pid:tid [device] NCCL INFO". Each function takes
// the spellings of all versions and gives nothing for other lines.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/measured/debug_log.hpp"

namespace rackrail::sim::measured {

inline constexpr std::size_t kRanksPrinted = 20;  ///< of a ring, at most

/// "ncclCommInitRank comm 0x5 rank 1 nranks 16 cudaDev 1 … commId 0xc1 - Init COMPLETE",
/// "comm 0x5 rank 1 nRanks 16 nNodes 2 localRanks 8 …", "comm:0x2, nRanks:2, nNodes:1, …".
struct CommunicatorLine {
  std::size_t ranks = 0;
  std::optional<std::size_t> rank;
  std::size_t nodes = 0;  ///< 0: not said
  std::string id;         ///< empty: not said
  bool is_complete = false;
};
std::optional<CommunicatorLine> parse_communicator(std::string_view text);

/// "Channel 00/24 :    0   1   2   3", with its channel.
std::optional<std::pair<std::size_t, Ring>> parse_ring(std::string_view text);

/// "Ring 00 : 3 -> 0 -> 1": of one rank.
struct RingPlace {
  std::size_t channel = 0;
  std::size_t rank = 0;
  std::size_t next = 0;
};
std::optional<RingPlace> parse_ring_place(std::string_view text);

/// "Trees [0] 1/-1/-1->0->-1 [1] …"; of 2.5 to 2.7 with "|-1->0->1/-1/-1" behind, of 2.4
/// "[0] -1->0->1/-1/-1".
struct TreePlace {
  std::size_t channel = 0;
  std::size_t rank = 0;
  TreeNode node;
};
std::vector<TreePlace> parse_trees(std::string_view text);

/// "24 coll channels, 0 collnet channels, 16 nvls channels, 32 p2p channels, …", of RCCL
/// "… coll channels:2 collnet channels:2, …".
std::optional<ChannelCounts> parse_channels(std::string_view text);

std::optional<Pattern> parse_pattern(std::string_view text);

/// "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE ; OOB eth0:…", "NET/Socket : Using
/// [0]eth0:10.0.0.1<0>", "NET/OFI Selected Provider is efa (found 4 nics)".
std::vector<Nic> parse_nics(std::string_view text);

/// Of "Channel 00/0 : 15[7] -> 0[0] [send] via NET/IB/0/GDRDMA/Shared": "NET/IB/GDRDMA".
std::optional<std::string> parse_transport(std::string_view text);

/// "nvls-tree" for "NVLSTree", "NVLS_TREE" and 5; "ll128" for "LL128" and 1. As they are where they
/// are not known.
std::string algorithm_name(std::string_view word);
std::string protocol_name(std::string_view word);

/// The table of latencies and bandwidths, which comes in several lines.
class TuningTable {
 public:
  /// The cells of a row; none for heads and for other lines.
  std::vector<TuningCell> read(std::string_view text);

 private:
  struct Column {
    std::string algorithm;
    std::string protocol;
  };
  std::vector<std::string> algorithms_;
  std::vector<Column> columns_;
};

}  // namespace rackrail::sim::measured

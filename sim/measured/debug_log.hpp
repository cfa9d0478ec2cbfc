// What NCCL (or RCCL) says of itself with NCCL_DEBUG=INFO, of versions 2.4 to 2.30.
//
// NCCL_DEBUG_SUBSYS decides how much there is: INIT has ranks, rings, trees, channels and the
// network; NET and P2P the connections; GRAPH the searched patterns; TUNING the table of latencies
// and bandwidths, and what was chosen for each size. Of several communicators in a file, rings,
// trees and channels are those of the largest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/measured/operation.hpp"

namespace rackrail::sim::measured {

struct Ring {
  std::vector<std::size_t> ranks;  ///< from rank 0 on
  bool is_whole = true;            ///< false: NCCL prints the first 20 ranks only
};

/// One rank's place in a tree.
struct TreeNode {
  std::vector<std::size_t> children;
  std::optional<std::size_t> parent;  ///< none: the root
};

/// "NET/IB : Using [0]mlx5_0:1/IB".
struct Nic {
  std::string name;
  std::string kind;  ///< "IB", "RoCE", "Socket", …
  auto operator<=>(const Nic&) const = default;
};

/// What ran for one size.
struct Chosen {
  Operation operation = Operation::kUnknown;  ///< before 2.22 the log does not say
  std::int64_t bytes = 0;
  std::string algorithm;  ///< "ring", "tree", "nvls", "collnet-direct" …
  std::string protocol;   ///< "ll", "ll128", "simple"
  std::optional<std::size_t> channels;
  std::optional<double> estimate_us;  ///< NCCL's own
  std::size_t times = 1;              ///< how often
};

/// A pattern that NCCL searched: "Pattern 4, crossNic 0, nChannels 12, bw 20.0/20.0, type NVL/PIX".
struct Pattern {
  std::string name;  ///< "ring", "balanced tree", …
  std::size_t channels = 0;
  double intra_GBps = 0;  ///< per channel
  double inter_GBps = 0;
  std::string paths;  ///< inside and between hosts, as "NVL/PIX"
  auto operator<=>(const Pattern&) const = default;
};

/// A cell of the tuning table. Bandwidth 0: not used.
struct TuningCell {
  Operation operation = Operation::kUnknown;
  std::string algorithm;
  std::string protocol;
  double latency_us = 0;
  double bandwidth_GBps = 0;
};

struct ChannelCounts {
  std::size_t collective = 0;
  std::optional<std::size_t> collnet, nvls, peer_to_peer;
};

struct DebugLog {
  std::size_t lines = 0;       ///< of NCCL
  std::size_t understood = 0;  ///< of these
  std::string version;         ///< "NCCL 2.21.5+cuda12.4"; empty: not said
  std::size_t ranks = 0;       ///< of the largest communicator; 0: not said
  std::size_t nodes = 0;       ///< its hosts, by NCCL's count or by the names seen; 0: not said
  std::size_t communicators = 0;
  std::set<std::string> hosts;             ///< that wrote lines
  std::set<std::size_t> ranks_that_wrote;  ///< of the largest communicator
  std::optional<ChannelCounts> channels;
  std::map<std::size_t, Ring> rings;                             ///< by channel
  std::map<std::size_t, std::map<std::size_t, TreeNode>> trees;  ///< by channel and rank
  std::set<std::string> networks;  ///< "IB", "Socket", "AWS Libfabric"
  std::set<Nic> nics;
  std::map<std::string, std::size_t> connections;  ///< by transport: "P2P/CUMEM", "NET/IB/GDRDMA"
  std::optional<bool> has_multicast;               ///< NVLS
  std::set<std::string> gdr_disabled;  ///< HCAs for which the log says that GPUDirect RDMA is off
  std::set<std::string> gdr_enabled;
  std::vector<Pattern> patterns;
  std::vector<TuningCell> tuning;
  std::vector<Chosen> chosen;                      ///< by operation and size
  std::map<std::string, std::string> environment;  ///< NCCL_… that were set
  std::vector<std::string> warnings;               ///< different ones, at most kMostWarnings

  static constexpr std::size_t kMostWarnings = 8;
  /// Connections over a network with and without GPUDirect RDMA.
  std::size_t connections_with_gdr() const;
  std::size_t connections_without_gdr() const;
};

/// Whether NCCL wrote some of the lines.
bool is_debug_log(std::string_view content);

/// Ranks, channels and sizes above a million are not taken. Never throws for what is in the text.
DebugLog read_debug_log(std::string_view content);

/// "AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}", or of earlier
/// versions "1048576 Bytes -> Algo 1 proto 2 time 34.7".
std::optional<Chosen> parse_chosen(std::string_view text);

}  // namespace rackrail::sim::measured

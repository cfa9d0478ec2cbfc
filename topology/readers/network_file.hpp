// What a file about the network between machines says, whatever its format, and the Topology that
// it makes.
//
// Such files name hosts, switches and how they hang together. They seldom say what is inside a
// host, some say no rates, and few say latencies. An overlay adds these: `host` is a node type,
// of which every host then is one, and `tiers` are link properties by tier. Without `host` each
// host is one rank.
//
// Tiers: `nic` from host to switch, `rack-uplink` from the lowest switches to those above, `core`
// from these upward, then `core2` and so on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology {

/// Hosts and switches that a network file may name: more than any cluster has.
inline constexpr std::size_t kMostNetworkNames = 65'536;

struct NetworkHost {
  std::string name;
  std::string device_class;          ///< of its GPUs; empty if the file does not tell
  std::optional<std::int64_t> gpus;  ///< if the file tells
};

struct NetworkSwitch {
  std::string name;
  int level = 0;         ///< 0: hosts hang on it; 1: above these; and so on
  bool reduces = false;  ///< adds and multicasts (SHARP)
};

/// Between a host and a switch, by their places in the lists of NetworkFile.
struct HostCable {
  std::size_t host = 0;
  std::size_t to = 0;
  std::string adapter;  ///< its name in the host; empty if the file does not tell
  std::optional<Bandwidth> bandwidth;
  std::optional<Duration> latency;
};

/// Parallel cables between two switches.
struct SwitchCable {
  std::size_t lower = 0;
  std::size_t upper = 0;
  int count = 1;
  std::optional<Bandwidth> bandwidth;  ///< of each
  std::optional<Duration> latency;
};

struct NetworkFile {
  std::vector<NetworkHost> hosts;  ///< in the order of ranks
  std::vector<NetworkSwitch> switches;
  /// One per adapter where the file shows adapters. Otherwise one per host, which stands for all
  /// of its NICs.
  std::vector<HostCable> host_cables;
  std::vector<SwitchCable> switch_cables;
  bool shows_adapters = false;
  std::vector<std::string> notes;
};

/// Hosts that are close to each other, where a file names no switches.
struct HostGroup {
  std::string name;
  std::vector<std::string> hosts;
};

/// A switch for each group, and one above all, `network`, where there are several groups.
NetworkFile network_of_groups(const std::vector<HostGroup>& groups);

/// 0: `nic`. 1: `rack-uplink`, of links up to switches of level 1 (or among those of level 0).
/// 2: `core`, and so on.
std::string tier_name(int tier);
/// The tier of links between switches of these levels.
int uplink_tier(int lower_level, int upper_level);

/// Level by distance to the nearest host, of those that leave_out_odd_hosts() leaves.
void set_levels_by_distance(NetworkFile& network);

/// Takes out the hosts without a cable and, where most hosts have four or more, those with at most
/// half of these (managers of the fabric, storage). Says so in a note.
void leave_out_odd_hosts(NetworkFile& network);

/// An order of names in which numbers count as such: mlx5_9 before mlx5_10.
bool is_before_by_numbers(std::string_view a, std::string_view b);

/// "a, b, c and 4 more".
std::string listed(const std::vector<std::string>& names, std::size_t most = 3);

/// Makes the Topology, with the overlay and the rates of `options`. Throws ConfigError where a tier
/// has no rate, where a name stands for two things, and where adapters and NICs do not match.
ReadResult build_network(const std::filesystem::path& path, NetworkFile network,
                         const ReadOptions& options);

}  // namespace rackrail::topology

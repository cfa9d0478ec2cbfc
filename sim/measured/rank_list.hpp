// The list of ranks that nccl-tests prints before a table, and the machine that it describes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rackrail::sim::measured {

/// "#  Rank  3 Group  0 Pid   1890 on   node1 device  3 [0000:99:00] NVIDIA H100"; of NCCL 1
/// "#   Device  3 ->  3 [0x05] GeForce GTX TITAN X".
struct ListedRank {
  std::size_t rank = 0;
  std::size_t group = 0;  ///< ranks of a group communicate with each other only
  std::string host;       ///< empty where the line names none
  std::string device;     ///< its number and its bus id
};

/// None for other lines.
std::optional<ListedRank> parse_rank(std::string_view line);

struct ListedMachine {
  std::size_t ranks = 0;  ///< of one communicator; 0: the list is not whole
  std::size_t nodes = 0;  ///< each with as many of the ranks
  std::string problem;    ///< why rows of this machine are of no use; empty: they are
  std::vector<std::string> notes;
};

ListedMachine machine_of(const std::vector<ListedRank>& list);

}  // namespace rackrail::sim::measured

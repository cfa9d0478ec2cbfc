// What ibnetdiscover prints of an InfiniBand fabric.
//
//   vendid=0x2c9
//   switchguid=0xa1(a1)
//   Switch  65 "S-00000000000000a1"   # "MF0;leaf-1:MQM9701/U1" enhanced port 0 lid 1 lmc 0
//   [1]     "H-0000000000000011"[1](11)   # "node-01 mlx5_0" lid 11 4xNDR
//
// and the same from the other end:
//
//   Ca      1 "H-0000000000000011"    # "node-01 mlx5_0"
//   [1](11) "S-00000000000000a1"[1]       # lid 11 lmc 0 "MF0;leaf-1:MQM9701/U1" lid 1 4xNDR
//
// The first number in brackets is a port of the block's device, the second one of the device at
// the other end of the cable. Chassis output (-g) has [ext N] after port numbers.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace rackrail::topology {

struct IbDevice {
  enum class Kind { kSwitch, kAdapter, kRouter };
  Kind kind = Kind::kSwitch;
  std::string id;           ///< "S-00000000000000a1"
  std::string description;  ///< of its own block, else as others call it
  std::size_t line = 0;     ///< of its block; 0: it has none
};

/// One line about a cable, as the device `from` sees it.
struct IbPortLine {
  std::size_t from = 0;  ///< places in IbFabric::devices
  std::size_t to = 0;
  int from_port = 0;
  int to_port = 0;
  std::optional<Bandwidth> rate;  ///< of data; none where the width or speed is unknown
  std::string speed;              ///< "4xNDR"; empty if the line has none
  std::size_t line = 0;
};

struct IbFabric {
  std::vector<IbDevice> devices;  ///< in the order of first mention
  std::vector<IbPortLine> ports;
};

/// Data rate of "4xNDR": without what 8b/10b and 64b/66b codes and parity take.
std::optional<Bandwidth> ib_rate(std::string_view speed);

/// Throws ConfigError with file and line for what is none of these lines.
IbFabric parse_ibnetdiscover(const std::string& file, std::string_view content);

}  // namespace rackrail::topology

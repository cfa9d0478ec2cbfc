#include "runtime/coordinator/lasting_ports.hpp"

#include <algorithm>
#include <fstream>
#include <random>

namespace rackrail::runtime {
namespace {

constexpr int kLowest = 10000;
constexpr int kLinuxEphemeral = 32768;  // where the file cannot be read
constexpr std::size_t kTries = 64;

int lowest_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int lowest = 0;
  return file >> lowest ? lowest : kLinuxEphemeral;
}

}  // namespace

std::vector<std::uint16_t> lasting_ports() {
  const int end = lowest_ephemeral_port();
  if (end <= kLowest) {
    return {};
  }
  std::random_device random;
  std::uniform_int_distribution<int> port(kLowest, end - 1);
  std::vector<std::uint16_t> ports(kTries);
  std::generate(ports.begin(), ports.end(),
                [&] { return static_cast<std::uint16_t>(port(random)); });
  return ports;
}

}  // namespace rackrail::runtime

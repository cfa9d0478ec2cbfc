// Which device of this machine an adapter of a plan is (topology/adapters.hpp).
//
// The first of these sources that knows the device decides:
//   1. RACKRAIL_ADAPTERS, as "eth7=mlx5_1:1": for a name of one of its devices in the plan, the
//      device here. A device that is set in this way is not searched for.
//   2. A device here that has one of the adapter's devices as its name: eth1; mlx5_1, of which port
//      1 is "mlx5_1:1".
//   3. The devices here on the PCI address that is one of the adapter's devices.
//   4. RACKRAIL_ADAPTERS, as "nic0=eth1,nic1=mlx5_1:1": for the adapter's number in its machine.
//      Last, because other adapters have that number if a plan was made without one of them.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rackrail::runtime {

inline constexpr const char* kAdaptersVariable = "RACKRAIL_ADAPTERS";

class AdapterDevices {
 public:
  /// `devices`: what may be sent by, each once ("eth0", "mlx5_0:1"). `map`: what RACKRAIL_ADAPTERS
  /// says, or nothing. `system`: where the system lists devices. Throws ConfigError for a `map`
  /// that is no list of NAME=DEVICE.
  AdapterDevices(std::vector<std::string> devices, const std::string& map,
                 std::filesystem::path system = "/sys/class");

  /// One or several, separated by commas, as UCX takes them; none where nothing says it. `devices`:
  /// of the plan's adapter, separated by spaces.
  std::optional<std::string> find(const std::string& adapter, const std::string& devices) const;
  /// What may be sent by.
  const std::vector<std::string>& devices() const { return devices_; }

 private:
  std::optional<std::string> named(const std::string& name) const;
  std::optional<std::string> at_address(const std::string& address) const;

  std::vector<std::string> devices_;
  std::map<std::string, std::string> map_;
  std::filesystem::path system_;
};

}  // namespace rackrail::runtime

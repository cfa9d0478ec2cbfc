#include "runtime/adapter_devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <utility>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

/// "mlx5_0:1" is port 1 of "mlx5_0".
std::string without_port(const std::string& device) { return device.substr(0, device.find(':')); }

std::map<std::string, std::string> parse_map(const std::string& text) {
  std::map<std::string, std::string> map;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == entry.size()) {
      throw ConfigError(ErrorContext{.file = "<environment>",
                                     .where = kAdaptersVariable,
                                     .found = "'" + entry + "'",
                                     .expected = "ADAPTER=DEVICE, as nic0=eth1,nic1=mlx5_1:1"});
    }
    map[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return map;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;) {
    result.push_back(word);
  }
  return result;
}

/// With the domain, in small letters: "0000:1b:00.0".
std::string full_address(std::string address) {
  std::transform(address.begin(), address.end(), address.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::count(address.begin(), address.end(), ':') == 1 ? "0000:" + address : address;
}

}  // namespace

AdapterDevices::AdapterDevices(std::vector<std::string> devices, const std::string& map,
                               std::filesystem::path system)
    : devices_(std::move(devices)), map_(parse_map(map)), system_(std::move(system)) {}

std::optional<std::string> AdapterDevices::find(const std::string& adapter,
                                                const std::string& devices) const {
  std::vector<std::string> names = words(devices);
  for (const std::string& name : names) {
    if (const auto said = map_.find(name); said != map_.end()) {
      return named(said->second).value_or(said->second);
    }
  }
  for (const std::string& name : names) {
    if (auto device = named(name)) {
      return device;
    }
  }
  for (const std::string& name : names) {
    if (auto device = at_address(name)) {
      return device;
    }
  }
  const auto said = map_.find(adapter);
  return said != map_.end() ? std::optional(named(said->second).value_or(said->second))
                            : std::nullopt;
}

std::optional<std::string> AdapterDevices::named(const std::string& name) const {
  std::vector<std::string> ports;
  for (const std::string& device : devices_) {
    if (device == name) {
      return device;
    }
    if (without_port(device) == name) {
      ports.push_back(device);
    }
  }
  return ports.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(ports, ",")));
}

std::optional<std::string> AdapterDevices::at_address(const std::string& address) const {
  std::vector<std::string> found;
  for (const std::string& device : devices_) {
    for (const char* kind : {"net", "infiniband"}) {
      std::error_code none;
      const std::filesystem::path place =
          std::filesystem::read_symlink(system_ / kind / without_port(device) / "device", none);
      if (!none && full_address(place.filename()) == full_address(address)) {
        found.push_back(device);
      }
    }
  }
  return found.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(found, ",")));
}

}  // namespace rackrail::runtime

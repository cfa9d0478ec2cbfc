// Devices for the adapters of rails, and what is to be said of those that have none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/adapter_devices.hpp"

namespace rackrail::runtime {

class RailSearch {
 public:
  /// `devices`: those of this machine. RACKRAIL_ADAPTERS of the environment counts.
  explicit RailSearch(std::vector<std::string> devices);

  /// As AdapterDevices::find(). Nothing where it has none.
  std::optional<std::string> find(const std::string& adapter, const std::string& devices);
  void add_missing(const std::string& adapter, const std::string& why);
  /// One line at most.
  std::vector<std::string> notes() const;

 private:
  AdapterDevices devices_;
  std::map<std::string, std::string> missing_;  ///< why, by adapter
};

}  // namespace rackrail::runtime

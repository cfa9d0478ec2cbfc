#include "runtime/ucx/rail_search.hpp"

#include <cstdlib>
#include <utility>

namespace rackrail::runtime {
namespace {

std::string adapters_variable() {
  const char* value = std::getenv(kAdaptersVariable);
  return value != nullptr ? value : "";
}

}  // namespace

RailSearch::RailSearch(std::vector<std::string> devices)
    : devices_(std::move(devices), adapters_variable()) {}

std::optional<std::string> RailSearch::find(const std::string& adapter,
                                            const std::string& devices) {
  std::optional<std::string> found = devices_.find(adapter, devices);
  if (!found) {
    add_missing(adapter, devices);
  }
  return found;
}

void RailSearch::add_missing(const std::string& adapter, const std::string& why) {
  missing_[adapter] = why;
}

std::vector<std::string> RailSearch::notes() const {
  if (missing_.empty()) {
    return {};
  }
  std::string adapters;
  for (const auto& [adapter, why] : missing_) {
    adapters += (adapters.empty() ? "" : ", ") + adapter + (why.empty() ? "" : " (" + why + ")");
  }
  std::string here;
  for (const std::string& device : devices_.devices()) {
    here += (here.empty() ? "" : ", ") + device;
  }
  return {"the plan's " + adapters + " of this machine cannot be told among its devices (" + here +
          "), so what is planned for them goes as UCX chooses: " + kAdaptersVariable + "=" +
          missing_.begin()->first + "=DEVICE,… says which they are"};
}

}  // namespace rackrail::runtime

#include "base/error.hpp"
#include "runtime/nccl/plan_executor.hpp"

namespace rackrail::runtime {

bool is_staged(Staging staging, Transport& transport) {
  const bool is_possible = transport.device_messaging() != nullptr;
  if (staging == Staging::kNever && !is_possible) {
    throw RuntimeFailure("gradients cannot stay in the memory of the GPU: transport " +
                         std::string(transport.name()) + " takes none here");
  }
  return staging == Staging::kAlways || !is_possible;
}

std::string_view to_string(DevicePath path, bool is_staged) {
  switch (path) {
    case DevicePath::kNccl:
      return "NCCL";
    case DevicePath::kTransport:
      return is_staged ? "pinned memory" : "device memory";
    case DevicePath::kHybrid:
      break;
  }
  return is_staged ? "NCCL inside hosts, pinned memory between them"
                   : "NCCL inside hosts, device memory between them";
}

}  // namespace rackrail::runtime

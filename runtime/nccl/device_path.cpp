#include "runtime/nccl/plan_executor.hpp"

namespace rackrail::runtime {

std::string_view to_string(DevicePath path) {
  switch (path) {
    case DevicePath::kNccl:
      return "NCCL";
    case DevicePath::kStaged:
      return "pinned memory";
    case DevicePath::kHybrid:
      break;
  }
  return "NCCL inside hosts, pinned memory between them";
}

}  // namespace rackrail::runtime

#include "planner/protection.hpp"

#include <string_view>

namespace rackrail::planner {

namespace {

/// "layer4.2.conv1.weight" → "layer4.2.conv1"; a name without dots is a layer of its own.
std::string_view layer_of(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

}  // namespace

std::vector<bool> protected_tensors(const plan::Workload& workload, bool outer_layers) {
  std::vector<bool> is_protected;
  for (const plan::GradientTensor& tensor : workload.tensors) {
    const std::string_view layer = layer_of(tensor.name);
    const bool is_outer = layer == layer_of(workload.tensors.front().name) ||
                          layer == layer_of(workload.tensors.back().name);
    is_protected.push_back(tensor.is_protected() || (outer_layers && is_outer));
  }
  return is_protected;
}

}  // namespace rackrail::planner

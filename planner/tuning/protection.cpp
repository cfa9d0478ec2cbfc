#include "planner/tuning/protection.hpp"

#include <algorithm>
#include <string_view>

namespace rackrail::planner {

namespace {

/// "layer4.2.conv1.weight" → "layer4.2.conv1"; a name without dots is a layer of its own.
std::string_view layer_of(std::string_view tensor) { return tensor.substr(0, tensor.rfind('.')); }

}  // namespace

std::vector<bool> protected_tensors(const plan::Workload& workload, bool outer_layers) {
  std::vector<bool> by_kind;
  std::vector<bool> with_outer;
  for (const plan::GradientTensor& tensor : workload.tensors) {
    const std::string_view layer = layer_of(tensor.name);
    const bool is_outer = layer == layer_of(workload.tensors.front().name) ||
                          layer == layer_of(workload.tensors.back().name);
    by_kind.push_back(tensor.is_protected());
    with_outer.push_back(by_kind.back() || is_outer);
  }
  const bool has_inner =
      std::any_of(with_outer.begin(), with_outer.end(), [](bool is_one) { return !is_one; });
  return outer_layers && has_inner ? with_outer : by_kind;
}

}  // namespace rackrail::planner

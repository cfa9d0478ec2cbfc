#include "plan/shaped_codec.hpp"

#include <algorithm>

namespace rackrail::plan {

double FactorSize::density() const {
  return elements == 0 ? 1 : static_cast<double>(sent) / static_cast<double>(elements);
}

FactorSize factor_size(const Workload& workload, std::uint32_t rank) {
  FactorSize size;
  for (const GradientTensor& tensor : workload.tensors) {
    if (tensor.is_protected()) {
      continue;
    }
    std::int64_t sent = tensor.elements;
    if (tensor.shape) {
      // No overflow: neither side exceeds the elements, and the rank is a small number.
      const std::int64_t factors = rank * (tensor.shape->rows + tensor.shape->columns);
      size.matrices += factors < sent ? 1 : 0;
      sent = std::min(sent, factors);
    }
    ++size.tensors;
    size.elements += tensor.elements;
    size.sent += sent;
  }
  return size;
}

Codec resolved_for(const Workload& workload, const Codec& codec) {
  if (!codec.depends_on_shapes()) {
    return codec;
  }
  const FactorSize size = factor_size(workload, codec.rank);
  if (size.matrices == 0) {
    return Codec{};
  }
  Codec resolved = codec;
  resolved.density = size.density();
  return resolved;
}

}  // namespace rackrail::plan

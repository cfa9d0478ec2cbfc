// Which gradients are kept from strong codecs.
#pragma once

#include <vector>

#include "plan/workload.hpp"

namespace rackrail::planner {

/// By tensor: whether it is never encoded beyond FP16. Norms, biases and small tensors
/// (GradientTensor::is_protected) always; and by default, with `outer_layers`, all tensors of the
/// first and of the last layer: those whose name up to its last dot is that of the first or of the
/// last gradient, unless that leaves none. Embeddings are first layers: their gradients are sparse,
/// and errors in them meet rare words.
std::vector<bool> protected_tensors(const plan::Workload& workload, bool outer_layers);

}  // namespace rackrail::planner

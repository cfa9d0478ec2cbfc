// Dividing a model's gradients into buckets, and which of them are kept from strong codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"

namespace rackrail::planner {

/// Tensors that move together, and whether they are protected (protected_tensors()).
struct TensorGroup {
  std::vector<std::uint32_t> tensors;
  std::int64_t elements = 0;
  bool is_protected = false;
};

/// Sizes among which a search looks for the best one, all gradients together first: few from 32
/// ranks on.
std::vector<Bytes> bucket_sizes_to_try(const plan::Workload& workload, std::size_t ranks);

/// Tensors in ready order, cut whenever a group has reached `size`. Those that are `apart` (by
/// tensor; none if empty) form groups of their own, which count as protected and close together
/// with every few others, so that they do not wait for the end of backward. In launch order (by the
/// last tensor that is ready).
std::vector<TensorGroup> group_tensors(const plan::Workload& workload, Bytes size,
                                       const std::vector<bool>& apart = {});

/// By tensor: whether it is never encoded beyond FP16. Norms, biases and small tensors
/// (GradientTensor::is_protected) always; and by default, with `outer_layers`, all tensors of the
/// first and of the last layer: those whose name up to its last dot is that of the first or of the
/// last gradient, unless that leaves none. Embeddings are first layers: their gradients are sparse,
/// and errors in them meet rare words.
std::vector<bool> protected_tensors(const plan::Workload& workload, bool outer_layers);

}  // namespace rackrail::planner

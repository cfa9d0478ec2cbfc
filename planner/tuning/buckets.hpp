// Dividing a model's gradients into buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "plan/plan.hpp"
#include "plan/workload.hpp"

namespace rackrail::planner {

/// Tensors that move together, and whether they are protected (planner/tuning/protection.hpp).
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

}  // namespace rackrail::planner

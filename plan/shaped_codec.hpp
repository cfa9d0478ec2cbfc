// What a codec sends that makes two factors of r columns of each matrix: r·(rows + columns) floats
// of those whose shape is known, where that is fewer than they have, and all of any other tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/codec.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan {

/// Of the tensors that may be encoded at all (GradientTensor::is_protected).
struct FactorSize {
  std::size_t matrices = 0;  ///< whose factors are sent
  std::size_t tensors = 0;   ///< all
  std::int64_t elements = 0;
  std::int64_t sent = 0;  ///< floats
  /// At most 1, and 1 where there is nothing to encode.
  double density() const;
};
FactorSize factor_size(const Workload& workload, std::uint32_t rank);

/// A codec that depends on shapes with the density that those of the workload make of it, whatever
/// it was, or none where no matrix would be sent as factors; another codec as it is.
Codec resolved_for(const Workload& workload, const Codec& codec);

}  // namespace rackrail::plan

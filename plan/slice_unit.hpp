// Of what sizes slices are.
#pragma once

#include <cstdint>

namespace rackrail::plan {

/// Bucket::slice_elements is a multiple of it.
inline constexpr std::int64_t kSliceUnit = 1024;

/// The least slice that holds so many elements: a transfer of them is one message.
constexpr std::int64_t one_slice(std::int64_t elements) {
  return (elements + kSliceUnit - 1) / kSliceUnit * kSliceUnit;
}

}  // namespace rackrail::plan

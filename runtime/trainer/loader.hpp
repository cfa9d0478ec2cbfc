// Batches of one rank, put together ahead of their use by a thread of their own.
//
// Augmentation: an image may be moved by up to `max_shift` pixels in each direction, zeros coming
// in from outside. The move depends on the seed and the sample's place in the stream alone, so it
// is the same whichever rank trains on the sample.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/trainer/dataset.hpp"
#include "runtime/trainer/sampler.hpp"

namespace rackrail::trainer {

struct LoaderOptions {
  std::uint64_t seed = 1;
  std::int64_t position = 0;   ///< in the stream, where the first step begins
  std::int64_t max_shift = 0;  ///< pixels
  std::size_t depth = 4;       ///< batches kept ready at most
};

/// Hands out the passes of step after step in order. The memory of batches is used again and again.
/// For one consumer.
class BatchLoader {
 public:
  /// `dataset` must outlive the loader and not change.
  BatchLoader(const Dataset& dataset, const Shard& shard, const LoaderOptions& options);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// The next pass; the view stays valid until the next call. Blocks while none is ready.
  BatchView next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rackrail::trainer

// Who trains on which sample, when: a pure function of (seed, position), the same on every rank.
//
// The training set is read as one endless stream: epoch after epoch, each a fresh permutation of
// all samples. A step takes the next B samples of the stream (a batch may straddle two epochs, so
// no sample is ever dropped), pass after pass, and a pass is divided over the ranks in rank order
// by their local batches. Hence the set of samples that a step trains on depends on B alone, not on
// how many ranks share it or how evenly, and a resumed run needs to know nothing but its position.
#pragma once

#include <cstdint>
#include <vector>

namespace rackrail::trainer {

/// A random permutation of 0 … count − 1 (Fisher–Yates) that depends on `key` alone.
std::vector<std::uint32_t> permutation(std::int64_t count, std::uint64_t key);

/// The endless stream of sample indices. Not for several threads at a time: it keeps the
/// permutation of the epoch that was asked for last.
class SampleStream {
 public:
  SampleStream(std::int64_t samples, std::uint64_t seed);

  std::uint32_t at(std::int64_t position);
  std::int64_t epoch_of(std::int64_t position) const { return position / samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t cached_epoch_ = -1;
  std::vector<std::uint32_t> order_;
};

/// The part of each step that belongs to one rank.
class Shard {
 public:
  /// `local_batch` are samples per rank and pass, all positive; `rank` is one of them;
  /// `accumulation` passes make a step. Throws PlanError otherwise.
  Shard(const std::vector<std::int64_t>& local_batch, std::size_t rank, std::int64_t accumulation);

  std::int64_t local_batch() const { return local_batch_; }
  std::int64_t passes() const { return passes_; }
  /// Samples of all ranks in one pass, and in one step.
  std::int64_t pass_batch() const { return pass_batch_; }
  std::int64_t global_batch() const { return pass_batch_ * passes_; }
  /// Where in the stream this rank's part of a pass begins, for the step that begins at
  /// `step_position`.
  std::int64_t begin(std::int64_t step_position, std::int64_t pass) const {
    return step_position + pass * pass_batch_ + offset_;
  }

 private:
  std::int64_t local_batch_ = 0;
  std::int64_t pass_batch_ = 0;
  std::int64_t offset_ = 0;
  std::int64_t passes_;
};

}  // namespace rackrail::trainer

// The buckets of a plan in the gradient arena of a model.
//
// A bucket whose tensors are neighbours in the arena is a span of the arena and moves where it
// lies; any other is gathered into a buffer of its own before it is launched and scattered back
// when its sum is there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"
#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/model.hpp"

namespace rackrail::trainer {

class BucketSet {
 public:
  /// Throws PlanError unless the buckets hold every tensor exactly once and their elements add up.
  /// `plan_name` is for messages; the arena lies in the memory of `compute`.
  BucketSet(const std::string& plan_name, std::span<const ParameterTensor> tensors,
            std::span<const plan::Bucket> buckets,
            std::shared_ptr<Compute> compute = make_host_compute());

  std::size_t size() const { return buckets_.size(); }

  /// Starts a new pass: no gradient is ready.
  void reset();
  /// Marks a gradient; returns the bucket that it completes, if it does.
  std::optional<BucketId> tensor_ready(std::size_t tensor);

  /// The bucket's gradients as one span: of the arena or of the bucket's buffer.
  std::span<float> gather(BucketId bucket, std::span<float> arena);
  /// Back into the arena, where gather() copied.
  void scatter(BucketId bucket, std::span<float> arena) const;

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t size = 0;
  };
  struct Entry {
    std::vector<Range> ranges;  // in bucket order, neighbours merged
    Floats buffer;              // empty when there is a single range
    std::size_t tensors = 0;
    std::size_t missing = 0;  // gradients that are not ready
  };

  std::shared_ptr<Compute> compute_;  // outlives what is in its memory
  std::vector<Entry> buckets_;
  std::vector<BucketId> bucket_of_;  // by tensor
};

}  // namespace rackrail::trainer

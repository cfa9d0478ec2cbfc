#include "runtime/trainer/buckets.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace rackrail::trainer {

BucketSet::BucketSet(const std::string& plan_name, std::span<const ParameterTensor> tensors,
                     std::span<const plan::Bucket> buckets, std::shared_ptr<Compute> compute)
    : compute_(std::move(compute)), buckets_(buckets.size()), bucket_of_(tensors.size()) {
  std::vector<bool> covered(tensors.size());
  const auto reject = [&](std::size_t bucket, std::string found, std::string expected) {
    throw PlanError(ErrorContext{plan_name, "buckets[" + std::to_string(bucket) + "]",
                                 std::move(found), std::move(expected)});
  };
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    Entry& entry = buckets_[b];
    entry.tensors = buckets[b].tensors.size();
    std::size_t elements = 0;
    for (const std::uint32_t tensor : buckets[b].tensors) {
      if (tensor >= tensors.size() || covered[tensor]) {
        reject(b, "tensor " + std::to_string(tensor),
               "each of " + std::to_string(tensors.size()) + " tensors once");
      }
      covered[tensor] = true;
      bucket_of_[tensor] = BucketId(b);
      const Range range{static_cast<std::size_t>(tensors[tensor].offset),
                        static_cast<std::size_t>(tensors[tensor].elements)};
      if (!entry.ranges.empty() &&
          entry.ranges.back().begin + entry.ranges.back().size == range.begin) {
        entry.ranges.back().size += range.size;
      } else {
        entry.ranges.push_back(range);
      }
      elements += range.size;
    }
    if (entry.ranges.empty() || elements != static_cast<std::size_t>(buckets[b].elements)) {
      reject(b, std::to_string(buckets[b].elements) + " elements",
             std::to_string(elements) + " in its tensors");
    }
    if (entry.ranges.size() > 1) {
      entry.buffer = compute_->make_floats(elements);
    }
  }
  const auto left_out = std::ranges::find(covered, false);
  if (left_out != covered.end()) {
    const auto tensor = static_cast<std::size_t>(left_out - covered.begin());
    throw PlanError(ErrorContext{plan_name, "buckets", "no bucket for " + tensors[tensor].name,
                                 "every tensor in a bucket"});
  }
  reset();
}

void BucketSet::reset() {
  for (Entry& entry : buckets_) {
    entry.missing = entry.tensors;
  }
}

std::optional<BucketId> BucketSet::tensor_ready(std::size_t tensor) {
  const BucketId bucket = bucket_of_[tensor];
  if (--buckets_[bucket.index()].missing > 0) {
    return std::nullopt;
  }
  return bucket;
}

std::span<float> BucketSet::gather(BucketId bucket, std::span<float> arena) {
  Entry& entry = buckets_[bucket.index()];
  if (entry.buffer.size() == 0) {
    return arena.subspan(entry.ranges.front().begin, entry.ranges.front().size);
  }
  std::size_t into = 0;
  for (const Range& range : entry.ranges) {
    compute_->copy(arena.subspan(range.begin, range.size),
                   entry.buffer.span().subspan(into, range.size));
    into += range.size;
  }
  return entry.buffer.span();
}

void BucketSet::scatter(BucketId bucket, std::span<float> arena) const {
  const Entry& entry = buckets_[bucket.index()];
  std::size_t from = 0;
  for (const Range& range : entry.ranges) {
    if (entry.buffer.size() != 0) {
      compute_->copy(entry.buffer.span().subspan(from, range.size),
                     arena.subspan(range.begin, range.size));
    }
    from += range.size;
  }
}

}  // namespace rackrail::trainer

#include "runtime/trainer/sampler.hpp"

#include <numeric>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace rackrail::trainer {

std::vector<std::uint32_t> permutation(std::int64_t count, std::uint64_t key) {
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i) {
    // The bias of the remainder is below 2⁻³² for any set that fits 32-bit indices.
    std::swap(order[i - 1], order[random_bits(key, i) % i]);
  }
  return order;
}

SampleStream::SampleStream(std::int64_t samples, std::uint64_t seed)
    : samples_(samples), seed_(seed) {}

std::uint32_t SampleStream::at(std::int64_t position) {
  const std::int64_t epoch = epoch_of(position);
  if (epoch != cached_epoch_) {
    order_ = permutation(samples_, random_bits(seed_, static_cast<std::uint64_t>(epoch)));
    cached_epoch_ = epoch;
  }
  return order_[static_cast<std::size_t>(position % samples_)];
}

Shard::Shard(const std::vector<std::int64_t>& local_batch, std::size_t rank,
             std::int64_t accumulation)
    : passes_(accumulation) {
  if (accumulation < 1) {
    throw PlanError(ErrorContext{"", "batch.accumulation", std::to_string(accumulation),
                                 "at least one pass per step"});
  }
  if (rank >= local_batch.size()) {
    throw PlanError(ErrorContext{"", "batch.local_batch",
                                 std::to_string(local_batch.size()) + " entries",
                                 "one for each rank up to " + std::to_string(rank)});
  }
  for (std::size_t r = 0; r < local_batch.size(); ++r) {
    if (local_batch[r] < 1) {
      throw PlanError(ErrorContext{"", "batch.local_batch[" + std::to_string(r) + "]",
                                   std::to_string(local_batch[r]), "at least one sample"});
    }
    offset_ += r < rank ? local_batch[r] : 0;
    pass_batch_ += local_batch[r];
  }
  local_batch_ = local_batch[rank];
}

}  // namespace rackrail::trainer

#include "sim/token_buckets.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rackrail::sim {

namespace {
constexpr double kFewestTokens = 1;
// What is within the rounding of the arithmetic does not cost another picosecond.
constexpr double kRounding = 1e-6;
}  // namespace

TokenBuckets::TokenBuckets(const topology::Topology& topology) {
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    if (link.burst > Bytes(0)) {
      place_.resize(topology.link_count(), kNone);
      place_[i] = static_cast<std::uint32_t>(links_.size());
      links_.emplace_back(i);
      const auto size = static_cast<double>(link.burst.count());
      buckets_.push_back(
          {size, static_cast<double>(link.bandwidth.bytes_per_second()) / kPicosecondsPerSecond,
           size});
    }
  }
}

void TokenBuckets::advance(Time now, const FairShares& shares) {
  const auto passed = static_cast<double>(now - now_);
  now_ = now;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    bucket.tokens =
        std::min(bucket.size, bucket.tokens + (bucket.rate - shares.used(links_[i])) * passed);
  }
}

bool TokenBuckets::close_empty(FairShares& shares) {
  bool is_used = false;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    if (bucket.is_open && bucket.tokens < kFewestTokens) {
      bucket.is_open = false;
      shares.set_capacity(links_[i], bucket.rate);
      is_used = is_used || !shares.is_idle(links_[i]);
    }
  }
  return is_used;
}

void TokenBuckets::open(FairShares& shares) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    if (!bucket.is_open && bucket.rate > 0 && bucket.tokens >= kFewestTokens) {
      bucket.is_open = true;
      shares.set_capacity(links_[i], bucket.rate + kOpenRate);
    }
  }
}

void TokenBuckets::set_rate(LinkId link, double rate, FairShares& shares) {
  Bucket& bucket = buckets_[place_[link.index()]];
  bucket.rate = rate;
  bucket.is_open = bucket.is_open && rate > 0;
  shares.set_capacity(link, bucket.is_open ? rate + kOpenRate : rate);
}

Time TokenBuckets::next_empty(Time now, const FairShares& shares) const {
  double least = kLongestTime;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const double lost = shares.used(links_[i]) - buckets_[i].rate;
    if (buckets_[i].is_open && lost > 0) {
      least = std::min(least, buckets_[i].tokens / lost);
    }
  }
  return least < kLongestTime
             ? now + std::max<Time>(1, static_cast<Time>(std::ceil(least - kRounding)))
             : kNever;
}

}  // namespace rackrail::sim

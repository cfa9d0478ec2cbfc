#include "sim/token_buckets.hpp"

#include <algorithm>
#include <cmath>

namespace rackrail::sim {

TokenBuckets::TokenBuckets(const topology::Topology& topology, double tolerance)
    : flows_(topology, tolerance) {
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    const auto burst = static_cast<double>(link.burst.count());
    buckets_.push_back(
        {.burst = burst,
         .tokens = burst,
         .gain = static_cast<double>(link.bandwidth.bytes_per_second()) / kPicosecondsPerSecond});
  }
  flows_.observe_rates([this](Time now, std::span<const LinkId> links,
                              std::span<const double> shares, double change) {
    for (std::size_t i = 0; i < links.size(); ++i) {
      Bucket& bucket = buckets_[links[i].index()];
      if (bucket.burst > 0) {
        settle(bucket, now);
        bucket.used += change * (shares.empty() ? 1 : shares[i]);
      }
    }
  });
}

void TokenBuckets::settle(Bucket& bucket, Time now) {
  const double change = (bucket.gain - bucket.used) * static_cast<double>(now - bucket.updated);
  bucket.tokens = std::clamp(bucket.tokens + change, 0.0, bucket.burst);
  bucket.updated = now;
}

double TokenBuckets::tokens(Time now, LinkId link) {
  Bucket& bucket = buckets_[link.index()];
  settle(bucket, now);
  return bucket.tokens;
}

/// As many as all buckets on the way have; none where there is no bucket.
std::int64_t TokenBuckets::take_tokens(Time now, std::int64_t bytes, const SpreadPath& path) {
  const auto share = [&](std::size_t i) { return path.shares.empty() ? 1 : path.shares[i]; };
  auto most = static_cast<double>(bytes);
  bool has_bucket = false;
  for (std::size_t i = 0; i < path.links.size(); ++i) {
    if (buckets_[path.links[i].index()].burst > 0) {
      has_bucket = true;
      most = std::min(most, tokens(now, path.links[i]) / share(i));
    }
  }
  const auto taken = has_bucket ? static_cast<std::int64_t>(most) : 0;
  for (std::size_t i = 0; taken > 0 && i < path.links.size(); ++i) {
    Bucket& bucket = buckets_[path.links[i].index()];
    bucket.tokens = std::max(0.0, bucket.tokens - static_cast<double>(taken) * share(i));
  }
  return taken;
}

const TokenBuckets::Free& TokenBuckets::free_of(const SpreadPath& path) {
  const auto [at, is_new] = free_.try_emplace(
      {{path.links.begin(), path.links.end()}, {path.shares.begin(), path.shares.end()}});
  Free& free = at->second;
  for (std::size_t i = 0; is_new && i < path.links.size(); ++i) {
    if (buckets_[path.links[i].index()].burst <= 0) {
      free.links.push_back(path.links[i]);
      free.shares.push_back(path.shares.empty() ? 1 : path.shares[i]);
    }
  }
  return free;
}

void TokenBuckets::start_rest(Time now, FlowTag tag, const Rest& rest) {
  if (rest.is_spread) {
    flows_.start_spread(now, rest.bytes, rest.path, tag);
  } else {
    flows_.start(now, rest.bytes, rest.path.links, rest.path.rate_cap, tag);
  }
}

void TokenBuckets::start_way(Time now, std::int64_t bytes, const SpreadPath& path, bool is_spread,
                             FlowTag tag) {
  ++started_;
  const std::int64_t taken = take_tokens(now, bytes, path);
  const Rest rest{.bytes = bytes - taken, .path = path, .is_spread = is_spread};
  const Free& free = free_of(path);
  if (taken == 0 || free.links.empty()) {
    start_rest(now, tag, rest);
    return;
  }
  ahead_.insert_or_assign(tag, rest);
  flows_.start_spread(now, taken, {free.links, free.shares, {}, path.rate_cap}, tag);
}

void TokenBuckets::start(Time now, std::int64_t bytes, std::span<const LinkId> links,
                         double rate_cap, FlowTag tag) {
  start_way(now, bytes, {links, {}, {}, rate_cap}, false, tag);
}

void TokenBuckets::start_spread(Time now, std::int64_t bytes, const SpreadPath& path, FlowTag tag) {
  start_way(now, bytes, path, true, tag);
}

void TokenBuckets::set_capacity(Time now, LinkId link, Bandwidth capacity) {
  Bucket& bucket = buckets_[link.index()];
  settle(bucket, now);
  bucket.gain = static_cast<double>(capacity.bytes_per_second()) / kPicosecondsPerSecond;
  flows_.set_capacity(now, link, capacity);
}

void TokenBuckets::take_events(Time now, std::vector<FlowEvent>& events) {
  events_.clear();
  flows_.take_events(now, events_);
  for (const FlowEvent& event : events_) {
    const auto ahead = ahead_.find(event.tag);
    if (ahead == ahead_.end()) {
      events.push_back(event);
    } else if (event.is_delivered) {  // at the same time as it has left: there is no latency
      const Rest rest = ahead->second;
      ahead_.erase(ahead);
      start_rest(now, event.tag, rest);
    }
  }
}

bool has_token_buckets(const topology::Topology& topology) {
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    if (topology.link(LinkId(i)).burst > Bytes()) {
      return true;
    }
  }
  return false;
}

}  // namespace rackrail::sim

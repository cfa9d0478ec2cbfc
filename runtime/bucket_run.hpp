// What has been done of a bucket in one step: the state of a BucketProgram that is under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "runtime/bucket_program.hpp"

namespace rackrail::runtime {

using SharedPayload = std::shared_ptr<const std::vector<std::byte>>;

/// A bucket of one step, from launch to the last slice.
struct BucketRun {
  using Key = std::pair<std::uint32_t, std::uint32_t>;  ///< step, bucket

  /// Keeps references to the program and to `d`.
  BucketRun(const BucketProgram& p, std::uint32_t s, std::uint32_t bucket_priority,
            std::span<float> d)
      : program(p),
        step(s),
        priority(bucket_priority),
        data(d),
        waits(p.transfers.size()),
        done(p.transfers.size(), 0),
        has_arrived(p.transfers.size()),
        encoded(p.transfers.size()),
        arrived(p.transfers.size()),
        open(p.open_slices),
        needs(p.sends_to.size(), 0),
        lanes(p.sends_to.size()),
        turn(p.sends_to.size(), 0) {
    for (std::size_t peer = 0; peer < lanes.size(); ++peer) {
      lanes[peer].resize(p.sends_to[peer].size());
    }
    for (std::size_t i = 0; i < p.transfers.size(); ++i) {
      const LocalTransfer& t = p.transfers[i];
      waits[i].assign(t.slices, t.whole_waits + t.slice_waits);
      needs[t.peer.index()] += t.slices;
      if (t.keeps_encoding) {
        encoded[i].resize(t.slices);
      }
      if (!t.is_send) {
        has_arrived[i].assign(t.slices, 0);
        arrived[i].resize(t.slices);
      }
    }
  }

  Key key() const { return {step, program.bucket.value()}; }
  /// Less is more urgent.
  std::tuple<std::uint32_t, std::uint32_t, std::uint32_t> urgency() const {
    return {step, priority, program.bucket.value()};
  }

  std::span<float> values(const plan::ElementRange& part) const {
    return data.subspan(static_cast<std::size_t>(part.begin),
                        static_cast<std::size_t>(part.size()));
  }

  const BucketProgram& program;
  std::uint32_t step;
  std::uint32_t priority;
  std::span<float> data;
  std::vector<std::vector<std::uint32_t>> waits;    ///< by transfer and slice
  std::vector<std::uint32_t> done;                  ///< slices, by transfer
  std::vector<std::vector<char>> has_arrived;       ///< by transfer that is received, and slice
  std::vector<std::vector<SharedPayload>> encoded;  ///< bytes kept, by transfer and slice
  /// Additions that arrived before the ones that must be applied first.
  std::vector<std::vector<std::optional<std::vector<std::byte>>>> arrived;
  /// Of mutual sums, what lower ranks sent so far, by transfer to be added with it and slice.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<float>> partial_sums;
  std::uint64_t open;                ///< slices not sent or not applied yet
  std::vector<std::uint64_t> needs;  ///< by peer: slices that must still come or be sent
  struct Lane {
    std::size_t position = 0;  ///< in its list of sends_to
    std::uint32_t slice = 0;   ///< the next of that transfer
  };
  std::vector<std::vector<Lane>> lanes;  ///< by destination and route
  std::vector<std::size_t> turn;         ///< by destination: the route that may send first
};

}  // namespace rackrail::runtime

// Who serves what: a parameter server's schedule, read as such.
//
// The transfer graph of schedule "parameter-server" has, for each range of chunks, one rank to
// which all others send it to be added (their pushes) and which copies it to all of them (their
// pulls). Where its sum is applied at once to all of a step, these transfers are executed like any
// others; where each rank's push is an update of its own, they still say who serves which range,
// and what a message is: a push or a pull of that transfer.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.hpp"
#include "plan/plan.hpp"

namespace rackrail::runtime {

/// A range of a bucket, and its server.
struct ServedPart {
  BucketId bucket;
  Rank server;
  plan::ElementRange range;
  std::uint32_t slices = 0;
  /// By worker; none for the server itself.
  std::vector<std::optional<TransferId>> pushes;
  std::vector<std::optional<TransferId>> pulls;
  /// All workers in the order in which their gradients are added: the server, then by push. The
  /// executor adds them so too.
  std::vector<Rank> order;
};

/// What a transfer of a bucket is.
struct PartMessage {
  std::uint32_t part = 0;
  bool is_push = false;
  Rank worker;
};

class ServedParts {
 public:
  /// Throws PlanError unless all buckets have a schedule "parameter-server" of that form, and
  /// ConfigError where it has a codec: parameters and single gradients move as FP32.
  explicit ServedParts(const plan::Plan& plan);

  /// None without elements; by bucket.
  const std::vector<ServedPart>& all() const { return parts_; }
  /// Nothing for a transfer that the bucket lacks or that moves no elements.
  std::optional<PartMessage> find(std::uint32_t bucket, std::uint32_t transfer) const;

 private:
  void add_bucket(const plan::Plan& plan, BucketId bucket);

  std::vector<ServedPart> parts_;
  std::vector<std::unordered_map<std::uint32_t, PartMessage>> messages_;  ///< by bucket
};

}  // namespace rackrail::runtime

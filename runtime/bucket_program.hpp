// One rank's part of a transfer graph for one bucket: what it sends and receives, what each of them
// waits for, and where encoded bytes come from. Worked out once per bucket, before training.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/ids.hpp"
#include "plan/encoding_source.hpp"
#include "plan/plan.hpp"

namespace rackrail::runtime {

/// A transfer that this rank sends or receives.
struct LocalTransfer {
  std::uint32_t id = 0;  ///< in the graph
  bool is_send = false;
  Rank peer;
  plan::TransferOp op = plan::TransferOp::kCopy;
  std::uint8_t codec = 0;
  Bandwidth rate;  ///< the most it may leave at (rule 8); 0: no limit
  plan::ElementRange range;
  std::uint32_t slices = 0;
  std::uint32_t whole_waits = 0;  ///< transfers of which every slice must be done before a slice
  std::uint32_t slice_waits = 0;  ///< transfers of which the same slice must be done
  /// Of sends of lossy transfers: whose encoding it sends (a local index), if not its own.
  plan::EncodingKind encoding = plan::EncodingKind::kOwn;
  std::uint32_t encoding_from = 0;
  bool keeps_encoding = false;  ///< its encoded bytes are sent again by another transfer
  std::string residual;         ///< name of its error-feedback state; empty: none
  /// Of what arrives for a mutual sum from a lower rank than this, not the last of these: the local
  /// index of the next of these, with which it is added before this rank's own (rule 9).
  std::optional<std::uint32_t> added_with;
};

/// Who is told when a slice of a local transfer is done.
struct LocalDependent {
  std::uint32_t transfer = 0;  ///< local index
  bool whole = false;
};

struct BucketProgram {
  BucketProgram(const plan::Plan& plan, BucketId bucket, Rank self);

  const plan::TransferGraph& graph;
  BucketId bucket;
  std::int64_t slice_elements = 0;
  std::vector<LocalTransfer> transfers;                 ///< in id order, none without elements
  std::vector<std::vector<LocalDependent>> dependents;  ///< by local index
  /// What is sent to each destination, by rank: a list for each route that it takes, in id order.
  std::vector<std::vector<std::vector<std::uint32_t>>> sends_to;
  std::unordered_map<std::uint32_t, std::uint32_t> local;  ///< graph id → local index
  std::uint64_t open_slices = 0;                           ///< to send and to apply

 private:
  void order_mutual_sum(const plan::TransferGroup& sum, Rank self);
};

/// The stream of random numbers that `self` rounds with when it encodes for such a transfer
/// (plan::EncodeKey). Contributions of different ranks round independently, so that their errors
/// average out. A sum is rounded equally on every rank that encodes it.
std::uint64_t rounding_stream(const plan::Plan& plan, std::uint32_t step, BucketId bucket,
                              plan::TransferOp op, Rank self);

}  // namespace rackrail::runtime

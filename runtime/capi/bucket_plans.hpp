// Plans for programs that bring buffers of their own, instead of a model.
//
// Every job has pieces: buckets of fixed sizes, in FP32, into which an array of any size is cut.
// Buckets that a program plans for follow them, in groups; a group that is there stays as it is, so
// a job's plan only ever grows at its end, and bucket numbers (by which residuals are kept, too)
// stay valid.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/plan.hpp"
#include "topology/topology.hpp"

namespace rackrail::capi {

/// All ranks around one switch, 10 Gbit/s and 25 us from end to end: what is assumed where nobody
/// describes the cluster. The figures decide only from which size on latency stops to matter.
topology::Topology flat_cluster(std::size_t ranks);

/// Buckets 0, 1, … of the job's first plan: `elements` floats each.
struct Piece {
  BucketId bucket;
  std::int64_t elements = 0;
};
/// From the largest to the smallest.
std::span<const Piece> pieces();

/// A part of an array and the piece that it travels in; shorter than the piece only at the end of
/// the array, where it is padded.
struct Part {
  BucketId bucket;
  std::int64_t piece_elements = 0;
  std::int64_t begin = 0;
  std::int64_t elements = 0;
};
/// What is sent in one step: each piece at most once. Parts cover [0, elements) in order, and what
/// they pad is less than the smallest piece.
std::vector<std::vector<Part>> cut(std::int64_t elements);

/// The plan of the pieces: each size as plan_buckets() plans it alone in FP32, on more than 32
/// ranks by the fastest of fewer schedules, as far as twenty seconds go (some hundred ranks); up
/// to 32 ranks each size has one and a half at least, also beyond those.
plan::Plan plan_pieces(const topology::Topology& cluster, bool may_have_rates = true);

struct BucketRequest {
  std::int64_t elements = 0;
  Duration ready;  ///< from the first bucket's beginning, ascending
};
/// Which codecs the planner may use: one, or (none) any within the usual error budget.
using CodecChoice = std::optional<plan::Codec>;

/// A bucket per request, in their order: routes and codecs for exactly these, found by simulating
/// the step. Nobody says which part of a bucket belongs to which layer, so only buckets below 64 Ki
/// elements are kept from codecs beyond FP16. The search ends after ten seconds with what it has.
/// `may_have_rates`: of routes, to which executors of gradients on GPUs do not hold. Throws
/// ConfigError when nothing fits the codec.
plan::Plan plan_buckets(const topology::Topology& cluster, std::span<const BucketRequest> requests,
                        const CodecChoice& codec, bool may_have_rates = true);

/// A bucket per request, in their order, by the schedule, slices and codecs of the bucket of `made`
/// whose size is nearest (by ratio; of several the first). Schedules hold at any size. Throws
/// PlanError for a plan without buckets.
plan::Plan plan_buckets_like(const plan::Plan& made, std::span<const BucketRequest> requests);

/// The buckets of `plan`, then those of `more`; both are of the same ranks.
plan::Plan joined(const plan::Plan& plan, const plan::Plan& more);

}  // namespace rackrail::capi

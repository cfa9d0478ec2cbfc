// What a plan is asked for: limits, policies, and when the search ends.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/units.hpp"
#include "plan/codec.hpp"
#include "planner/request/policies.hpp"
#include "planner/request/search_limits.hpp"

namespace rackrail::planner {

/// What a search looked at, and why it took or left it: for who asks why a plan is as it is.
struct Decision {
  std::string about;              ///< "bucket of 25.0 MiB", "step with buckets of 25.0 MiB"
  std::string schedule;           ///< plan::TransferGraph::label(), or a family's name
  std::string codecs;             ///< "fp32", "int8 inside, fp16 across"; empty: of all kinds
  std::optional<Duration> bound;  ///< it takes no less
  std::optional<Duration> time;   ///< where it was simulated to its end
  std::string outcome;            ///< "chosen", or why not
};

/// Called by the search, on its thread. Empty: nobody asks.
using DecisionLog = std::function<void(const Decision&)>;

/// Called now and then with a share done in 0..1 and what is being done; may be empty.
using Progress = std::function<void(double, const std::string&)>;

/// Of a piece that is the whole's share from `begin` to `end`; empty where `whole` is.
inline Progress part_of(Progress whole, double begin, double end) {
  if (!whole) {
    return {};
  }
  return [whole = std::move(whole), begin, end](double share, const std::string& what) {
    whole(begin + (end - begin) * share, what);
  };
}

struct PlannerOptions {
  /// Largest allowed relative error of a reduced gradient (‖error‖/‖gradient‖ after all encodings
  /// on the way, plan/reduced_error.hpp). 0 allows FP32 only; the default allows FP16 and 8-bit
  /// blocks, these where few encodings follow each other.
  double error_budget = 0.02;
  std::optional<std::string> schedule;      ///< use only this family
  std::optional<plan::Codec> codec;         ///< use only this codec (on the slow tier at least)
  bool holds_codec_to_budget = false;       ///< `codec`: else whatever errors it makes are allowed
  std::optional<Bytes> bucket_size;         ///< use only this bucket size
  std::optional<std::int64_t> local_batch;  ///< fix the batch per rank
  std::optional<std::int64_t> max_global_batch;
  /// Whether the first and the last layer are kept from codecs beyond FP16, as norms, biases and
  /// small tensors always are (planner/tuning/buckets.hpp).
  /// A codec that was asked for is used on them too.
  bool protect_outer_layers = true;
  /// Steps that send FP32 first; by default usual_compression_warmup(), and none for a codec that
  /// was asked for.
  std::optional<std::int64_t> compression_warmup;
  BatchPolicy batch_policy = BatchPolicy::kGoodput;
  LearningRateRule learning_rate_rule = LearningRateRule::kLinear;
  bool compare_baselines = true;
  /// Whether the buckets of the plan that was found are divided more finely, or by another family
  /// whose finest division is faster (unless `schedule` names one), where that makes its
  /// step faster (planner/search/finer_buckets.hpp), and held to rates
  /// (planner/search/held_rates.hpp), as else only those with many senders are: for programs that
  /// reduce one buffer at a time. Without it, large buckets (128 MiB and more, of up to four) are
  /// divided so, where the plan is not within 1 % of its bound, on as few ranks.
  bool divides_finely = false;
  RouteRates route_rates = RouteRates::kWhereKept;
  /// Whether everything that the search compares is simulated: collectives at every size
  /// (planner/tuning/candidates.hpp), and steps that cannot be the best
  /// (planner/search/search.hpp). To hold the usual search against; it takes minutes for a hundred
  /// ranks.
  bool exhaustive = false;
  /// A quick search ends where what is left to gain is not worth the wait. Thorough whatever this
  /// says where `stop`, `enough_gap` or `exhaustive` says when the search ends.
  SearchEffort effort = SearchEffort::kThorough;
  /// Asked between simulations; from the first true on the search ends with the best plan so far,
  /// which then depends on when that was. Empty: the search runs to its end, the same everywhere.
  std::function<bool()> stop;
  /// Of a quick search, which make_plan() fills in: work that is left (base/work.hpp). Empty: any.
  std::function<std::int64_t()> work_left;
  /// As `stop` for what comes after the search (batches of a quick one; what make_explained_plan
  /// shows beside the plan), where `stop` is not empty: rows that were not reached are then left
  /// out. Empty: all are made.
  std::function<bool()> stop_report;
  /// The search ends with the first plan whose step takes no more than this share longer than the
  /// lower bound of its batch, those in FP32 before others: the same everywhere. Only where the
  /// batch is not searched, too (is_batch_searched() of planner/search/joint_search.hpp). None: it
  /// goes on.
  std::optional<double> enough_gap;
  std::uint64_t seed = 0;
  Progress progress;
  DecisionLog decisions;
};

}  // namespace rackrail::planner

// A plan: everything that simulator and runtime need to know about how a model's gradients move.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "plan/codec.hpp"
#include "plan/transfer_graph.hpp"
#include "topology/adapters.hpp"

namespace rackrail::plan {

/// Gradients that move together, in one buffer: the tensors one after another.
struct Bucket {
  std::vector<std::uint32_t> tensors;  ///< indices into Workload::tensors, ascending
  std::int64_t elements = 0;
  std::uint32_t schedule = 0;                ///< index into Plan::schedules
  std::int64_t slice_elements = 0;           ///< elements per slice, a multiple of 1,024
  std::uint32_t priority = 0;                ///< 0 first: order of need in the next forward pass
  Codec codec;                               ///< the strongest codec on its route, for tables
  std::map<std::string, Codec> codec_tiers;  ///< tier name → codec used there, for tables
};

struct BatchPlan {
  std::vector<std::int64_t> local_batch;  ///< samples per rank and pass
  std::int64_t accumulation = 1;          ///< passes per step
  double learning_rate = 0;
  std::string learning_rate_rule;  ///< in words, with the numbers
  std::int64_t warmup_steps = 0;
  std::int64_t global_batch() const;
};

/// What the planner expects, from the simulator.
struct Prediction {
  Duration step_time;
  Duration bound;  ///< no plan under the same budget can be faster
  std::string bound_reason;
  double gap = 0;         ///< step_time / bound − 1
  double sync_share = 0;  ///< share of the step in which gradients move and nothing computes
  std::map<std::string, Duration> baselines;  ///< name → step time of the alternative
  Duration warmup_step_time;  ///< of a step of compression's warm-up; 0 where there is none
};

/// From this size of a buffer on, to that of the next range, a family is the fastest.
struct ScheduleRange {
  Bytes from;
  std::string schedule;  ///< name of the family
  bool operator==(const ScheduleRange&) const = default;
};

struct Plan {
  std::string name;
  std::string cluster_name;
  std::string cluster_digest;
  std::vector<std::string> rank_names;  ///< vertex name of each rank
  std::string workload_name;
  std::string workload_digest;
  std::vector<TransferGraph> schedules;
  std::vector<Bucket> buckets;  ///< in launch order
  BatchPlan batch;
  double error_budget = 0;  ///< largest relative error of a reduced gradient (reduced_error.hpp)
  /// What the plan was asked to have, as has one that takes its place: the only family (empty:
  /// any), and buckets of this size (0: of any).
  std::string only_schedule;
  Bytes only_bucket_size;
  /// The steps 0 to here send FP32 over the same transfers, whatever their codecs: at first,
  /// gradients change too much from step to step for what strong codecs leave out to be made up for
  /// (Lin et al., Deep Gradient Compression, ICLR 2018).
  std::int64_t compression_warmup_steps = 0;
  Prediction prediction;
  std::vector<std::string> notes;  ///< why the plan is as it is, one sentence each
  std::uint64_t seed = 0;
  /// Of an FP32 all-reduce alone on the cluster, sizes ascending; empty if nobody looked. For
  /// people and for callers with messages of their own: buckets have their schedules above.
  std::vector<ScheduleRange> schedules_by_size;
  /// Of the cluster's machines, which routes tell apart: the links are those of routes. Empty where
  /// no machine has two.
  std::vector<topology::Adapter> adapters;

  std::size_t rank_count() const { return rank_names.size(); }
  bool is_compression_warmup(std::int64_t step) const { return step < compression_warmup_steps; }
};

/// The plan without codecs: as its steps of warm-up are executed.
Plan without_codecs(Plan plan);

}  // namespace rackrail::plan

#include "plan/verifier.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/graph_verifier.hpp"
#include "plan/limits.hpp"
#include "plan/problem_list.hpp"
#include "plan/slice_unit.hpp"

namespace rackrail::plan {
namespace {

// Predictions may be that much below the bound: where ranks are identical, one is simulated for
// all.
constexpr double kBelowBound = 0.01;
constexpr double kRounding = 1e-6;
constexpr double kLeastLossyError = 1e-6;  // no codec that loses anything loses less

void check_tiers(const Plan& plan, const topology::Topology& topology, ProblemList& problems) {
  std::set<std::string> tiers;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    tiers.insert(topology.link(LinkId(i)).tier);
  }
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    for (const auto& [tier, codec] : plan.buckets[i].codec_tiers) {
      if (!tiers.contains(tier)) {
        problems.add([&] {
          return fmt::format("bucket {}: codec '{}' on tier '{}', which the cluster '{}' has not",
                             i, to_string(codec), tier, topology.name());
        });
      }
    }
  }
}

void check_cluster(const Plan& plan, const topology::Topology& topology, ProblemList& problems) {
  if (plan.cluster_digest != topology.digest()) {
    problems.add([&] {
      return fmt::format("made for the cluster '{}', not for '{}' (their digests differ)",
                         plan.cluster_name, topology.name());
    });
  }
  for (std::size_t i = 0; i < std::min(plan.rank_count(), topology.rank_count()); ++i) {
    const std::string& there = topology.node(topology.node_of(Rank(i))).name;
    if (plan.rank_names[i] != there) {
      problems.add([&] {
        return fmt::format("rank {} is '{}' in the plan, '{}' in the cluster", i,
                           plan.rank_names[i], there);
      });
    }
  }
}

/// Of the transfers; unknown ones, which the schedule's own check complains about, left out.
std::vector<Codec> codecs_used(const TransferGraph& schedule) {
  std::vector<bool> is_used(schedule.codecs().size(), false);
  for (const Transfer& transfer : schedule.transfers()) {
    if (transfer.codec < is_used.size()) {
      is_used[transfer.codec] = true;
    }
  }
  std::vector<Codec> codecs;
  for (std::size_t i = 0; i < is_used.size(); ++i) {
    if (is_used[i]) {
      codecs.push_back(schedule.codecs()[i]);
    }
  }
  return codecs;
}

// What a bucket says of its codecs is what tables show, and by what some decide (warm-up, error
// feedback); what is sent is what the schedule's transfers say.
template <typename Complain>
void check_labels(const Bucket& bucket, const TransferGraph& schedule,
                  const std::vector<Codec>& codecs, const Complain& complain) {
  if (codecs.empty()) {
    return;
  }
  const auto is_used = [&](const Codec& codec) { return std::ranges::count(codecs, codec) > 0; };
  const Codec strongest = *std::ranges::max_element(codecs, {}, &Codec::kind);
  if (!is_used(bucket.codec) || bucket.codec.kind != strongest.kind) {
    complain(fmt::format("codec '{}', the strongest of its schedule '{}' is '{}'",
                         to_string(bucket.codec), schedule.name(), to_string(strongest)));
  }
  for (const auto& [tier, codec] : bucket.codec_tiers) {
    if (!is_used(codec)) {
      complain(fmt::format("codec '{}' on tier '{}', its schedule '{}' has none such",
                           to_string(codec), tier, schedule.name()));
    }
  }
}

void check_buckets(const Plan& plan, ProblemList& problems) {
  std::vector<std::vector<Codec>> codecs;  // by schedule
  for (const TransferGraph& schedule : plan.schedules) {
    codecs.push_back(codecs_used(schedule));
  }
  std::set<std::uint32_t> taken;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    const auto complain = [&](const std::string& what) {
      problems.add([&] { return fmt::format("bucket {}: {}", i, what); });
    };
    if (bucket.elements < 1) {
      complain(fmt::format("{} elements, expected at least 1", bucket.elements));
    }
    if (bucket.slice_elements < 1 || bucket.slice_elements % kSliceUnit != 0) {
      complain(fmt::format("slices of {} elements, expected a multiple of {}",
                           bucket.slice_elements, kSliceUnit));
    }
    if (bucket.schedule >= plan.schedules.size()) {
      complain(fmt::format("schedule {}, the plan has {}", bucket.schedule, plan.schedules.size()));
    } else if (plan.schedules[bucket.schedule].collective() != Collective::kAllReduce) {
      complain(
          fmt::format("schedule '{}' is no all-reduce", plan.schedules[bucket.schedule].name()));
    }
    if (bucket.schedule < plan.schedules.size()) {
      check_labels(bucket, plan.schedules[bucket.schedule], codecs[bucket.schedule], complain);
    }
    for (std::size_t k = 0; k < bucket.tensors.size(); ++k) {
      if (k > 0 && bucket.tensors[k] <= bucket.tensors[k - 1]) {
        complain(fmt::format("tensor {} after tensor {}, expected ascending order",
                             bucket.tensors[k], bucket.tensors[k - 1]));
      } else if (!taken.insert(bucket.tensors[k]).second) {
        complain(fmt::format("tensor {} is in another bucket too", bucket.tensors[k]));
      }
    }
  }
}

void check_workload(const Plan& plan, const Workload& workload, ProblemList& problems) {
  if (plan.workload_digest != workload.digest()) {
    problems.add([&] {
      return fmt::format("made for the workload '{}', not for '{}' (their digests differ)",
                         plan.workload_name, workload.name);
    });
  }
  std::vector<bool> covered(workload.tensors.size(), false);
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const Bucket& bucket = plan.buckets[i];
    std::int64_t elements = 0;
    for (const std::uint32_t tensor : bucket.tensors) {
      if (tensor >= covered.size()) {
        problems.add([&] {
          return fmt::format("bucket {}: tensor {}, the workload '{}' has {}", i, tensor,
                             workload.name, covered.size());
        });
        continue;
      }
      covered[tensor] = true;
      elements += workload.tensors[tensor].elements;
    }
    if (elements != bucket.elements) {
      problems.add([&] {
        return fmt::format("bucket {}: {} elements, its tensors have {}", i, bucket.elements,
                           elements);
      });
    }
  }
  for (std::size_t tensor = 0; tensor < covered.size(); ++tensor) {
    if (!covered[tensor]) {
      problems.add([&] {
        return fmt::format("tensor {} ('{}') is in no bucket", tensor,
                           workload.tensors[tensor].name);
      });
    }
  }
}

void check_figures(const Plan& plan, ProblemList& problems) {
  const auto require = [&](bool is_right, const char* what, double found,
                           const std::string& expected) {
    if (!is_right) {
      problems.add([&] { return fmt::format("{} {:g}, expected {}", what, found, expected); });
    }
  };
  const auto require_within = [&](const char* what, double found, double most) {
    require(found >= 0 && found <= most, what, found, fmt::format("0 to {:g}", most));
  };
  require_within("learning rate", plan.batch.learning_rate, kMostLearningRate);
  require_within("error budget", plan.error_budget, kMostErrorBudget);
  require_within("share of synchronisation", plan.prediction.sync_share, 1);
  const auto lossy = std::ranges::find_if(
      plan.buckets, [](const Bucket& bucket) { return bucket.codec.is_lossy(); });
  if (plan.error_budget < kLeastLossyError && lossy != plan.buckets.end()) {
    problems.add([&] {
      return fmt::format("error budget {:g}, bucket {} has codec '{}'", plan.error_budget,
                         lossy - plan.buckets.begin(), to_string(lossy->codec));
    });
  }
  const Prediction& prediction = plan.prediction;
  if (prediction.step_time > Duration() && prediction.bound > Duration()) {
    const double gap = prediction.step_time / prediction.bound - 1;
    require(gap >= -kBelowBound, "lower bound", prediction.bound.seconds(),
            fmt::format("at most the step of {:g} s", prediction.step_time.seconds()));
    require(std::abs(prediction.gap - gap) <= kRounding * (1 + std::abs(gap)), "gap",
            prediction.gap, fmt::format("{:g}: step over lower bound, less 1", gap));
  } else {
    require(prediction.gap == 0, "gap", prediction.gap, "0 without a step time and a lower bound");
  }
}

void check_batch(const Plan& plan, ProblemList& problems) {
  const BatchPlan& batch = plan.batch;
  if (batch.local_batch.size() != plan.rank_count()) {
    problems.add([&] {
      return fmt::format("batch: sizes for {} ranks, the plan has {}", batch.local_batch.size(),
                         plan.rank_count());
    });
  }
  const auto smallest = std::min_element(batch.local_batch.begin(), batch.local_batch.end());
  if ((smallest != batch.local_batch.end() && *smallest < 1) || batch.accumulation < 1) {
    problems.add([] { return std::string("batch: sizes and passes must be at least 1"); });
  } else if (batch.global_batch() > kMostSamples) {
    problems.add([&] {
      return fmt::format("batch: {} samples in a step, expected at most {}", batch.global_batch(),
                         kMostSamples);
    });
  }
}

}  // namespace

VerifyReport verify(const TransferGraph& graph, const topology::Topology* topology) {
  ProblemList problems;
  VerifyReport report = check_graph(graph, topology, problems);
  report.problems = problems.take();
  return report;
}

VerifyReport verify(const Plan& plan, const topology::Topology* topology,
                    const Workload* workload) {
  ProblemList problems;
  VerifyReport total;
  if (plan.rank_count() == 0) {
    problems.add([] { return std::string("no ranks"); });
  }
  if (topology != nullptr) {
    check_cluster(plan, *topology, problems);
    check_tiers(plan, *topology, problems);
  }
  for (const TransferGraph& schedule : plan.schedules) {
    problems.set_prefix(fmt::format("schedule '{}': ", schedule.name()));
    if (schedule.rank_count() != plan.rank_count()) {
      problems.add([&] {
        return fmt::format("made for {} ranks, the plan has {}", schedule.rank_count(),
                           plan.rank_count());
      });
      continue;
    }
    const VerifyReport report = check_graph(schedule, topology, problems);
    total.transfers += report.transfers;
    total.depth = std::max(total.depth, report.depth);
    total.largest_fan_in = std::max(total.largest_fan_in, report.largest_fan_in);
  }
  problems.set_prefix({});
  check_buckets(plan, problems);
  if (workload != nullptr) {
    check_workload(plan, *workload, problems);
  }
  check_batch(plan, problems);
  check_figures(plan, problems);
  total.problems = problems.take();
  return total;
}

}  // namespace rackrail::plan

#include "cli/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/parse_units.hpp"
#include "cli/table.hpp"
#include "plan/codec_name.hpp"
#include "planner/batch/batch.hpp"
#include "planner/search/finished_plan.hpp"

namespace rackrail::cli {

namespace {

/// A plan of more lines than this is shown with identical buckets in one line wherever they are.
constexpr std::size_t kMostRuns = 12;

/// Buckets that differ in size only.
struct LikeBuckets {
  std::string schedule;
  std::string mechanism;
  std::string codecs;
  std::int64_t slice_elements = 0;
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t count = 0;
  std::size_t tensors = 0;
  std::int64_t least = 0;  ///< elements
  std::int64_t most = 0;

  bool is_like(const LikeBuckets& other) const {
    return schedule == other.schedule && mechanism == other.mechanism && codecs == other.codecs &&
           slice_elements == other.slice_elements;
  }
  void add(const LikeBuckets& later) {
    last = later.last;
    count += later.count;
    tensors += later.tensors;
    least = std::min(least, later.least);
    most = std::max(most, later.most);
  }
  std::string numbers() const {
    if (first == last) {
      return std::to_string(first);
    }
    const std::string range = fmt::format("{}-{}", first, last);
    return count == last - first + 1 ? range : fmt::format("{} of {}", count, range);
  }
  std::string sizes() const {
    const std::string from = to_string(Bytes(least * 4));
    const std::string to = to_string(Bytes(most * 4));
    return from == to ? from : fmt::format("{} - {}", from, to);
  }
};

/// Runs of like buckets; where those are too many, all that are alike, by their first one.
std::vector<LikeBuckets> like_buckets(const plan::Plan& plan) {
  std::vector<LikeBuckets> runs;
  for (std::size_t i = 0; i < plan.buckets.size(); ++i) {
    const plan::Bucket& bucket = plan.buckets[i];
    LikeBuckets one{plan.schedules.at(bucket.schedule).name(),
                    plan.schedules.at(bucket.schedule).mechanism(),
                    codec_text(bucket),
                    bucket.slice_elements,
                    i,
                    i,
                    1,
                    bucket.tensors.size(),
                    bucket.elements,
                    bucket.elements};
    if (!runs.empty() && runs.back().is_like(one)) {
      runs.back().add(one);
    } else {
      runs.push_back(std::move(one));
    }
  }
  if (runs.size() <= kMostRuns) {
    return runs;
  }
  std::vector<LikeBuckets> kinds;
  for (LikeBuckets& run : runs) {
    const auto like =
        std::ranges::find_if(kinds, [&](const LikeBuckets& kind) { return kind.is_like(run); });
    if (like != kinds.end()) {
      like->add(run);
    } else {
      kinds.push_back(std::move(run));
    }
  }
  return kinds;
}

/// Samples on each rank in a baseline whose batch is not the plan's; none of others.
std::optional<std::int64_t> own_local_batch(const plan::Plan& plan, const std::string& baseline) {
  return planner::is_without_planner(baseline) && !planner::is_same_everywhere(plan.batch)
             ? std::optional(planner::same_everywhere(plan.batch).local_batch.front())
             : std::nullopt;
}

}  // namespace

std::string baseline_text(const plan::Plan& plan, const std::string& baseline) {
  static const std::map<std::string, std::string> kInWords = {
      {"best fp32", "best found in FP32"},
      {"best fp16", "best found with FP16 at most"},
      {"naive ring fp32 25 MiB", "naive: FP32 ring, 25 MiB buckets"},
      {"double tree fp32", "double tree, FP32"},
      {"parameter server fp32", "parameter server, FP32"}};
  const auto known = kInWords.find(baseline);
  const std::string& name = known == kInWords.end() ? baseline : known->second;
  const auto samples = own_local_batch(plan, baseline);
  return samples ? fmt::format("{}, {} samples on each rank", name, *samples) : name;
}

nlohmann::json plan_json(const plan::Plan& plan) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const plan::Bucket& bucket : plan.buckets) {
    nlohmann::json tiers = nlohmann::json::object();
    for (const auto& [tier, codec] : bucket.codec_tiers) {
      tiers[tier] = plan::to_string(codec);
    }
    buckets.push_back({{"bytes", bucket.elements * 4},
                       {"tensors", bucket.tensors.size()},
                       {"schedule", plan.schedules.at(bucket.schedule).name()},
                       {"mechanism", plan.schedules.at(bucket.schedule).mechanism()},
                       {"codec", plan::to_string(bucket.codec)},
                       {"codec_tiers", tiers}});
  }
  nlohmann::json baselines = nlohmann::json::object();
  nlohmann::json own_batches = nlohmann::json::object();
  for (const auto& [name, time] : plan.prediction.baselines) {
    baselines[name] = time.seconds();
    if (const auto samples = own_local_batch(plan, name)) {
      own_batches[name] = *samples;
    }
  }
  nlohmann::json by_size = nlohmann::json::array();
  for (const plan::ScheduleRange& range : plan.schedules_by_size) {
    by_size.push_back({{"from_bytes", range.from.count()}, {"schedule", range.schedule}});
  }
  return {{"cluster", plan.cluster_name},
          {"workload", plan.workload_name},
          {"ranks", plan.rank_count()},
          {"step_time_s", plan.prediction.step_time.seconds()},
          {"bound_s", plan.prediction.bound.seconds()},
          {"bound_reason", plan.prediction.bound_reason},
          {"gap", plan.prediction.gap},
          {"sync_share", plan.prediction.sync_share},
          {"global_batch", plan.batch.global_batch()},
          {"local_batch", plan.batch.local_batch},
          {"accumulation", plan.batch.accumulation},
          {"learning_rate", plan.batch.learning_rate},
          {"learning_rate_rule", plan.batch.learning_rate_rule},
          {"error_budget", plan.error_budget},
          {"compression_warmup_steps", plan.compression_warmup_steps},
          {"warmup_step_time_s", plan.compression_warmup_steps > 0
                                     ? nlohmann::json(plan.prediction.warmup_step_time.seconds())
                                     : nlohmann::json()},
          {"buckets", buckets},
          {"baselines", baselines},
          {"baseline_local_batch", own_batches},
          {"schedules_by_size", by_size},
          {"notes", plan.notes}};
}

std::string codec_text(const plan::Bucket& bucket) {
  std::vector<std::string> parts;
  for (const auto& [tier, codec] : bucket.codec_tiers) {
    parts.push_back(fmt::format("{} {}", tier, plan::display_name(codec)));
  }
  return parts.empty() ? plan::display_name(bucket.codec)
                       : fmt::format("{}", fmt::join(parts, ", "));
}

std::string bucket_table(const plan::Plan& plan) {
  Table table({{"bucket", Align::kRight},
               {"size", Align::kRight},
               {"tensors", Align::kRight},
               {"schedule"},
               {"codec by tier"},
               {"slice", Align::kRight}});
  for (const LikeBuckets& like : like_buckets(plan)) {
    table.add_row({like.numbers(), like.sizes(), std::to_string(like.tensors), like.schedule,
                   like.codecs, to_string(Bytes(like.slice_elements * 4))});
  }
  return table.to_string();
}

std::string mechanism_lines(const plan::Plan& plan) {
  std::map<std::string, std::size_t> buckets;
  for (const plan::Bucket& bucket : plan.buckets) {
    const plan::TransferGraph& graph = plan.schedules.at(bucket.schedule);
    if (!graph.mechanism().empty()) {
      ++buckets[graph.label()];
    }
  }
  std::string text;
  for (const auto& [label, count] : buckets) {
    text += fmt::format("mechanism       {} ({} bucket{})\n", label, count, count == 1 ? "" : "s");
  }
  return text;
}

std::string prediction_table(const plan::Plan& plan) {
  const plan::Prediction& prediction = plan.prediction;
  Table table({{"plan"}, {"step time", Align::kRight}, {"against the bound", Align::kRight}});
  const auto row = [&](const std::string& name, Duration time, bool has_batch_of_plan = true) {
    table.add_row({name, to_string(time),
                   has_batch_of_plan && prediction.bound.picoseconds() > 0
                       ? fmt::format("{:+.1f} %", (time / prediction.bound - 1) * 100)
                       : "-"});
  };
  row("lower bound", prediction.bound);
  row("this plan", prediction.step_time);
  if (plan.compression_warmup_steps > 0) {
    row(fmt::format("its first {} steps, in FP32", plan.compression_warmup_steps),
        prediction.warmup_step_time);
  }
  for (const auto& [name, time] : prediction.baselines) {
    row(baseline_text(plan, name), time, !own_local_batch(plan, name).has_value());
  }
  return table.to_string();
}

}  // namespace rackrail::cli

#include "plan/plan_message.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plan/format.hpp"
#include "plan/message_errors.hpp"
#include "plan/plan.pb.h"
#include "plan/schedule_message.hpp"

namespace rackrail::plan {
namespace {

using message::at;
using message::fail;
using message::one_line;
using message::utf8;

// The oldest formats that know of them.
constexpr int kFirstFormat = 1;
constexpr int kFormatWithWarmup = 2;
constexpr int kFormatWithRatesAndAdapters = 3;
constexpr int kFormatWithRequests = 4;
constexpr int kFormatWithMechanisms = 5;
constexpr int kFormatWithMutualSums = 6;
// 2³² samples per rank and 2¹⁵ ranks stay far within 64 bits, as do this many passes and steps.
constexpr std::int64_t kMost = std::int64_t{1} << 32U;
constexpr std::int64_t kMostPasses = std::int64_t{1} << 14U;

std::int64_t within(std::int64_t value, std::int64_t least, std::int64_t most, const char* where) {
  if (value < least || value > most) {
    fail(where, fmt::format("{}", value), fmt::format("{} to {}", least, most));
  }
  return value;
}

double finite(double value, const char* where) {
  if (!std::isfinite(value)) {
    fail(where, fmt::format("{}", value), "a finite number");
  }
  return value;
}

std::vector<std::string> lines(const google::protobuf::RepeatedPtrField<std::string>& texts,
                               const char* where) {
  std::vector<std::string> all;
  for (const std::string& text : texts) {
    all.push_back(one_line(text, where));
  }
  return all;
}

Duration duration(std::int64_t picoseconds, const char* where) {
  if (picoseconds < 0) {
    fail(where, fmt::format("{} ps", picoseconds), "no negative time");
  }
  return Duration(picoseconds);
}

void write_bucket(const Bucket& bucket, v1::Bucket& message) {
  message.mutable_tensors()->Add(bucket.tensors.begin(), bucket.tensors.end());
  message.set_elements(bucket.elements);
  message.set_schedule(bucket.schedule);
  message.set_slice_elements(bucket.slice_elements);
  message.set_priority(bucket.priority);
  message.set_codec(to_string(bucket.codec));
  for (const auto& [tier, codec] : bucket.codec_tiers) {
    v1::TierCodec& entry = *message.add_codec_tiers();
    entry.set_tier(utf8(tier, "codec_tiers"));
    entry.set_codec(to_string(codec));
  }
}

Bucket read_bucket(const v1::Bucket& message) {
  Bucket bucket;
  bucket.tensors.assign(message.tensors().begin(), message.tensors().end());
  bucket.elements = message.elements();
  bucket.schedule = message.schedule();
  bucket.slice_elements = message.slice_elements();
  bucket.priority = message.priority();
  bucket.codec = parse_codec(message.codec());
  for (const v1::TierCodec& entry : message.codec_tiers()) {
    if (!bucket.codec_tiers
             .emplace(one_line(entry.tier(), "codec_tiers"), parse_codec(entry.codec()))
             .second) {
      fail("codec_tiers", fmt::format("tier '{}' twice", entry.tier()), "each tier once");
    }
  }
  return bucket;
}

void write_batch(const BatchPlan& batch, v1::Batch& message) {
  message.mutable_local_batch()->Add(batch.local_batch.begin(), batch.local_batch.end());
  message.set_accumulation(batch.accumulation);
  message.set_learning_rate(batch.learning_rate);
  message.set_learning_rate_rule(utf8(batch.learning_rate_rule, "learning_rate_rule"));
  message.set_warmup_steps(batch.warmup_steps);
}

BatchPlan read_batch(const v1::Batch& message) {
  BatchPlan batch;
  for (const std::int64_t samples : message.local_batch()) {
    batch.local_batch.push_back(within(samples, 1, kMost, "local_batch"));
  }
  batch.accumulation = within(message.accumulation(), 1, kMostPasses, "accumulation");
  batch.learning_rate = finite(message.learning_rate(), "learning_rate");
  batch.learning_rate_rule = one_line(message.learning_rate_rule(), "learning_rate_rule");
  batch.warmup_steps = within(message.warmup_steps(), 0, kMost, "warmup_steps");
  return batch;
}

void write_prediction(const Prediction& prediction, v1::Prediction& message) {
  message.set_step_time_ps(prediction.step_time.picoseconds());
  message.set_bound_ps(prediction.bound.picoseconds());
  message.set_bound_reason(utf8(prediction.bound_reason, "bound_reason"));
  message.set_gap(prediction.gap);
  message.set_sync_share(prediction.sync_share);
  message.set_warmup_step_time_ps(prediction.warmup_step_time.picoseconds());
  for (const auto& [name, step_time] : prediction.baselines) {
    v1::Baseline& baseline = *message.add_baselines();
    baseline.set_name(utf8(name, "baselines"));
    baseline.set_step_time_ps(step_time.picoseconds());
  }
}

Prediction read_prediction(const v1::Prediction& message) {
  Prediction prediction;
  prediction.step_time = duration(message.step_time_ps(), "step_time_ps");
  prediction.bound = duration(message.bound_ps(), "bound_ps");
  prediction.bound_reason = one_line(message.bound_reason(), "bound_reason");
  prediction.gap = finite(message.gap(), "gap");
  prediction.sync_share = finite(message.sync_share(), "sync_share");
  prediction.warmup_step_time = duration(message.warmup_step_time_ps(), "warmup_step_time_ps");
  for (const v1::Baseline& baseline : message.baselines()) {
    const Duration step_time = duration(baseline.step_time_ps(), "baselines");
    if (baseline.name().empty() || step_time == Duration()) {
      fail("baselines", fmt::format("'{}' of {} ps", baseline.name(), step_time.picoseconds()),
           "a name and a step time");
    }
    if (!prediction.baselines.emplace(one_line(baseline.name(), "baselines"), step_time).second) {
      fail("baselines", fmt::format("'{}' twice", baseline.name()), "each name once");
    }
  }
  return prediction;
}

std::vector<ScheduleRange> read_ranges(const v1::Plan& message) {
  std::vector<ScheduleRange> ranges;
  for (const v1::ScheduleRange& range : message.schedules_by_size()) {
    const Bytes from(range.from_bytes());
    if (from < Bytes(1) || (!ranges.empty() && from <= ranges.back().from)) {
      fail("schedules_by_size", fmt::format("from_bytes {}", from.count()),
           "positive sizes, each larger than the last");
    }
    if (range.schedule().empty()) {
      fail("schedules_by_size", "no schedule", "the name of one");
    }
    ranges.push_back({from, one_line(range.schedule(), "schedules_by_size")});
  }
  return ranges;
}

int version_for(const Plan& plan) {
  if (std::ranges::any_of(plan.schedules, [](const TransferGraph& graph) {
        return !graph.mutual_sums().empty();
      })) {
    return kFormatWithMutualSums;
  }
  if (std::ranges::any_of(plan.schedules,
                          [](const TransferGraph& graph) { return !graph.mechanism().empty(); })) {
    return kFormatWithMechanisms;
  }
  if (!plan.only_schedule.empty() || plan.only_bucket_size > Bytes(0)) {
    return kFormatWithRequests;
  }
  if (!plan.adapters.empty() ||
      std::any_of(plan.schedules.begin(), plan.schedules.end(),
                  [](const TransferGraph& graph) { return graph.has_rates(); })) {
    return kFormatWithRatesAndAdapters;
  }
  return plan.compression_warmup_steps > 0 ? kFormatWithWarmup : kFirstFormat;
}

void write_adapter(const topology::Adapter& adapter, v1::Adapter& message) {
  message.set_host(utf8(adapter.host, "adapters"));
  message.set_name(utf8(adapter.name, "adapters"));
  message.set_devices(utf8(adapter.devices, "adapters"));
  for (const LinkId link : adapter.out) {
    message.add_links_out(link.value());
  }
  for (const LinkId link : adapter.in) {
    message.add_links_in(link.value());
  }
}

topology::Adapter read_adapter(const v1::Adapter& message) {
  if (message.name().empty()) {
    fail("name", "nothing", "the name of an adapter");
  }
  topology::Adapter adapter{.host = one_line(message.host(), "host"),
                            .name = one_line(message.name(), "name"),
                            .devices = one_line(message.devices(), "devices"),
                            .out = {},
                            .in = {}};
  for (const std::uint32_t link : message.links_out()) {
    adapter.out.emplace_back(link);
  }
  for (const std::uint32_t link : message.links_in()) {
    adapter.in.emplace_back(link);
  }
  return adapter;
}

}  // namespace

void write_message(const Plan& plan, v1::Plan& message) {
  message.Clear();
  message.set_version(version_for(plan));
  message.set_name(utf8(plan.name, "name"));
  message.set_cluster_name(utf8(plan.cluster_name, "cluster_name"));
  message.set_cluster_digest(utf8(plan.cluster_digest, "cluster_digest"));
  for (const std::string& name : plan.rank_names) {
    message.add_rank_names(utf8(name, "rank_names"));
  }
  message.set_workload_name(utf8(plan.workload_name, "workload_name"));
  message.set_workload_digest(utf8(plan.workload_digest, "workload_digest"));
  for (const Bucket& bucket : plan.buckets) {
    write_bucket(bucket, *message.add_buckets());
  }
  write_batch(plan.batch, *message.mutable_batch());
  message.set_error_budget(plan.error_budget);
  message.set_only_schedule(utf8(plan.only_schedule, "only_schedule"));
  message.set_only_bucket_size(plan.only_bucket_size.count());
  message.set_compression_warmup_steps(plan.compression_warmup_steps);
  write_prediction(plan.prediction, *message.mutable_prediction());
  for (const std::string& note : plan.notes) {
    message.add_notes(utf8(note, "notes"));
  }
  message.set_seed(plan.seed);
  for (const TransferGraph& schedule : plan.schedules) {
    write_schedule(schedule, *message.add_schedules());
  }
  for (const ScheduleRange& range : plan.schedules_by_size) {
    v1::ScheduleRange& entry = *message.add_schedules_by_size();
    entry.set_from_bytes(range.from.count());
    entry.set_schedule(utf8(range.schedule, "schedules_by_size"));
  }
  for (const topology::Adapter& adapter : plan.adapters) {
    write_adapter(adapter, *message.add_adapters());
  }
}

Plan read_message(const v1::Plan& message) {
  Plan plan;
  plan.name = one_line(message.name(), "name");
  plan.cluster_name = one_line(message.cluster_name(), "cluster_name");
  plan.cluster_digest = one_line(message.cluster_digest(), "cluster_digest");
  plan.rank_names = lines(message.rank_names(), "rank_names");
  plan.workload_name = one_line(message.workload_name(), "workload_name");
  plan.workload_digest = one_line(message.workload_digest(), "workload_digest");
  for (int i = 0; i < message.buckets_size(); ++i) {
    plan.buckets.push_back(
        at(fmt::format("buckets[{}]", i), [&] { return read_bucket(message.buckets(i)); }));
  }
  plan.batch = at("batch", [&] { return read_batch(message.batch()); });
  plan.error_budget = finite(message.error_budget(), "error_budget");
  plan.only_schedule = one_line(message.only_schedule(), "only_schedule");
  plan.only_bucket_size = Bytes(within(
      message.only_bucket_size(), 0, std::numeric_limits<std::int64_t>::max(), "only_bucket_size"));
  plan.compression_warmup_steps =
      within(message.compression_warmup_steps(), 0, kMost, "compression_warmup_steps");
  plan.prediction = at("prediction", [&] { return read_prediction(message.prediction()); });
  plan.notes = lines(message.notes(), "notes");
  plan.seed = message.seed();
  for (int i = 0; i < message.schedules_size(); ++i) {
    plan.schedules.push_back(at(fmt::format("schedules[{}]", i), [&] {
      return read_schedule(message.schedules(i), plan.rank_names.size());
    }));
  }
  plan.schedules_by_size = read_ranges(message);
  for (int i = 0; i < message.adapters_size(); ++i) {
    plan.adapters.push_back(
        at(fmt::format("adapters[{}]", i), [&] { return read_adapter(message.adapters(i)); }));
  }
  return plan;
}

}  // namespace rackrail::plan

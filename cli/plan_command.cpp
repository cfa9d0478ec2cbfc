#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "cli/commands.hpp"
#include "cli/decision_file.hpp"
#include "cli/inputs.hpp"
#include "cli/interrupt.hpp"
#include "cli/plan_run_text.hpp"
#include "cli/progress.hpp"
#include "cli/session.hpp"
#include "cli/simulation_notes.hpp"
#include "cli/time_budget.hpp"
#include "explore/host_count.hpp"
#include "explore/time_to_target.hpp"
#include "plan/codec_errors.hpp"
#include "plan/codec_name.hpp"
#include "plan/format.hpp"
#include "plan/limits.hpp"
#include "plan/reduced_error.hpp"
#include "planner/planner.hpp"
#include "planner/request/options.hpp"
#include "planner/search/compare.hpp"
#include "planner/search/plan_report.hpp"
#include "planner/search/search.hpp"
#include "planner/tuning/schedule_table.hpp"
#include "sim/simulator.hpp"

namespace rackrail::cli {

namespace {

constexpr int kMostWarmupSteps = 1'000'000'000;
constexpr Bytes kSmallestBucket = 4_B;
constexpr std::int64_t kFloatBytes = 4;
/// Up to here the table of schedules by size takes less than the search; above, it is a coarse one,
/// which takes a tenth of that, unless there is --compare.
constexpr std::size_t kRanksOfQuickTable = 16;
/// Above, schedules without tiers alone take longer to be made than the search has.
constexpr std::size_t kRanksOfCoarseTable = 512;
constexpr std::size_t kRanksOfCoarseTableOfQuick = 128;  // beside a quick search

struct PlanOptions {
  ClusterOptions cluster;
  std::string workload;
  std::string output;
  double error_budget = planner::PlannerOptions{}.error_budget;
  bool has_error_budget = false;  ///< whether it was said
  std::string schedule;
  std::string codec;
  std::string bucket_size;
  std::int64_t local_batch = 0;
  std::int64_t max_global_batch = 0;
  bool compress_outer_layers = false;
  std::optional<std::int64_t> compression_warmup;
  std::string batch_policy{planner::name_of(planner::PlannerOptions{}.batch_policy)};
  std::string learning_rate_rule{planner::name_of(planner::PlannerOptions{}.learning_rate_rule)};
  bool has_batch_policy = false;  ///< whether it was said
  std::string route_rates = "auto";
  bool naive = false;
  bool compare = false;
  bool compare_hosts = false;
  bool explain = false;
  std::string time_budget;
  std::string gap;
  std::string search = "quick";
  std::optional<double> target_samples;
  std::shared_ptr<DecisionFile> decisions = std::make_shared<DecisionFile>();
};

planner::PlannerOptions planner_options(const PlanOptions& options, const Session& session) {
  planner::PlannerOptions result;
  result.error_budget = options.error_budget;
  result.seed = session.seed;
  result.protect_outer_layers = !options.compress_outer_layers;
  result.compression_warmup = options.compression_warmup;
  if (!options.schedule.empty()) {
    result.schedule = options.schedule;
  }
  if (!options.codec.empty()) {
    result.codec =
        named("<command line>", "--codec", [&] { return plan::parse_codec(options.codec); });
    result.holds_codec_to_budget = options.has_error_budget;
  }
  if (!options.bucket_size.empty()) {
    result.bucket_size =
        named("<command line>", "--bucket-size", [&] { return parse_bytes(options.bucket_size); });
    if (*result.bucket_size < kSmallestBucket) {
      throw ConfigError(ErrorContext{"<command line>", "--bucket-size",
                                     "'" + options.bucket_size + "'", "at least one float (4 B)"});
    }
  }
  if (options.local_batch > 0) {
    result.local_batch = options.local_batch;
  }
  if (options.max_global_batch > 0) {
    result.max_global_batch = options.max_global_batch;
  }
  result.batch_policy = named("<command line>", "--batch-policy",
                              [&] { return planner::parse_batch_policy(options.batch_policy); });
  result.route_rates = named("<command line>", "--route-rates",
                             [&] { return planner::parse_route_rates(options.route_rates); });
  result.learning_rate_rule = named("<command line>", "--learning-rate-rule", [&] {
    return planner::parse_learning_rate_rule(options.learning_rate_rule);
  });
  result.effort = parse_search(options.search);
  if (!options.time_budget.empty()) {
    result.effort = planner::SearchEffort::kThorough;  // it ends the search instead
  }
  if (!options.gap.empty()) {
    constexpr double kLargestGap = 1000;
    result.enough_gap = named("<command line>", "--gap", [&] { return parse_share(options.gap); });
    if (*result.enough_gap > kLargestGap) {
      throw ConfigError(ErrorContext{"<command line>", "--gap", "'" + options.gap + "'",
                                     fmt::format("at most {:.0f}%", 100 * kLargestGap)});
    }
  }
  return result;
}

/// One encoding by the codec that was asked for, on this model's gradients.
void require_within_budget(const PlanOptions& options, const planner::PlannerOptions& chosen,
                           const plan::Workload& workload) {
  if (!chosen.codec || !chosen.holds_codec_to_budget) {
    return;
  }
  const double error = workload.codec_error(*chosen.codec);
  if (error > options.error_budget) {
    throw ConfigError(ErrorContext{
        "<command line>", "--codec " + options.codec,
        fmt::format("a relative error of {:.2g}", error),
        fmt::format("at most the --error-budget {}; or leave one out", options.error_budget)});
  }
}

std::chrono::nanoseconds time_budget(const std::string& text) {
  const Duration budget =
      named("<command line>", "--time-budget", [&] { return parse_duration(text); });
  if (budget <= Duration()) {
    throw ConfigError(
        ErrorContext{"<command line>", "--time-budget", "'" + text + "'", "a time above 0"});
  }
  constexpr std::int64_t kPicosecondsPerNanosecond = 1000;
  return std::chrono::nanoseconds(budget.picoseconds() / kPicosecondsPerNanosecond);
}

/// What the parts of the work share of a time budget: the search takes half where more is shown,
/// the report what is left, or half of that where plans are compared after it.
class PlanBudget {
 public:
  PlanBudget(std::chrono::nanoseconds budget, const PlanOptions& options)
      : search_(has_comparison(options) || options.explain ? budget / 2 : budget),
        report_(has_comparison(options) ? budget * 3 / 4 : budget),
        whole_(budget) {}

  std::function<bool()> of_search() {
    return [this] { return was_search_stopped_ = is_used_up(search_); };
  }
  std::function<bool()> of_report() {
    return [this] { return is_used_up(report_); };
  }
  std::function<bool()> of_whole() {
    return [this] { return is_used_up(whole_); };
  }
  bool was_search_stopped() const { return was_search_stopped_; }
  bool is_half_of_search_used_up() const { return search_.is_half_used_up(); }
  bool was_used_up() const { return whole_.was_used_up(); }

 private:
  static bool has_comparison(const PlanOptions& options) {
    return options.compare || options.compare_hosts;
  }
  /// Each of them has to see how long pieces of work take.
  bool is_used_up(TimeBudget& budget) {
    for (TimeBudget* one : {&search_, &report_, &whole_}) {
      one->is_used_up();
    }
    return budget.was_used_up();
  }

  TimeBudget search_;
  TimeBudget report_;
  TimeBudget whole_;
  bool was_search_stopped_ = false;
};

/// What one encoding does, of every codec that the plan uses.
std::vector<std::pair<plan::Codec, plan::CodecError>> errors_of_codecs(
    const plan::Plan& plan, const plan::Workload& workload) {
  std::map<std::string, plan::Codec> in_use;
  for (const plan::Bucket& bucket : plan.buckets) {
    for (const auto& [tier, codec] : bucket.codec_tiers) {
      in_use.emplace(plan::to_string(codec), codec);
    }
    in_use.emplace(plan::to_string(bucket.codec), bucket.codec);
  }
  std::vector<std::pair<plan::Codec, plan::CodecError>> errors;
  for (const auto& [name, codec] : in_use) {
    if (codec.is_lossy()) {
      errors.emplace_back(codec, workload.sourced_codec_error(codec));
    }
  }
  return errors;
}

/// Another plan that was found since: none that is shown is better than the one that is written.
void replace(MadePlan& made, plan::Plan better, const plan::Workload& workload) {
  better.schedules_by_size = std::move(made.plan.schedules_by_size);
  if (better.prediction.baselines.empty()) {
    better.prediction.baselines = std::move(made.plan.prediction.baselines);
  }
  made.plan = std::move(better);
  const Duration step = made.plan.prediction.step_time;
  for (explore::HostCountPoint& point : made.by_hosts) {
    if (point.ranks == made.plan.rank_count()) {
      point.goodput *= point.step_time / step;
      point.step_time = step;
    }
  }
  if (made.report.has_value()) {
    planner::hold_against(*made.report, made.plan, workload);
  }
}

/// Goodput by number of hosts, each with a plan of its own.
void compare_hosts(MadePlan& made, const topology::Topology& cluster,
                   const plan::Workload& workload, planner::PlannerOptions chosen) {
  chosen.compare_baselines = false;
  chosen.enough_gap.reset();  // rows of several gaps would not compare
  chosen.progress = nullptr;
  const auto cost = [&](const plan::Plan& plan) {
    return planner::seconds_per_useful_sample(workload, plan.batch, plan.prediction.step_time);
  };
  std::optional<plan::Plan> of_all;
  made.by_hosts = explore::goodput_by_hosts(cluster, workload, [&](const topology::Topology& part) {
    const auto costs = sim::make_cost_model(part, {});
    plan::Plan plan = planner::make_plan(part, workload, *costs, chosen);
    if (part.rank_count() < cluster.rank_count()) {
      return plan;
    }
    if (cost(plan) < cost(made.plan)) {
      of_all = plan;
    }
    return of_all.value_or(made.plan);
  });
  if (of_all.has_value()) {
    replace(made, *std::move(of_all), workload);
  }
}

void compare_families(MadePlan& made, const topology::Topology& cluster,
                      const plan::Workload& workload, plan::CostModel& cost_model,
                      const planner::PlannerOptions& chosen, bool was_stopped) {
  // A whole search prefers codecs that round less to so much time.
  const double worthwhile = was_stopped ? 0 : planner::kWorthwhile;
  made.compared = planner::compare_families(cluster, workload, cost_model, chosen, made.plan.batch,
                                            scaled(made.plan.prediction.step_time, 1 - worthwhile));
  if (made.compared->faster.has_value()) {
    replace(made, *std::move(made.compared->faster), workload);
  }
}

plan::Plan first_plan(MadePlan& made, const topology::Topology& cluster,
                      const plan::Workload& workload, plan::CostModel& cost_model,
                      const PlanOptions& options, const planner::PlannerOptions& chosen) {
  if (options.explain) {
    planner::ExplainedPlan explained =
        planner::make_explained_plan(cluster, workload, cost_model, chosen);
    made.report = std::move(explained.report);
    return std::move(explained.plan);
  }
  return options.naive ? planner::make_naive_plan(cluster, workload, cost_model, chosen)
                       : planner::make_plan(cluster, workload, cost_model, chosen);
}

/// What is to be said of a --bucket-size beyond which larger or smaller ones make no difference.
std::optional<std::string> idle_bucket_size_note(const PlanOptions& options,
                                                 const planner::PlannerOptions& chosen,
                                                 const plan::Workload& workload) {
  if (!chosen.bucket_size) {
    return std::nullopt;
  }
  const auto is_as_large = [&](const plan::GradientTensor& tensor) {
    return Bytes(tensor.elements * kFloatBytes) >= *chosen.bucket_size;
  };
  if (workload.gradient_bytes() <= *chosen.bucket_size) {
    return fmt::format("--bucket-size {} is larger than all gradients, {}: they are one bucket",
                       options.bucket_size, to_string(workload.gradient_bytes()));
  }
  if (std::ranges::all_of(workload.tensors, is_as_large)) {
    return fmt::format(
        "--bucket-size {} is smaller than any tensor: each tensor is a bucket of its own",
        options.bucket_size);
  }
  return std::nullopt;
}

/// Which schedule is fastest at which size, unless there are too many ranks to say so.
void add_schedules_by_size(plan::Plan& plan, const topology::Topology& cluster,
                           plan::CostModel& cost_model, bool compares,
                           planner::SearchEffort effort) {
  const std::size_t ranks = cluster.rank_count();
  const std::size_t unasked =
      effort == planner::SearchEffort::kQuick ? kRanksOfCoarseTableOfQuick : kRanksOfCoarseTable;
  const std::size_t most = compares ? planner::kMostTableRanks : unasked;
  if (ranks < 2) {
    return;
  }
  if (ranks > most) {
    plan.notes.push_back(fmt::format(
        "no table of the fastest schedule by size: above {} ranks it takes too long{}", most,
        ranks > planner::kMostTableRanks ? "" : "; `rackrail schedules` makes one"));
    return;
  }
  planner::ScheduleTableOptions table;
  table.stop = was_interrupted;
  table.is_coarse = !compares && ranks > kRanksOfQuickTable;
  table.effort = effort;
  const planner::ScheduleTable made = planner::make_schedule_table(cluster, cost_model, table);
  if (!made.was_stopped) {
    plan.schedules_by_size = made.ranges();
  }
}

void run_plan(Session& session, const PlanOptions& options) {
  planner::PlannerOptions chosen = planner_options(options, session);
  const topology::Topology cluster = options.cluster.load(session);
  const std::vector<std::string> notes = say_notes(session, cluster, {});
  const plan::Workload workload = load_workload(session, options.workload);
  require_within_budget(options, chosen, workload);
  if (options.has_batch_policy && chosen.batch_policy == planner::BatchPolicy::kGoodput &&
      !workload.noise_scale.has_value()) {
    throw ConfigError(ErrorContext{options.workload, "--batch-policy goodput", "no noise scale",
                                   "one in the workload; or another policy"});
  }
  session.add_output(options.output);
  session.add_output(options.decisions->path());
  chosen.decisions = options.decisions->log();
  const auto cost_model = sim::make_cost_model(cluster, {});
  ProgressBar bar("planning", session.progress_elsewhere());
  const planner::Progress whole = [&bar](double share, const std::string& what) {
    bar.update(share, what);
  };
  constexpr double kSearchBesideComparison = 0.5;  // share of the work
  const double share_of_search = options.compare ? kSearchBesideComparison : 1;
  chosen.progress = planner::part_of(whole, 0, share_of_search);
  const auto start = std::chrono::steady_clock::now();
  std::optional<PlanBudget> budget;
  if (!options.time_budget.empty()) {
    budget.emplace(time_budget(options.time_budget), options);
  }
  // By Ctrl-C, and where the budget is used up.
  const auto stopped_by = [&budget](std::function<bool()> (PlanBudget::*part)()) {
    return [is_used_up = budget ? ((*budget).*part)() : nullptr] {
      return was_interrupted() || (is_used_up && is_used_up());
    };
  };
  std::optional<EndsEarly> ends_early;
  if (!options.naive) {
    ends_early.emplace();
    chosen.stop = stopped_by(&PlanBudget::of_search);
    chosen.stop_report = stopped_by(&PlanBudget::of_report);
  }
  MadePlan made;
  PlanRun run{.output = options.output};
  named(options.cluster.cluster, "",
        [&] { made.plan = first_plan(made, cluster, workload, *cost_model, options, chosen); });
  chosen.decisions = {};
  if (budget.has_value()) {
    run.has_budget = true;
    run.was_stopped = budget->was_search_stopped();
    chosen.stop = stopped_by(&PlanBudget::of_whole);
  }
  // The table takes no longer than the search did, where it is made unasked.
  const bool has_time_for_table =
      !run.was_stopped && (!budget.has_value() || !budget->is_half_of_search_used_up());
  if (!options.naive && has_time_for_table && !was_interrupted()) {
    add_schedules_by_size(made.plan, cluster, *cost_model, options.compare, chosen.effort);
  }
  if (options.compare_hosts && !was_interrupted()) {
    compare_hosts(made, cluster, workload, chosen);
  }
  run.search_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.compare && !was_interrupted()) {
    chosen.progress = planner::part_of(whole, share_of_search, 1);
    compare_families(made, cluster, workload, *cost_model, chosen, run.was_stopped);
  }
  bar.clear();
  run.was_interrupted = ends_early.has_value() && was_interrupted();
  session.status = run.was_interrupted ? kInterrupted : kDone;
  if (budget.has_value() && (options.compare || options.compare_hosts)) {
    run.was_comparison_stopped = budget->was_used_up();
  }
  if (!options.output.empty()) {
    plan::save_plan(made.plan, options.output);
  }
  options.decisions->write();
  made.gradient_error = plan::reduced_error(made.plan, workload);
  made.codec_errors = errors_of_codecs(made.plan, workload);
  made.target = explore::time_to_target(workload, made.plan.batch, made.plan.prediction.step_time,
                                        options.target_samples);
  if (auto note = without_class_note(cluster, workload)) {
    made.plan.notes.push_back(*std::move(note));  // of what was read; the file has it without
  }
  if (auto note = idle_bucket_size_note(options, chosen, workload)) {
    made.plan.notes.push_back(*std::move(note));
  }
  if (session.json) {
    made.plan.notes.insert(made.plan.notes.end(), notes.begin(), notes.end());
    session.print_json(plan_run_json(made, run));
  } else {
    fmt::print("{}", plan_run_text(made, run, cluster, workload));
  }
}

}  // namespace

void add_plan_command(CLI::App& app, Session& session) {
  CLI::App* command =
      app.add_subcommand("plan", "Choose routes, codecs, buckets and batch size for a model");
  add_common_options(*command, session);
  const auto options = std::make_shared<PlanOptions>();
  command
      ->add_option("cluster,--cluster", options->cluster.cluster,
                   "Cluster file, or the name of a shipped cluster such as two-racks-40g")
      ->required();
  options->cluster.add_to(*command);
  options->cluster.add_calibration_to(*command);
  command
      ->add_option("workload,--workload,--model", options->workload,
                   "Workload file (YAML or CSV), or the name of a shipped model such as bert-large")
      ->required();
  command->add_option("-o,--output", options->output,
                      "Plan file to write. A name with .json is readable, any other is binary");
  CLI::Option* outer_layers =
      command->add_flag("--compress-outer-layers", options->compress_outer_layers,
                        "Compress the first and the last layer as strongly as the others. By "
                        "default they get FP16 at most");
  CLI::Option* warmup =
      command
          ->add_option("--compression-warmup", options->compression_warmup,
                       "Send FP32 in this many first steps of a training. Default: 200 where a "
                       "codec drops more than 10 % of a gradient, else 0; with --codec 0")
          ->check(CLI::Range(0, kMostWarmupSteps));
  CLI::Option* error_budget =
      add_share_option(*command, "--error-budget", options->error_budget, plan::kMostErrorBudget,
                       "Largest relative error that compression may add to a summed gradient. 0 "
                       "means FP32. With --codec it counts only if you give it");
  CLI::Option* schedule =
      command->add_option("--schedule", options->schedule,
                          "Use only this schedule family, e.g. ring; 'rackrail info' lists them");
  CLI::Option* codec =
      command->add_option("--codec", options->codec,
                          "Use only this codec between groups of near ranks, and at most it inside "
                          "them, e.g. fp16 or 'fp8:block=64'; 'rackrail info' lists them");
  command->add_option("--bucket-size", options->bucket_size,
                      "Use buckets of this size only, e.g. '25 MiB'");
  CLI::Option* local_batch = command
                                 ->add_option("--local-batch", options->local_batch,
                                              "Fix the samples per rank and step, e.g. 32")
                                 ->check(CLI::Range(std::int64_t{1}, plan::kMostSamples));
  command
      ->add_option("--max-global-batch", options->max_global_batch,
                   "Largest global batch of a step, e.g. 4096")
      ->check(CLI::Range(std::int64_t{1}, plan::kMostSamples));
  CLI::Option* batch_policy =
      command
          ->add_option("--batch-policy", options->batch_policy,
                       "How the batch is chosen. goodput: most useful samples per second, if the "
                       "workload has a noise scale. latency: the largest batch, scaled by how slow "
                       "the network is. fixed: the workload's batch")
          ->capture_default_str()
          ->excludes(local_batch);
  CLI::Option* route_rates =
      command
          ->add_option("--route-rates", options->route_rates,
                       "Whether transfers may be paced to a rate, which helps uneven clusters. "
                       "auto: yes, except between GPUs. Or always, never")
          ->capture_default_str();
  command
      ->add_option("--learning-rate-rule", options->learning_rate_rule,
                   "How the learning rate follows the batch: linear, sqrt, or adascale (needs a "
                   "noise scale)")
      ->capture_default_str();
  CLI::Option* compare = command->add_flag("--compare", options->compare,
                                           "Also show the step time of each schedule family alone "
                                           "and of the usual baselines, for the same batch");
  CLI::Option* compare_hosts =
      command->add_flag("--compare-hosts", options->compare_hosts,
                        "Also plan for 1, 2, 4, ... hosts and show the useful samples per second "
                        "of each. The hosts are those of 'rackrail place'");
  CLI::Option* explain =
      command->add_flag("--explain", options->explain,
                        "Also show what each choice of the plan gains, what single choices reach "
                        "alone, and the usual baselines. Takes about twice as long");
  CLI::Option* time_budget_option =
      command->add_option("--time-budget", options->time_budget,
                          "Stop the search after this time with its best plan so far, e.g. '20 s'. "
                          "With --compare, --compare-hosts or --explain the search gets half of "
                          "it. The plan may then differ from run to run");
  options->decisions->add_to(*command);
  CLI::Option* gap = command->add_option(
      "--gap", options->gap,
      "Stop at the first plan whose step is at most this much over the lower bound, e.g. 1%. Plans "
      "in FP32 are tried first. No effect where the batch is searched");
  add_search_option(*command, options->search);
  CLI::Option* target_samples = command->add_option(
      "--target-samples", options->target_samples,
      "Predict the training time for this many samples at the base batch, e.g. 1e8. "
      "Default: the end of the workload's noise-scale list");
  require_number(*target_samples, 1, 1e18);
  command
      ->add_flag("--naive", options->naive,
                 "Make the usual baseline instead: FP32 ring, buckets of 25 MiB")
      ->excludes(schedule, codec, error_budget, outer_layers, warmup, batch_policy, compare,
                 compare_hosts, explain, time_budget_option, gap, route_rates);
  command->footer("Example: rackrail plan two-racks-40g bert-large -o plan.json");
  command->callback([&session, options, error_budget, batch_policy] {
    session.command = "plan";
    options->has_error_budget = error_budget->count() > 0;
    options->has_batch_policy = batch_policy->count() > 0;
    run_plan(session, *options);
  });
}

}  // namespace rackrail::cli

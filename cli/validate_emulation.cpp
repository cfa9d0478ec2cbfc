#include "cli/validate_emulation.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/other_load.hpp"
#include "base/parse_units.hpp"
#include "cli/comparison.hpp"
#include "cli/emulated_messages.hpp"
#include "cli/emulated_training.hpp"
#include "cli/emulation.hpp"
#include "cli/local_prediction.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/temporary_folder.hpp"
#include "cli/training_report.hpp"
#include "cli/validation_record.hpp"
#include "plan/calibration.hpp"
#include "plan/codec_name.hpp"
#include "plan/format.hpp"
#include "plan/limits.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/emulate/rank_commands.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/launch/spawn.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

namespace emulate = runtime::emulate;

constexpr Bytes kLargestMessage = 16_MiB;

/// What ranks say of their times, until all have said it of a bucket.
class BucketTimes {
 public:
  explicit BucketTimes(std::size_t ranks) : last_lines_(ranks) {}

  /// The bucket whose time, that of the slowest rank, is known by this line.
  std::optional<std::size_t> hear(Rank rank, std::string_view line) {
    last_lines_[rank.index()] = line;
    const nlohmann::json answer = nlohmann::json::parse(line, nullptr, false);
    if (!answer.is_object() || !answer.contains("bucket") || !answer.contains("time_s")) {
      return std::nullopt;
    }
    const auto bucket = answer["bucket"].get<std::size_t>();
    times_.resize(std::max(times_.size(), bucket + 1));
    Time& time = times_[bucket];
    time.slowest = std::max(time.slowest, Duration::from_seconds(answer["time_s"].get<double>()));
    return ++time.ranks == last_lines_.size() ? std::optional(bucket) : std::nullopt;
  }
  Duration slowest(std::size_t bucket) const { return times_[bucket].slowest; }
  const std::string& last_line(Rank rank) const { return last_lines_[rank.index()]; }

 private:
  struct Time {
    std::size_t ranks = 0;
    Duration slowest;
  };
  std::vector<Time> times_;
  std::vector<std::string> last_lines_;
};

/// Where plans' buckets are executed.
struct Execution {
  const emulate::EmulatedNetwork& network;
  const TemporaryFolder& folder;
  const runtime::InterruptGuard& interrupts;
};

/// Each of the plan's buckets, by as many ranks of the network as the plan is for; empty: by all.
/// `on_measured` has the time of a bucket, that of the slowest rank, as soon as all have said it.
/// `what` is for messages.
void execute_buckets(const Execution& on, const plan::Plan& plan, const std::vector<Rank>& ranks,
                     const std::string& what,
                     const std::function<void(std::size_t, Duration)>& on_measured) {
  const std::string file = on.folder.file("buckets.plan");
  plan::Plan executed = plan;
  executed.error_budget = plan::kMostErrorBudget;  // codecs are measured, whatever the error
  plan::save_plan(executed, file);
  BucketTimes times(plan.rank_count());
  std::size_t measured = 0;
  emulate::RankCommandOptions run;
  run.words = runtime::own_program();
  run.words.insert(run.words.end(), {"collectives", file});
  run.token = runtime::make_job_token();
  run.ranks = ranks;
  run.on_line = [&](Rank rank, std::string_view line) {
    if (const auto bucket = times.hear(rank, line)) {
      on_measured(*bucket, times.slowest(*bucket));
      ++measured;
    }
  };
  const emulate::RankCommandResult result = emulate::run_on_ranks(on.network, run, on.interrupts);
  require_no_interrupt(on.interrupts);
  if (result.failed) {
    const std::size_t child = result.failed->child;
    throw RuntimeFailure(fmt::format("{}: rank {} {}: {}", what,
                                     ranks.empty() ? child : ranks[child].index(),
                                     describe(*result.failed), result.failed->last_line));
  }
  if (measured != plan.buckets.size()) {
    throw RuntimeFailure(what + ": rank 0 said no times: " + times.last_line(Rank(0)));
  }
}

/// What the ranks measure goes to the record as it comes; so it does below.
void execute_messages(const Execution& on, MessagePlan& messages, ValidationRecord& record) {
  execute_buckets(on, messages.plan, messages.ranks, messages.plan.name,
                  [&](std::size_t bucket, Duration there_and_back) {
                    EmulatedMessage& one = messages.cases.at(bucket);
                    one.measured = scaled(there_and_back, kOneWay);
                    record.add(one);
                  });
}

void execute_collectives(const Execution& on, CollectivePlan& collectives,
                         ValidationRecord& record) {
  execute_buckets(on, collectives.plan, {}, "all-reduces", [&](std::size_t bucket, Duration time) {
    EmulatedCollective& one = collectives.cases.at(bucket);
    one.measured = time;
    record.add(one);
  });
}

/// `measure` adds to the record. Once more where other programs took too much of the machine
/// meanwhile; where they do so again, the record says that times do not count.
void measure_undisturbed(ValidationRecord& record, const std::function<void()>& measure) {
  constexpr int kAttempts = 2;
  for (int attempt = 1; attempt <= kAttempts; ++attempt) {
    const ValidationRecord::Measured before = record.measured();
    const OtherLoad others;
    measure();
    const double cores = others.cores();
    if (!is_busy(cores)) {
      return;
    }
    if (attempt < kAttempts) {
      record.withdraw(before, cores);
    } else {
      record.add_busy(cores);
    }
  }
}

void execute_collectives(const Execution& on, std::vector<CollectivePlan>& plans,
                         ValidationRecord& record) {
  for (std::size_t i = 0; i < plans.size(); ++i) {
    measure_undisturbed(record, [&] { execute_collectives(on, plans[i], record); });
    if (i + 1 == plans.size() || plans[i + 1].codec() != plans[i].codec()) {
      record.end_codec();
    }
  }
}

/// Executes it for the record.
void execute_step(const emulate::EmulatedNetwork& network, const BuiltInTraining& training,
                  const plan::Plan& plan, Duration predicted, const std::string& model,
                  const std::optional<plan::Codec>& codec, std::int64_t steps,
                  ValidationRecord& record) {
  runtime::JobOptions job;
  job.training_file = training.file;
  job.training = training.text;
  job.steps = steps;
  const runtime::JobResult result = run_in_network(network, plan, std::move(job));
  if (!result.ok && result.exit_status > kSignalBase) {
    throw Interrupted{result.exit_status - kSignalBase};
  }
  if (!result.ok) {
    throw RuntimeFailure("training: " + result.reason);
  }
  const auto& schedules = plan.schedules;
  const std::string with = codec ? " with " + plan::display_name(*codec) : "";
  Compared compared{.what = "step of " + model + with,
                    .how = schedules.empty() ? "" : schedules.front().name(),
                    .predicted = predicted,
                    .measured = {}};
  for (const runtime::WorkerReport& worker : result.workers) {
    compared.measured = std::max(compared.measured, worker.step_time);
  }
  record.add_step(compared, codec, rank_rows(result));
}

/// None: whatever is best within the budget of errors.
std::vector<std::optional<plan::Codec>> codecs_of_steps(const std::vector<plan::Codec>& codecs) {
  std::vector<std::optional<plan::Codec>> of_steps = {std::nullopt};
  of_steps.insert(of_steps.end(), codecs.begin(), codecs.end());
  return of_steps;
}

/// Those of the selection's row of sizes that are no less than `from` and no more than `to`.
CollectiveSelection within(CollectiveSelection selection, Bytes from, Bytes to) {
  selection.largest = std::min(selection.largest, to);
  const Bytes least = selection.smallest;
  while (selection.smallest < from) {
    selection.smallest = selection.smallest * selection.growth;
  }
  if (selection.smallest > selection.largest) {
    throw ConfigError(ErrorContext{
        "<command line>", "--from", to_string(from),
        fmt::format(
            "no more than the last size up to {}: from {} on, each is {} times the one before",
            to_string(selection.largest), to_string(least), selection.growth)});
  }
  return selection;
}

std::vector<Bytes> message_sizes(const CollectiveSelection& selection) {
  std::vector<Bytes> sizes = selection.sizes();
  std::erase_if(sizes, [](Bytes size) { return size > kLargestMessage; });
  return sizes;
}

/// Throws Interrupted.
void execute_all(Session& session, const EmulationValidation& options,
                 const topology::Topology& original, const CollectiveSelection& selection,
                 const BuiltInTraining& training, ValidationRecord& record) {
  std::optional<runtime::InterruptGuard> interrupts(std::in_place);
  const emulate::EmulatedNetwork network = built_network(
      session, plan_emulation(session, original, options.cluster.cluster, options.scale));
  record.add_links(network.plan(), check_emulation(session, network, *interrupts));
  require_no_interrupt(*interrupts);
  const TemporaryFolder folder;
  std::optional<ProgressBar> bar(std::in_place, "measuring this machine",
                                 session.progress_elsewhere());
  const MachineCosts costs = measure_costs(network, training, folder, *interrupts);
  const topology::Topology machine =
      machine_as_network(original, network.plan(), costs.calibration);
  sim::SimulationOptions simulation;
  simulation.device_rates = costs.calibration.rates;
  bar.emplace("planning what to execute", session.progress_elsewhere());
  std::vector<MessagePlan> messages = plan_messages(machine, simulation, message_sizes(selection));
  std::vector<CollectivePlan> plans = plan_collectives(machine, simulation, selection);
  const auto of_steps = codecs_of_steps(options.step_codecs);
  bar.reset();
  record.begin(costs.calibration, costs.workload, messages, plans, of_steps.size());
  const Execution on{network, folder, *interrupts};
  for (MessagePlan& one : messages) {
    measure_undisturbed(record, [&] { execute_messages(on, one, record); });
  }
  execute_collectives(on, plans, record);
  for (const std::optional<plan::Codec>& codec : of_steps) {
    bar.emplace("planning a training", session.progress_elsewhere());
    const plan::Plan plan = plan_for_network(machine, costs, session.seed, codec);
    const Duration predicted =
        predict_training(plan, costs.workload, machine, costs.calibration, {}).step_time;
    require_no_interrupt(*interrupts);
    interrupts.reset();  // the training has its own
    bar.emplace("training", session.progress_elsewhere());
    measure_undisturbed(record, [&] {
      execute_step(network, training, plan, predicted, costs.workload.name, codec, options.steps,
                   record);
    });
    bar.reset();
    interrupts.emplace();
  }
}

}  // namespace

void validate_by_emulation(Session& session, const EmulationValidation& options) {
  const CollectiveSelection selection = within(options.collectives, options.from, options.to);
  const topology::Topology original = options.cluster.load(session);
  require_two_ranks(original, options.cluster.cluster);
  const BuiltInTraining training =
      load_built_in_training(session, options.training, options.local_batch);
  if (!options.output.empty()) {
    require_place(options.output);
    session.add_output(options.output);
  }
  ValidationRecord record(session, options.output);
  try {
    execute_all(session, options, original, selection, training, record);
    record.finish();
    const ErrorSummary errors = record.errors().value();
    const bool is_missed =
        std::abs(errors.worst) > options.worst_allowed || errors.mean > options.mean_allowed;
    session.status = record.links_are_held() && !is_missed ? kDone : kNotMet;
  } catch (const Interrupted& interrupted) {
    session.note("interrupted");
    record.finish_partially();
    session.status = kSignalBase + interrupted.signal;
  }
}

}  // namespace rackrail::cli

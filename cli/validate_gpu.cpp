#include "cli/validate_gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/other_load.hpp"
#include "base/parse_units.hpp"
#include "cli/comparison.hpp"
#include "cli/inputs.hpp"
#include "cli/local_prediction.hpp"
#include "cli/shared_numbers.hpp"
#include "cli/temporary_folder.hpp"
#include "plan/empty_plan.hpp"
#include "plan/format.hpp"
#include "plan/slice_unit.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/training.hpp"
#include "runtime/launch/collective_job.hpp"
#include "runtime/launch/job.hpp"
#include "runtime/launch/spawn.hpp"
#include "runtime/trainer/profile.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::cli {

namespace {

constexpr Bytes kFewBytes = 4_KiB;
constexpr std::string_view kHybrid = "hybrid";
constexpr std::int64_t kTimesLarger = 16;  // at least, of the other all-reduce that is measured

/// A user's signal: nothing is left to be done.
struct EndedBySignal {
  int number = 0;
};

/// What messages between the workers cost.
struct PathCosts {
  Duration latency;     ///< of one
  Bandwidth bandwidth;  ///< of all together
};

/// What carries gradients between hosts and, where it is something else, inside them.
struct TierCosts {
  PathCosts between;
  std::optional<PathCosts> inside;
};

/// The model's times on one GPU that nobody else uses.
plan::Workload profile(const trainer::TrainingConfig& config, std::int64_t local_batch) {
  if (const auto reason = runtime::cuda_status().unavailable) {
    throw RuntimeFailure(*reason);
  }
  const std::shared_ptr<trainer::Compute> compute = runtime::make_cuda_compute(0);
  const trainer::DataSplit data = trainer::load_data(config.data);
  const auto model = trainer::make_model(config.model, config.data.format.image,
                                         config.data.format.classes, config.seed, compute);
  const trainer::MeasuredProfile measured = trainer::profile_model(
      *model, config.optimizer, data.train, {.local_batch = local_batch, .compute = compute});
  return trainer::make_workload(config, *model, measured, trainer::ProfileClock::kWall);
}

/// The workers as hosts have them: in two halves where another path is taken inside hosts.
std::vector<std::vector<Rank>> hosts_of(const GpuValidation& options) {
  if (options.gpu.path != kHybrid) {
    return each_alone(options.workers);
  }
  std::vector<std::vector<Rank>> hosts(2);
  for (std::size_t r = 0; r < options.workers; ++r) {
    hosts[2 * r / options.workers].push_back(Rank(r));
  }
  return hosts;
}

/// What messages from some ranks to some others share.
struct SharedPath {
  std::string name;
  PathCosts costs;
  std::vector<Rank> from;
  std::vector<Rank> to;
};

/// All ranks share one; where another one is taken inside hosts, of which there are two, what all
/// of them together send by each is measured, and each host has its ranks' share of it.
std::vector<SharedPath> shared_paths(const TierCosts& costs,
                                     const std::vector<std::vector<Rank>>& hosts,
                                     std::size_t ranks) {
  if (!costs.inside) {
    std::vector<Rank> all;
    for (std::size_t r = 0; r < ranks; ++r) {
      all.emplace_back(r);
    }
    return {{"path", costs.between, all, all}};
  }
  std::vector<SharedPath> paths;
  for (const std::size_t h : {0U, 1U}) {
    const auto share = [&](PathCosts of_all) {
      const auto count = static_cast<std::int64_t>(hosts[h].size());
      const std::int64_t bytes = of_all.bandwidth.bytes_per_second() / std::int64_t(ranks) * count;
      return PathCosts{.latency = of_all.latency,
                       .bandwidth = Bandwidth(std::max<std::int64_t>(1, bytes))};
    };
    if (hosts[h].size() > 1) {
      paths.push_back({fmt::format("inside{}", h), share(*costs.inside), hosts[h], hosts[h]});
    }
    paths.push_back({fmt::format("path{}", h), share(costs.between), hosts[h], hosts[1 - h]});
  }
  return paths;
}

void add_path(topology::Topology& machine, const SharedPath& path) {
  const NodeId in =
      machine.add_node({.name = path.name + "-in", .kind = topology::NodeKind::kSwitch});
  const NodeId out =
      machine.add_node({.name = path.name + "-out", .kind = topology::NodeKind::kSwitch});
  machine.add_link({.from = in,
                    .to = out,
                    .bandwidth = path.costs.bandwidth,
                    .latency = path.costs.latency,
                    .tier = "path"});
  const auto join = [&](NodeId from, NodeId to) {
    machine.add_link({.from = from, .to = to, .bandwidth = path.costs.bandwidth, .tier = "worker"});
  };
  for (const Rank rank : path.from) {
    join(machine.node_of(rank), in);
  }
  for (const Rank rank : path.to) {
    join(out, machine.node_of(rank));
  }
}

/// Ranks of some hosts that take turns on `gpus` GPUs, as workers of one machine do, and what is
/// between them.
topology::Topology gpu_machine(const TierCosts& costs, const std::vector<std::vector<Rank>>& hosts,
                               std::size_t gpus, const std::string& device_class) {
  using topology::LinkKind;
  using topology::NodeKind;
  constexpr Bandwidth kAnyRate(1'000'000'000'000);  // of a processor only shares of it count
  topology::Topology machine("GPUs of this machine");
  std::vector<LinkId> processors;
  for (std::size_t g = 0; g < gpus; ++g) {
    const NodeId begin =
        machine.add_node({.name = fmt::format("gpu{}-in", g), .kind = NodeKind::kSwitch});
    const NodeId end =
        machine.add_node({.name = fmt::format("gpu{}-out", g), .kind = NodeKind::kSwitch});
    processors.push_back(machine.add_link({.from = begin,
                                           .to = end,
                                           .bandwidth = kAnyRate,
                                           .kind = LinkKind::kShared,
                                           .tier = "gpu",
                                           .cpu_share = 1}));
  }
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    for (const Rank rank : hosts[h]) {
      const NodeId worker = machine.add_node({.name = fmt::format("worker{}", rank.value()),
                                              .kind = NodeKind::kHost,
                                              .host = fmt::format("host{}", h),
                                              .device_class = device_class});
      machine.set_processor(machine.add_rank(worker), processors[rank.value() % gpus]);
    }
  }
  for (const SharedPath& path : shared_paths(costs, hosts, machine.rank_count())) {
    add_path(machine, path);
  }
  return machine;
}

/// Workers of this machine that carry out plans.
class GpuWorkers {
 public:
  GpuWorkers(const GpuValidation& options, std::filesystem::path training)
      : options_(options), training_(std::move(training)) {}

  /// Each of the plan's buckets alone: seconds until its sum is everywhere.
  std::vector<Duration> reduce(const plan::Plan& plan) const {
    return reduce(plan, options_.gpu, hosts_of(options_));
  }
  std::vector<Duration> reduce(const plan::Plan& plan, const GpuOptions& options,
                               std::vector<std::vector<Rank>> hosts) const {
    const std::string file = folder_.file("plan.json");
    plan::save_plan(plan, file);
    std::vector<std::string> words = runtime::own_program();
    words.insert(words.end(), {"collectives", file, "--led"});
    const std::vector<std::string> gpu = options.words();
    words.insert(words.end(), gpu.begin(), gpu.end());
    runtime::LocalCollectives result =
        runtime::run_local_collectives(plan, words, {.gpu = options.settings(std::move(hosts))});
    if (result.interrupted_by != 0) {
      throw EndedBySignal{result.interrupted_by};
    }
    return std::move(result.times);
  }

  runtime::JobResult train(const plan::Plan& plan) const {
    runtime::JobOptions job;
    job.training_file = training_;
    job.training = read_file(training_);
    job.steps = options_.steps;
    job.gpu = options_.gpu.settings(hosts_of(options_));
    runtime::JobResult result = runtime::run_local_job(plan, job);
    if (!result.ok && result.exit_status > kSignalBase) {
      throw EndedBySignal{result.exit_status - kSignalBase};
    }
    if (!result.ok) {
      throw RuntimeFailure("training: " + result.reason);
    }
    return result;
  }

 private:
  const GpuValidation& options_;
  const std::filesystem::path training_;
  const TemporaryFolder folder_;
};

/// Of all workers as these hosts, from two ring all-reduces. In each of the 2 (ranks − 1) rounds of
/// one of S bytes every rank sends S / ranks of them, so that a round takes latency + S /
/// bandwidth.
PathCosts measure_path(const GpuWorkers& workers, const GpuOptions& options,
                       const std::vector<std::vector<Rank>>& hosts, Bytes gradients) {
  const topology::Topology any =
      gpu_machine({.between = {1_us, Bandwidth(1'000'000'000)}, .inside = {}}, hosts, 1, "");
  topology::Router router(any);
  plan::Plan plan = plan::empty_plan(any);
  plan.name = "two all-reduces";
  plan.schedules.push_back(planner::collective_forms(planner::schedule_family("ring"),
                                                     plan::Collective::kAllReduce, any, router, {})
                               .front()
                               .graph());
  const Bytes many = std::max(gradients, kFewBytes * kTimesLarger);
  for (const Bytes size : {kFewBytes, many}) {
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(plan.buckets.size())};
    bucket.elements = size.count() / 4;
    bucket.slice_elements = plan::one_slice(bucket.elements);
    plan.buckets.push_back(std::move(bucket));
  }
  const std::vector<Duration> times = workers.reduce(plan, options, hosts);
  constexpr double kFastest = 1e-15;  // seconds per byte: more than any memory
  const auto rounds = static_cast<double>(2 * (any.rank_count() - 1));
  const double per_byte =
      std::max(kFastest, (times[1] - times[0]).seconds() /
                             (rounds * static_cast<double>((many - kFewBytes).count())));
  const double latency =
      times[0].seconds() / rounds - static_cast<double>(kFewBytes.count()) * per_byte;
  return {.latency = Duration::from_seconds(std::max(0.0, latency)),
          .bandwidth = Bandwidth(static_cast<std::int64_t>(1 / per_byte))};
}

TierCosts measure_tiers(const GpuWorkers& workers, const GpuValidation& options, Bytes gradients) {
  TierCosts costs{
      .between = measure_path(workers, options.gpu, each_alone(options.workers), gradients),
      .inside = {}};
  const std::vector<std::vector<Rank>> hosts = hosts_of(options);
  if (std::ranges::any_of(hosts, [](const auto& ranks) { return ranks.size() > 1; })) {
    GpuOptions inside = options.gpu;
    inside.path = "nccl";
    costs.inside = measure_path(workers, inside, each_alone(options.workers), gradients);
  }
  return costs;
}

plan::Plan make_gpu_plan(const topology::Topology& machine, const plan::Workload& workload,
                         const sim::SimulationOptions& simulation, const GpuValidation& options,
                         std::uint64_t seed) {
  const auto cost_model = sim::make_cost_model(machine, simulation);
  planner::PlannerOptions wanted;
  wanted.seed = seed;
  wanted.local_batch = workload.profiled_batch;
  wanted.codec = options.codec;
  wanted.schedule = options.schedule;
  wanted.compare_baselines = false;
  wanted.effort = planner::SearchEffort::kQuick;
  wanted.route_rates = planner::RouteRates::kNever;
  plan::Plan plan = planner::make_plan(machine, workload, *cost_model, wanted);
  for (plan::Bucket& bucket : plan.buckets) {  // between GPUs a transfer is one message
    bucket.slice_elements = plan::one_slice(bucket.elements);
  }
  return plan;
}

/// What is predicted or measured of a training.
struct StepTimesOnGpu {
  Duration alone;    ///< the plan's sums one after the other, with nothing beside them
  Duration step;     ///< of the slowest rank
  Duration exposed;  ///< of the step: waiting for sums, and nothing else

  /// Of the sums. None: there are none, with one rank.
  std::optional<double> hidden() const {
    return alone > Duration() ? std::optional(1 - exposed / alone) : std::nullopt;
  }
};

StepTimesOnGpu predict(const plan::Plan& plan, const plan::Workload& workload,
                       const topology::Topology& machine, sim::SimulationOptions simulation) {
  StepTimesOnGpu times;
  for (const plan::Bucket& bucket : plan.buckets) {
    times.alone += sim::simulate_collective(plan.schedules[bucket.schedule], bucket.elements,
                                            bucket.slice_elements, machine, simulation)
                       .time;
  }
  simulation.steps = kStepsUntilSteady;
  const plan::StepEstimate step = sim::simulate_step(plan, workload, machine, simulation).estimate;
  times.step = step.step_time;
  times.exposed = scaled(step.step_time, step.sync_share);
  return times;
}

StepTimesOnGpu measured_times(const std::vector<Duration>& alone, const runtime::JobResult& job) {
  StepTimesOnGpu times;
  for (const Duration time : alone) {
    times.alone += time;
  }
  times.exposed = job.workers.front().sync_time;
  for (const runtime::WorkerReport& worker : job.workers) {
    times.step = std::max(times.step, worker.step_time);
    times.exposed = std::min(times.exposed, worker.sync_time);
  }
  return times;
}

struct GpuReport {
  plan::Workload workload;
  plan::Plan plan;
  TierCosts costs;
  std::size_t hosts = 0;  ///< as the plan has them; 0: each worker is one of its own
  std::size_t gpus = 1;
  StepTimesOnGpu predicted;
  StepTimesOnGpu measured;
  runtime::JobResult job;

  bool parameters_agree() const {
    return std::ranges::all_of(job.workers, [this](const runtime::WorkerReport& worker) {
      return worker.parameters_digest == job.workers.front().parameters_digest;
    });
  }
  /// Whether other programs took so much of the machine that times do not count.
  bool is_disturbed() const { return is_busy(job.other_cores.value_or(0)); }
  /// Of the largest bucket.
  std::string schedule() const { return plan.schedules[largest().schedule].name(); }
  std::string codec() const { return plan::to_string(largest().codec); }
  const plan::Bucket& largest() const {
    return *std::ranges::max_element(plan.buckets, {}, &plan::Bucket::elements);
  }
  std::vector<Compared> compared() const {
    const std::string path = job.workers.front().transport;
    return {{"sums alone", path, predicted.alone, measured.alone},
            {"step of " + workload.name, path, predicted.step, measured.step}};
  }
};

nlohmann::json share_json(const std::optional<double>& share) {
  return share ? nlohmann::json(*share) : nlohmann::json();
}

/// Seconds of a step, by rank.
std::vector<double> sync_waits(const runtime::JobResult& job) {
  std::vector<double> waits;
  for (const runtime::WorkerReport& worker : job.workers) {
    waits.push_back(worker.sync_time.seconds());
  }
  return waits;
}

nlohmann::json gpu_report_json(const GpuReport& report) {
  const runtime::WorkerReport& first = report.job.workers.front();
  const std::vector<Compared> compared = report.compared();
  nlohmann::json result{{"device", first.device},
                        {"transport", first.transport},
                        {"workers", report.job.workers.size()},
                        {"gpus", report.gpus},
                        {"model", report.workload.name},
                        {"gradient_bytes", report.workload.gradient_bytes().count()},
                        {"local_batch", report.workload.profiled_batch},
                        {"schedule", report.schedule()},
                        {"codec", report.codec()},
                        {"buckets", report.plan.buckets.size()},
                        {"path_latency_s", report.costs.between.latency.seconds()},
                        {"path_bytes_per_s", report.costs.between.bandwidth.bytes_per_second()},
                        {"sums", to_json(compared[0])},
                        {"step", to_json(compared[1])},
                        {"predicted_exposed_s", report.predicted.exposed.seconds()},
                        {"measured_exposed_s", report.measured.exposed.seconds()},
                        {"sync_waits_s", sync_waits(report.job)},
                        {"predicted_hidden_share", share_json(report.predicted.hidden())},
                        {"measured_hidden_share", share_json(report.measured.hidden())},
                        {"first_loss", first.losses.front()},
                        {"final_loss", first.final_loss},
                        {"parameters_agree", report.parameters_agree()},
                        {"other_load_cores", report.job.other_cores.value_or(0)},
                        {"times_count", !report.is_disturbed()},
                        {"notes", first.notes}};
  if (report.hosts > 0) {
    result["hosts"] = report.hosts;
  }
  if (const std::optional<PathCosts>& inside = report.costs.inside) {
    result["inside_latency_s"] = inside->latency.seconds();
    result["inside_bytes_per_s"] = inside->bandwidth.bytes_per_second();
  }
  return result;
}

std::string gpu_report_text(const GpuReport& report) {
  const runtime::WorkerReport& first = report.job.workers.front();
  const auto share = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.1f} %", *value * kPercent) : "-";
  };
  const auto path = [](const PathCosts& costs) {
    return fmt::format("{} each, {} in all", to_string(costs.latency), to_string(costs.bandwidth));
  };
  const std::string inside =
      report.costs.inside
          ? fmt::format(" between {} hosts, {} inside", report.hosts, path(*report.costs.inside))
          : "";
  return fmt::format(
      "{} workers on {} of {}; messages: {}{}\n"
      "{} buckets by {}, {}, {} of gradients, batch {}\n{}"
      "waiting for sums: {} predicted, {} measured; hidden: {} predicted, {} measured\n"
      "parameters {}\n{}",
      report.job.workers.size(), report.gpus, first.device, path(report.costs.between), inside,
      report.plan.buckets.size(), report.schedule(), report.codec(),
      to_string(report.workload.gradient_bytes()), report.workload.profiled_batch,
      comparison_table("on the GPU", report.compared()), to_string(report.predicted.exposed),
      to_string(report.measured.exposed), share(report.predicted.hidden()),
      share(report.measured.hidden()),
      report.parameters_agree() ? "bit-identical on all ranks" : "DIFFER between ranks",
      report.is_disturbed()
          ? fmt::format("measured times do not count: {}; run it again on an idle machine\n",
                        other_load_text(*report.job.other_cores))
          : "");
}

GpuReport carry_out(Session& session, const GpuValidation& options) {
  const std::filesystem::path file = training_file(options.training);
  session.add_input(file);
  const trainer::TrainingConfig config = trainer::parse_training_config(read_file(file), file);
  const std::int64_t batch = options.local_batch > 0 ? options.local_batch : config.local_batch;
  GpuReport report;
  report.workload = profile(config, batch);
  report.gpus = std::min(options.workers, runtime::cuda_devices().size());
  if (report.gpus < options.workers && !runtime::cuda_status().has_mps) {
    session.note(
        "note: workers that share a GPU take turns, which predictions leave out; start CUDA's MPS "
        "(nvidia-cuda-mps-control -d) to let their work overlap");
  }
  const ProgressBar bar("measuring on the GPU", session.progress_elsewhere());
  const GpuWorkers workers(options, file);
  report.costs = measure_tiers(workers, options, report.workload.gradient_bytes());
  const std::vector<std::vector<Rank>> hosts = hosts_of(options);
  report.hosts = options.gpu.path == kHybrid ? hosts.size() : 0;
  const topology::Topology machine =
      gpu_machine(report.costs, hosts, report.gpus, report.workload.device_class);
  const sim::SimulationOptions simulation;
  report.plan = make_gpu_plan(machine, report.workload, simulation, options, session.seed);
  report.predicted = predict(report.plan, report.workload, machine, simulation);
  constexpr int kAttempts = 2;
  for (int attempt = 0; attempt < kAttempts && (attempt == 0 || report.is_disturbed()); ++attempt) {
    const std::vector<Duration> alone = workers.reduce(report.plan);
    report.job = workers.train(report.plan);
    report.measured = measured_times(alone, report.job);
  }
  return report;
}

}  // namespace

void validate_on_gpu(Session& session, const GpuValidation& options) {
  try {
    const GpuReport report = carry_out(session, options);
    if (session.json) {
      session.print_json(gpu_report_json(report));
    } else {
      fmt::print("{}", gpu_report_text(report));
    }
    const bool is_missed = std::ranges::any_of(report.compared(), [&](const Compared& one) {
      return std::abs(one.error()) > options.worst_allowed;
    });
    session.status = report.parameters_agree() && !is_missed ? kDone : kNotMet;
  } catch (const EndedBySignal& signal) {
    session.note("interrupted");
    session.status = kSignalBase + signal.number;
  }
}

}  // namespace rackrail::cli

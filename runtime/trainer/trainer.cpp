#include "runtime/trainer/trainer.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/trainer/buckets.hpp"
#include "runtime/trainer/loader.hpp"
#include "runtime/trainer/profile.hpp"

namespace rackrail::trainer {
namespace {

/// A digest shortened for a message.
std::string brief(const std::string& digest) { return digest.substr(0, 12); }

}  // namespace

EffectiveSettings effective_settings(const TrainingConfig& config, const plan::Plan& plan,
                                     std::int64_t training_samples) {
  EffectiveSettings settings;
  settings.local_batch = plan.batch.local_batch;
  if (settings.local_batch.empty()) {
    settings.local_batch.assign(plan.rank_count(), config.local_batch);
  }
  if (settings.local_batch.size() != plan.rank_count()) {
    throw PlanError(ErrorContext{
        plan.name, "batch.local_batch", std::to_string(settings.local_batch.size()) + " entries",
        "one for each of " + std::to_string(plan.rank_count()) + " ranks"});
  }
  settings.accumulation = plan.batch.accumulation;
  settings.global_batch = Shard(settings.local_batch, 0, settings.accumulation).global_batch();
  settings.total_steps = config.total_steps(training_samples, settings.global_batch);
  LearningRate& rate = settings.learning_rate;
  rate.peak = plan.batch.learning_rate > 0
                  ? plan.batch.learning_rate
                  : scaled_learning_rate(config.base_learning_rate, config.base_batch,
                                         settings.global_batch);
  rate.warmup_steps = plan.batch.warmup_steps > 0 ? plan.batch.warmup_steps : config.warmup_steps;
  rate.total_steps = settings.total_steps;
  rate.decay = config.decay;
  return settings;
}

struct Trainer::Impl {
  Impl(const TrainingConfig& the_config, const plan::Plan& plan, const DataSplit& the_data,
       GradientExchange& the_exchange, const TrainerOptions& the_options, TrainerHooks the_hooks)
      : config(the_config),
        data(the_data),
        exchange(the_exchange),
        options(the_options),
        hooks(std::move(the_hooks)),
        settings(effective_settings(the_config, plan, the_data.train.size())),
        compression_warmup_steps(plan.compression_warmup_steps),
        shard(settings.local_batch, the_options.self.index(), settings.accumulation),
        compute(the_options.compute != nullptr ? the_options.compute : make_host_compute()),
        model(make_model(the_config.model, the_config.data.format.image,
                         the_config.data.format.classes, the_config.seed, compute)),
        sgd(model->tensors(), the_config.optimizer, compute),
        buckets(plan.name, model->tensors(), plan.buckets, compute) {
    require_format(data.train);
    require_format(data.test);
    info.seed = config.seed;
    info.world_size = plan.rank_count();
    info.model_digest = workload_shape(config.name, *model).digest();
    info.plan_digest = plan::digest(plan);
    info.training_digest = sha256_hex(config.digest() + data.train.digest() + data.test.digest());
    if (!plan.workload_digest.empty() && plan.workload_digest != info.model_digest) {
      throw PlanError(
          ErrorContext{plan.name, "workload_digest",
                       brief(plan.workload_digest) + " (" + plan.workload_name + ")",
                       brief(info.model_digest) + ", the model of training '" + config.name + "'"});
    }
  }

  void restore(const LoadedCheckpoint& checkpoint);
  void take_over(const Impl& other);
  void keep();
  void go_back();
  TrainingState state();
  TrainingResult run();

  void require_format(const Dataset& part) const {
    const DataFormat& format = config.data.format;
    if (!(part.image() == format.image) || part.classes() != format.classes || part.size() == 0) {
      throw ConfigError(ErrorContext{config.data.file.string(), "",
                                     std::to_string(part.size()) + " samples of " +
                                         std::to_string(part.image().features()) + " features",
                                     "the data set of training '" + config.name + "'"});
    }
  }

  bool may_go_on() const {
    return info.step < settings.total_steps && info.step < stop_after.load();
  }
  bool evaluates() const { return options.evaluate && options.self == Rank(0); }

  StepReport step(BatchLoader& loader);
  double pass(BatchLoader& loader, bool is_first, bool is_last, StepTimes& times);
  void launch(BucketId bucket);
  void event(std::string what, const char* track, Duration begin, Duration end);
  void after_step(StepReport& report);

  const TrainingConfig config;
  const DataSplit& data;
  GradientExchange& exchange;
  const TrainerOptions options;
  const TrainerHooks hooks;
  const EffectiveSettings settings;
  const std::int64_t compression_warmup_steps;
  const Shard shard;
  const std::shared_ptr<Compute> compute;
  const std::unique_ptr<Model> model;
  Sgd sgd;
  BucketSet buckets;
  CheckpointInfo info;  // of the present moment

  std::atomic<std::int64_t> stop_after{std::numeric_limits<std::int64_t>::max()};
  std::optional<Evaluation> latest_evaluation;  // of the present parameters
  double latest_loss = 0;

  /// What the latest update changed, as it was before.
  struct StepBefore {
    CheckpointInfo info;
    Floats parameters;
    Floats momentum;
  };
  std::optional<StepBefore> before;

  // For checkpoints, where the arenas are not on the host.
  std::vector<float> parameters_on_host;
  std::vector<float> momentum_on_host;

  Duration step_begin;
  bool recording = false;  // the timeline, in this step
  std::vector<plan::TimelineEvent> timeline;
  std::vector<std::pair<BucketId, Duration>> launches;
};

void Trainer::Impl::restore(const LoadedCheckpoint& checkpoint) {
  const auto matches = [](const ParameterTensor& a, const ParameterTensor& b) {
    return a.name == b.name && a.shape == b.shape;
  };
  if (!std::ranges::equal(checkpoint.tensors, model->tensors(), matches)) {
    throw ConfigError(
        ErrorContext{"", "checkpoint", "tensors of another model", "those of " + config.name});
  }
  compute->load(checkpoint.parameters, model->parameters());
  compute->load(checkpoint.momentum, sgd.momentum());
  sgd.set_skipped_steps(checkpoint.info.skipped_steps);
  exchange.set_residuals(checkpoint.residuals);
  info.step = checkpoint.info.step;
  info.position = checkpoint.info.position;
  info.epoch = checkpoint.info.epoch;
  info.skipped_steps = checkpoint.info.skipped_steps;
  latest_evaluation.reset();
}

void Trainer::Impl::take_over(const Impl& other) {
  // By way of the host: the other may have computed elsewhere.
  std::vector<float> buffer;
  compute->load(other.compute->on_host(other.model->parameters(), buffer), model->parameters());
  compute->load(other.compute->on_host(other.sgd.momentum(), buffer), sgd.momentum());
  sgd.set_skipped_steps(other.info.skipped_steps);
  info.step = other.info.step;
  info.position = other.info.position;
  info.epoch = other.info.epoch;
  info.skipped_steps = other.info.skipped_steps;
  latest_loss = other.latest_loss;
  latest_evaluation.reset();
}

void Trainer::Impl::keep() {
  if (!before) {
    before.emplace();
  }
  before->info = info;
  compute->copy(model->parameters(),
                at_least(*compute, before->parameters, model->parameters().size()));
  compute->copy(sgd.momentum(), at_least(*compute, before->momentum, sgd.momentum().size()));
}

void Trainer::Impl::go_back() {
  if (!before || before->info.step + 1 != info.step) {
    throw RuntimeFailure("step " + std::to_string(info.step) + " cannot be taken back");
  }
  compute->copy(before->parameters.span(), model->parameters());
  compute->copy(before->momentum.span(), sgd.momentum());
  info = before->info;
  sgd.set_skipped_steps(info.skipped_steps);
  before.reset();
  latest_evaluation.reset();
}

TrainingState Trainer::Impl::state() {
  return {info, model->tensors(), compute->on_host(model->parameters(), parameters_on_host),
          compute->on_host(sgd.momentum(), momentum_on_host), exchange.residuals()};
}

void Trainer::Impl::event(std::string what, const char* track, Duration begin, Duration end) {
  if (recording) {
    timeline.push_back({std::move(what),
                        "rank " + std::to_string(options.self.value()) + " " + track,
                        begin - step_begin, end - step_begin});
  }
}

void Trainer::Impl::launch(BucketId bucket) {
  const std::span<float> share = buckets.gather(bucket, model->gradients());
  compute->add_squared_norm(share);
  exchange.launch(bucket, share);
  if (recording) {
    launches.emplace_back(bucket, wall_clock());
  }
}

double Trainer::Impl::pass(BatchLoader& loader, bool is_first, bool is_last, StepTimes& times) {
  const Duration asked = wall_clock();
  const BatchView batch = loader.next();
  const Duration begin = wall_clock();
  const Duration cpu_begin = thread_cpu_clock();
  Duration forward_done;
  PassHooks pass_hooks;
  pass_hooks.forward_done = [&] { forward_done = wall_clock(); };
  if (is_last) {
    pass_hooks.gradient_ready = [this](std::size_t tensor) {
      if (const std::optional<BucketId> bucket = buckets.tensor_ready(tensor)) {
        launch(*bucket);
      }
    };
  }
  const double loss = model->forward_backward(
      batch, 1.0 / static_cast<double>(settings.global_batch), !is_first, pass_hooks);
  compute->wait();
  const Duration end = wall_clock();
  times.input_wait += begin - asked;
  times.forward += forward_done - begin;
  times.backward += end - forward_done;
  times.compute_cpu += thread_cpu_clock() - cpu_begin;
  event("forward", "compute", begin, forward_done);
  event("backward", "compute", forward_done, end);
  return loss;
}

StepReport Trainer::Impl::step(BatchLoader& loader) {
  StepReport report;
  recording = options.timeline_step == info.step;
  launches.clear();
  compute->take_squared_norm();  // of a step that was not brought to its end
  step_begin = wall_clock();
  exchange.begin_step(static_cast<std::uint32_t>(info.step));
  buckets.reset();
  double loss = 0;
  for (std::int64_t p = 0; p < shard.passes(); ++p) {
    loss += pass(loader, p == 0, p + 1 == shard.passes(), report.times);
  }

  const Duration backward_done = wall_clock();
  exchange.wait_all();
  const Duration synchronised = wall_clock();
  const Duration cpu_begin = thread_cpu_clock();
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    buckets.scatter(BucketId(b), model->gradients());
  }
  if (options.keeps_step_before) {
    keep();
  }
  report.learning_rate = settings.learning_rate.at(info.step);
  const Sgd::Update update =
      sgd.apply(model->parameters(), model->gradients(), report.learning_rate);
  compute->wait();
  const Duration end = wall_clock();

  event("wait", "compute", backward_done, synchronised);
  event("optimizer", "compute", synchronised, end);
  for (const auto& [bucket, launched] : launches) {
    event("bucket " + std::to_string(bucket.value()), "buckets", launched, synchronised);
  }
  report.times.synchronise = synchronised - backward_done;
  report.times.optimizer = end - synchronised;
  report.times.compute_cpu += thread_cpu_clock() - cpu_begin;
  report.times.step = end - step_begin;
  report.samples = shard.local_batch() * shard.passes();
  report.loss = loss / static_cast<double>(report.samples);
  report.gradient_norm = update.gradient_norm;
  // The share is w_i·g_i.
  report.weighted_squared_norm = compute->take_squared_norm() *
                                 static_cast<double>(settings.global_batch) /
                                 static_cast<double>(report.samples);
  report.clipped = update.clipped;
  report.skipped = update.skipped;
  return report;
}

void Trainer::Impl::after_step(StepReport& report) {
  ++info.step;
  info.position += settings.global_batch;
  info.epoch = info.position / data.train.size();
  info.skipped_steps = sgd.skipped_steps();
  report.step = info.step;
  latest_loss = report.loss;
  latest_evaluation.reset();
  if (evaluates() && config.evaluate_every > 0 && info.step % config.evaluate_every == 0) {
    latest_evaluation = model->evaluate(data.test.all());
    report.evaluation = latest_evaluation;
  }
  if (hooks.on_step) {
    hooks.on_step(report);
  }
  if (hooks.on_checkpoint && config.checkpoint_every > 0 &&
      info.step % config.checkpoint_every == 0) {
    hooks.on_checkpoint(state());
  }
}

TrainingResult Trainer::Impl::run() {
  TrainingResult result;
  result.first_step = info.step;
  timeline.clear();
  std::vector<StepTimes> times;
  {
    BatchLoader loader(
        data.train, shard,
        LoaderOptions{config.seed, info.position, config.data.max_shift, LoaderOptions{}.depth});
    while (may_go_on()) {
      StepReport report = step(loader);
      times.push_back(report.times);
      after_step(report);
    }
  }
  const bool saves = hooks.on_checkpoint && config.checkpoint_every > 0;
  if (saves && !times.empty() && info.step % config.checkpoint_every != 0) {
    hooks.on_checkpoint(state());  // the end, which no interval has saved
  }
  const std::int64_t uncounted =
      std::max(options.warmup_steps, compression_warmup_steps - result.first_step);
  if (static_cast<std::int64_t>(times.size()) > uncounted) {
    times.erase(times.begin(), times.begin() + uncounted);
  }
  if (evaluates() && !latest_evaluation) {
    latest_evaluation = model->evaluate(data.test.all());
  }
  result.steps = info.step;
  result.finished = info.step >= settings.total_steps;
  result.final_loss = latest_loss;
  result.final_evaluation = latest_evaluation;
  result.skipped_steps = info.skipped_steps;
  result.parameters_digest = model->parameters_digest();
  result.summary = summarise(times);
  result.timeline = std::move(timeline);
  return result;
}

Trainer::Trainer(const TrainingConfig& config, const plan::Plan& plan, const DataSplit& data,
                 GradientExchange& exchange, const TrainerOptions& options, TrainerHooks hooks)
    : impl_(std::make_unique<Impl>(config, plan, data, exchange, options, std::move(hooks))) {}

Trainer::~Trainer() = default;

const EffectiveSettings& Trainer::settings() const { return impl_->settings; }

Model& Trainer::model() { return *impl_->model; }

CheckpointExpectation Trainer::expectation() const {
  return {impl_->info.model_digest, impl_->info.plan_digest, impl_->info.training_digest};
}

void Trainer::restore(const LoadedCheckpoint& checkpoint) { impl_->restore(checkpoint); }

TrainingState Trainer::state() const { return impl_->state(); }

void Trainer::take_over(const Trainer& other) { impl_->take_over(*other.impl_); }

void Trainer::go_back() { impl_->go_back(); }

std::int64_t Trainer::step() const { return impl_->info.step; }

std::int64_t Trainer::oldest_step() const {
  const auto& before = impl_->before;
  return before && before->info.step + 1 == impl_->info.step ? before->info.step : impl_->info.step;
}

TrainingResult Trainer::run() { return impl_->run(); }

void Trainer::request_stop_after(std::int64_t steps) {
  std::int64_t present = impl_->stop_after.load();
  while (steps < present && !impl_->stop_after.compare_exchange_weak(present, steps)) {
  }
}

}  // namespace rackrail::trainer

#include "runtime/trainer/trainer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/trainer/buckets.hpp"
#include "runtime/trainer/loader.hpp"
#include "runtime/trainer/parameter_average.hpp"
#include "runtime/trainer/profile.hpp"
#include "runtime/trainer/step_recorder.hpp"
#include "runtime/trainer/trained_model.hpp"
#include "runtime/trainer/update_rule.hpp"

namespace rackrail::trainer {
namespace {

// Of this rank alone, beside its residuals in checkpoints.
constexpr const char* kOwnMomentum = "own momentum";

/// A digest shortened for a message.
std::string brief(const std::string& digest) { return digest.substr(0, 12); }

}  // namespace

struct Trainer::Impl {
  Impl(const TrainingConfig& the_config, const plan::Plan& plan, const DataSplit& the_data,
       GradientExchange& the_exchange, const TrainerOptions& the_options, TrainerHooks the_hooks)
      : config(the_config),
        data(the_data),
        exchange(the_exchange),
        options(the_options),
        hooks(std::move(the_hooks)),
        settings(
            effective_settings(the_config, plan, the_data.train.size(), the_options.total_samples)),
        end_step(settings.total_steps),
        compression_warmup_steps(plan.compression_warmup_steps),
        shard(settings.local_batch, the_options.self.index(), settings.accumulation),
        samples(shard.local_batch() * shard.passes()),
        share(static_cast<double>(samples) / static_cast<double>(settings.global_batch)),
        compute(the_options.compute != nullptr ? the_options.compute : make_host_compute()),
        trained(the_config, compute),
        buckets(plan.name, model.tensors(), plan.buckets, compute),
        recorder(the_options.self) {
    for (const plan::Bucket& bucket : plan.buckets) {
      regions.push_back(regions_of(bucket));
    }
    require_place();
    require_format(data.train);
    require_format(data.test);
    info.seed = config.seed;
    info.world_size = plan.rank_count();
    info.model_digest = workload_shape(config.name, model).digest();
    info.plan_digest = plan::digest(plan);
    info.training_digest =
        sha256_hex(config.digest() + data.train.digest() + data.test.digest() + synchrony());
    if (options.local_steps) {
      average.emplace(share);
    }
    if (!plan.workload_digest.empty() && plan.workload_digest != info.model_digest) {
      throw PlanError(
          ErrorContext{plan.name, "workload_digest",
                       brief(plan.workload_digest) + " (" + plan.workload_name + ")",
                       brief(info.model_digest) + ", the model of training '" + config.name + "'"});
    }
  }

  void restore(const LoadedCheckpoint& checkpoint);
  void take_over(const Impl& other);
  void go_back();
  TrainingState state() { return trained.state(residuals()); }
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

  /// Parameters that are averaged, or that servers hold, are on the host.
  void require_place() const {
    if ((options.local_steps || exchange.holds_parameters()) && compute->name() != "cpu") {
      throw ConfigError(
          ErrorContext{"", "training on " + compute->name(),
                       options.local_steps ? "local steps" : "an asynchronous parameter server",
                       "synchronous training there"});
    }
  }

  /// A bucket's tensors, one after another.
  std::vector<DecayRegion> regions_of(const plan::Bucket& bucket) const {
    std::vector<DecayRegion> result;
    std::size_t begin = 0;
    for (const std::uint32_t index : bucket.tensors) {
      const ParameterTensor& tensor = model.tensors()[index];
      const auto size = static_cast<std::size_t>(tensor.elements);
      result.push_back({begin, size, decay_of(tensor, config.optimizer)});
      begin += size;
    }
    return result;
  }

  /// What a checkpoint of another way to keep in step must not be taken for.
  std::string synchrony() const {
    return options.local_steps           ? "local_steps " + std::to_string(*options.local_steps)
           : exchange.holds_parameters() ? "asynchronous"
                                         : "";
  }

  /// Whether there is a step after so many of the whole training.
  bool goes_on_after(std::int64_t steps) const {
    return steps < end_step && steps < stop_after.load();
  }
  /// Steps by this batch may follow others by another one.
  void set_end() {
    if (options.total_samples) {
      const std::int64_t left = std::max<std::int64_t>(*options.total_samples - info.position, 0);
      end_step = info.step + (left + settings.global_batch - 1) / settings.global_batch;
    }
  }
  /// Steps by this batch that are worth as many samples as those that were taken.
  std::int64_t steps_of_schedule() const {
    return options.total_samples ? info.position / settings.global_batch : info.step;
  }
  bool evaluates() const { return options.evaluate && options.self == Rank(0); }

  /// Whether something that is to be done every so many steps is due at the present one.
  bool is_due(std::int64_t every) const {
    return every > 0 && is_common && info.step / every > common_before / every;
  }

  StepReport step(BatchLoader& loader);
  void sum_and_update(StepReport& report);
  void update_and_average(StepReport& report);
  void push_and_pull(StepReport& report);
  void start_servers();
  void make_average(StepReport& report);
  static void note_update(const Sgd::Update& update, StepReport& report);
  Residuals residuals() const;
  void set_residuals(Residuals residuals);
  double pass(BatchLoader& loader, bool is_first, bool is_last, StepTimes& times);
  void launch(BucketId bucket);
  void after_step(StepReport& report);
  void keep_meeting();
  std::vector<StepTimes> take_steps();
  void warm_up();

  const TrainingConfig config;
  const DataSplit& data;
  GradientExchange& exchange;
  const TrainerOptions options;
  const TrainerHooks hooks;
  const EffectiveSettings settings;
  std::int64_t end_step;  ///< steps of the whole training
  const std::int64_t compression_warmup_steps;
  const Shard shard;
  const std::int64_t samples;  ///< of this rank, in a step
  const double share;          ///< of them in those of all ranks
  const std::shared_ptr<Compute> compute;
  TrainedModel trained;
  Model& model = trained.model();
  Sgd& sgd = trained.sgd();
  CheckpointInfo& info = trained.info();
  BucketSet buckets;
  std::vector<std::vector<DecayRegion>> regions;  // by bucket
  std::function<bool(std::int64_t)> meets;        // of servers; see UpdateRule
  std::optional<ParameterAverage> average;
  bool is_common = true;           // whether all ranks hold the same parameters now
  std::int64_t common_before = 0;  // the step at which they did so last, before this one
  std::int64_t saved_step = -1;    // by the latest checkpoint of this run

  std::atomic<std::int64_t> stop_after{std::numeric_limits<std::int64_t>::max()};
  std::optional<Evaluation> latest_evaluation;  // of the present parameters
  double latest_loss = 0;

  StepRecorder recorder;
};

void Trainer::Impl::restore(const LoadedCheckpoint& checkpoint) {
  trained.restore(checkpoint);
  set_end();
  set_residuals(checkpoint.residuals);
  latest_evaluation.reset();
}

void Trainer::Impl::take_over(const Impl& other) {
  trained.take_over(other.trained);
  set_end();
  if (exchange.holds_parameters() && other.trained.info().plan_digest == info.plan_digest) {
    exchange.set_residuals(other.trained.of_servers());
    trained.keep_meeting(other.trained.of_servers());
  }
  latest_loss = other.latest_loss;
  latest_evaluation.reset();
}

void Trainer::Impl::go_back() {
  trained.go_back();
  latest_evaluation.reset();
}

Residuals Trainer::Impl::residuals() const {
  Residuals residuals = exchange.residuals();
  if (options.local_steps) {
    residuals.emplace(kOwnMomentum,
                      std::vector<float>(sgd.momentum().begin(), sgd.momentum().end()));
  }
  return residuals;
}

// A rank that did not exist when a checkpoint was made has none there, and starts with rank 0's.
void Trainer::Impl::set_residuals(Residuals residuals) {
  const auto own = residuals.find(kOwnMomentum);
  if (own != residuals.end()) {
    if (own->second.size() != sgd.momentum().size()) {
      throw ConfigError(ErrorContext{
          "", "checkpoint", "momentum of " + std::to_string(own->second.size()) + " elements",
          std::to_string(sgd.momentum().size())});
    }
    compute->load(own->second, sgd.momentum());
    residuals.erase(own);
  }
  exchange.set_residuals(residuals);
}

void Trainer::Impl::launch(BucketId bucket) {
  const std::span<float> own = buckets.gather(bucket, model.gradients());
  compute->add_squared_norm(own);
  exchange.launch(bucket, own);
  recorder.launched(bucket);
}

double Trainer::Impl::pass(BatchLoader& loader, bool is_first, bool is_last, StepTimes& times) {
  const Duration asked = wall_clock();
  const BatchView batch = loader.next();
  const Duration begin = wall_clock();
  const Duration cpu_begin = thread_cpu_clock();
  Duration forward_done;
  PassHooks pass_hooks;
  pass_hooks.forward_done = [&] { forward_done = wall_clock(); };
  if (is_last && !average && !exchange.holds_parameters()) {
    pass_hooks.gradient_ready = [this](std::size_t tensor) {
      if (const std::optional<BucketId> bucket = buckets.tensor_ready(tensor)) {
        launch(*bucket);
      }
    };
  }
  const double weight = 1.0 / static_cast<double>(average ? samples : settings.global_batch);
  const double loss = model.forward_backward(batch, weight, !is_first, pass_hooks);
  compute->wait();
  const Duration end = wall_clock();
  times.input_wait += begin - asked;
  times.forward += forward_done - begin;
  times.backward += end - forward_done;
  times.compute_cpu += thread_cpu_clock() - cpu_begin;
  recorder.add("forward", "compute", begin, forward_done);
  recorder.add("backward", "compute", forward_done, end);
  return loss;
}

void Trainer::Impl::note_update(const Sgd::Update& update, StepReport& report) {
  report.gradient_norm = update.gradient_norm;
  report.clipped = update.clipped;
  report.skipped = update.skipped;
}

void Trainer::Impl::sum_and_update(StepReport& report) {
  recorder.synchronise(report.times, [&] { exchange.wait_all(); });
  recorder.optimise(report.times, [&] {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      buckets.scatter(BucketId(b), model.gradients());
    }
    if (options.keeps_points) {
      trained.keep_before_update();
    }
    note_update(sgd.apply(model.parameters(), model.gradients(), report.learning_rate), report);
    compute->wait();
  });
  // The share is w_i·g_i.
  report.weighted_squared_norm = compute->take_squared_norm() / share;
}

void Trainer::Impl::update_and_average(StepReport& report) {
  report.has_sum = false;
  recorder.optimise(report.times, [&] {
    note_update(sgd.apply(model.parameters(), model.gradients(), report.learning_rate), report);
  });
  is_common = (info.step + 1) % *options.local_steps == 0 || !goes_on_after(info.step + 1);
  if (is_common) {
    make_average(report);
  } else {
    exchange.wait_all();  // for nothing: throws when the training is not to go on by itself
  }
}

// The gradients are used up, so their arena holds what is summed.
void Trainer::Impl::make_average(StepReport& report) {
  recorder.optimise(report.times, [&] { average->leave(model.parameters(), model.gradients()); });
  recorder.synchronise(report.times, [&] {
    // Averages are counted, and steps without one are none for what moves the parts.
    exchange.begin_step(static_cast<std::uint32_t>(info.step / *options.local_steps));
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      launch(BucketId(b));
    }
    exchange.wait_all();
  });
  recorder.optimise(report.times, [&] {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      buckets.scatter(BucketId(b), model.gradients());
    }
    if (!average->arrive(model.gradients(), model.parameters())) {
      report.skipped = true;
      sgd.set_skipped_steps(sgd.skipped_steps() + 1);
    }
  });
}

// Whether a gradient is finite, and its norm, is known once all of it is there.
void Trainer::Impl::push_and_pull(StepReport& report) {
  report.has_sum = false;
  recorder.optimise(report.times, [&] {
    // The share of the step's gradient is w_i·g_i.
    report.gradient_norm = compute->norm(model.gradients()) / share;
    report.skipped = !std::isfinite(report.gradient_norm);
    const std::optional<double>& most = config.optimizer.clip_norm;
    report.clipped = !report.skipped && most && report.gradient_norm > *most;
    if (report.clipped) {
      const auto scale = static_cast<float>(*most / report.gradient_norm);
      std::ranges::for_each(model.gradients(), [scale](float& g) { g *= scale; });
    }
    sgd.set_skipped_steps(sgd.skipped_steps() + (report.skipped ? 1 : 0));
  });
  recorder.synchronise(report.times, [&] {
    exchange.begin_step(static_cast<std::uint32_t>(info.step));
    if (report.skipped) {
      exchange.withhold();
    }
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      launch(BucketId(b));
    }
    exchange.wait_all();
  });
  recorder.optimise(report.times, [&] {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      buckets.scatter(BucketId(b), model.gradients());
    }
    std::ranges::copy(model.gradients(), model.parameters().begin());
  });
  is_common = meets(info.step + 1);
}

void Trainer::Impl::start_servers() {
  const std::int64_t end = std::min(settings.total_steps, stop_after.load());
  const std::int64_t saved_every = hooks.on_checkpoint ? config.checkpoint_every : 0;
  const std::int64_t meets_every = options.meets_every.value_or(0);
  meets = [end, saved_every, meets_every](std::int64_t steps) {
    const auto is_due = [steps](std::int64_t every) { return every > 0 && steps % every == 0; };
    return steps >= end || is_due(saved_every) || is_due(meets_every);
  };
  UpdateRule rule;
  rule.optimizer = config.optimizer;
  rule.learning_rate = settings.learning_rate;
  for (const std::int64_t batch : settings.local_batch) {
    rule.shares.push_back(static_cast<double>(batch * settings.accumulation) /
                          static_cast<double>(settings.global_batch));
  }
  rule.regions = regions;
  rule.meets = meets;
  std::vector<std::vector<float>> parameters;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const std::span<float> bucket = buckets.gather(BucketId(b), model.parameters());
    parameters.emplace_back(bucket.begin(), bucket.end());
  }
  exchange.start(rule, info.step, std::move(parameters));
}

StepReport Trainer::Impl::step(BatchLoader& loader) {
  StepReport report;
  const Duration cpu_begin = process_cpu_clock();
  compute->take_squared_norm();  // of a step that was not brought to its end
  report.began = recorder.begin(options.timeline_step == info.step);
  report.learning_rate = settings.learning_rate.at(steps_of_schedule());
  buckets.reset();
  if (!average && !exchange.holds_parameters()) {
    exchange.begin_step(static_cast<std::uint32_t>(info.step));
  }
  double loss = 0;
  for (std::int64_t p = 0; p < shard.passes(); ++p) {
    loss += pass(loader, p == 0, p + 1 == shard.passes(), report.times);
  }
  report.samples = samples;
  report.loss = loss / static_cast<double>(report.samples);
  if (average) {
    update_and_average(report);
  } else if (exchange.holds_parameters()) {
    push_and_pull(report);
  } else {
    sum_and_update(report);
  }
  report.times.step = recorder.elapsed();
  report.times.process_cpu = process_cpu_clock() - cpu_begin;
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
  keep_meeting();
  if (evaluates() && is_due(config.evaluate_every)) {
    latest_evaluation = model.evaluate(data.test.all());
    report.evaluation = latest_evaluation;
  }
  if (hooks.on_step) {
    hooks.on_step(report);
  }
  if (hooks.on_checkpoint && is_due(config.checkpoint_every)) {
    hooks.on_checkpoint(state());
    saved_step = info.step;
  }
  if (is_common) {
    common_before = info.step;
  }
}

/// Where all ranks hold the same and do not so after every step.
void Trainer::Impl::keep_meeting() {
  if (options.keeps_points && is_common && (average || exchange.holds_parameters())) {
    trained.keep_meeting(exchange.holds_parameters() ? exchange.residuals() : Residuals());
  }
}

/// On a device: a pass that counts for nothing. Memory is taken and kernels are loaded where they
/// are first needed, for which a device may wait until it has done all that it was given; while
/// gradients are summed that would be the sums, and a direct transport, which copies from the
/// device meanwhile, might never get to it.
void Trainer::Impl::warm_up() {
  if (compute->stream() == nullptr) {
    return;
  }
  BatchLoader loader(data.train, shard,
                     LoaderOptions{config.seed, info.position, config.data.max_shift, 1});
  model.forward_backward(loader.next(), 0, false, {});
  compute->add_squared_norm(model.gradients());
  compute->take_squared_norm();
}

/// To the end, or the stop.
std::vector<StepTimes> Trainer::Impl::take_steps() {
  std::vector<StepTimes> times;
  BatchLoader loader(
      data.train, shard,
      LoaderOptions{config.seed, info.position, config.data.max_shift, LoaderOptions{}.depth});
  for (bool goes_on = goes_on_after(info.step); goes_on;
       goes_on = (average && !is_common) || goes_on_after(info.step)) {
    StepReport report = step(loader);
    times.push_back(report.times);
    after_step(report);
  }
  return times;
}

TrainingResult Trainer::Impl::run() {
  TrainingResult result;
  result.first_step = info.step;
  is_common = true;
  common_before = info.step;
  recorder.clear();
  warm_up();
  if (average) {
    average->begin(model.parameters());
  }
  if (exchange.holds_parameters()) {
    start_servers();
  }
  keep_meeting();
  std::vector<StepTimes> times;
  try {
    times = take_steps();
  } catch (const PeerLostError&) {
    if (options.keeps_points && (average || exchange.holds_parameters())) {
      trained.return_to_meeting();
    }
    throw;
  }
  const bool saves = hooks.on_checkpoint && config.checkpoint_every > 0;
  if (saves && (!times.empty() || options.saves_end) && saved_step != info.step) {
    hooks.on_checkpoint(state());  // the end, which no interval has saved
  }
  const std::int64_t uncounted =
      std::max(options.warmup_steps,
               compression_warmup_steps * options.local_steps.value_or(1) - result.first_step);
  if (static_cast<std::int64_t>(times.size()) > uncounted) {
    times.erase(times.begin(), times.begin() + uncounted);
  }
  if (evaluates() && !latest_evaluation) {
    latest_evaluation = model.evaluate(data.test.all());
  }
  result.steps = info.step;
  result.finished = info.step >= end_step;
  result.final_loss = latest_loss;
  result.final_evaluation = latest_evaluation;
  result.skipped_steps = info.skipped_steps;
  result.parameters_digest = model.parameters_digest();
  result.summary = summarise(times);
  result.timeline = recorder.take_timeline();
  return result;
}

Trainer::Trainer(const TrainingConfig& config, const plan::Plan& plan, const DataSplit& data,
                 GradientExchange& exchange, const TrainerOptions& options, TrainerHooks hooks)
    : impl_(std::make_unique<Impl>(config, plan, data, exchange, options, std::move(hooks))) {}

Trainer::~Trainer() = default;

const EffectiveSettings& Trainer::settings() const { return impl_->settings; }

Model& Trainer::model() { return impl_->model; }

CheckpointExpectation Trainer::expectation() const {
  const CheckpointInfo& info = impl_->info;
  return {info.model_digest, info.plan_digest, info.training_digest, info.optimizer};
}

void Trainer::restore(const LoadedCheckpoint& checkpoint) { impl_->restore(checkpoint); }

TrainingState Trainer::state() const { return impl_->state(); }

void Trainer::take_over(const Trainer& other) { impl_->take_over(*other.impl_); }

void Trainer::go_back() { impl_->go_back(); }

std::int64_t Trainer::step() const { return impl_->info.step; }

std::int64_t Trainer::oldest_step() const { return impl_->trained.oldest_step(); }

TrainingResult Trainer::run() { return impl_->run(); }

void Trainer::request_stop_after(std::int64_t steps) {
  std::int64_t present = impl_->stop_after.load();
  while (steps < present && !impl_->stop_after.compare_exchange_weak(present, steps)) {
  }
}

}  // namespace rackrail::trainer

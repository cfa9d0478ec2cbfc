#include "runtime/trainer/profile.hpp"

#include <algorithm>
#include <latch>
#include <memory>
#include <stop_token>
#include <thread>

#include "base/error.hpp"
#include "plan/device_class.hpp"
#include "runtime/trainer/codec_errors.hpp"
#include "runtime/trainer/loader.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::trainer {
namespace {

/// The moments of one step by one clock.
struct Moments {
  Duration begin;
  Duration forward_done;
  std::vector<Duration> ready;
  Duration backward_done;
  Duration end;
};

/// Medians over steps, interval by interval.
ComputeProfile medians(const std::vector<Moments>& steps) {
  const auto over = [&](const auto& interval) {
    std::vector<Duration> values(steps.size());
    std::ranges::transform(steps, values.begin(), interval);
    return median(std::move(values));
  };
  ComputeProfile profile;
  profile.forward = over([](const Moments& m) { return m.forward_done - m.begin; });
  for (std::size_t t = 0; t < steps.front().ready.size(); ++t) {
    profile.ready_gaps.push_back(over(
        [t](const Moments& m) { return m.ready[t] - (t == 0 ? m.forward_done : m.ready[t - 1]); }));
  }
  profile.backward_tail = over([](const Moments& m) { return m.backward_done - m.ready.back(); });
  profile.optimizer = over([](const Moments& m) { return m.end - m.backward_done; });
  return profile;
}

struct BothClocks {
  ComputeProfile wall;
  ComputeProfile cpu;
};

BothClocks measure(Model& model, const SgdOptions& optimizer, const Dataset& data,
                   std::int64_t local_batch, const ProfileOptions& options) {
  BatchLoader loader(data, Shard({local_batch}, 0, 1), LoaderOptions{});
  Compute& compute = *options.compute;
  Sgd sgd(model.tensors(), optimizer, options.compute);
  std::vector<Moments> wall;
  std::vector<Moments> cpu;
  for (int step = 0; step < options.warmup + std::max(options.steps, 1); ++step) {
    const BatchView batch = loader.next();
    Moments w;
    Moments c;
    w.ready.reserve(model.tensors().size());
    c.ready.reserve(model.tensors().size());
    w.begin = wall_clock();
    c.begin = thread_cpu_clock();
    PassHooks hooks;
    hooks.forward_done = [&] {
      compute.wait();
      w.forward_done = wall_clock();
      c.forward_done = thread_cpu_clock();
    };
    // As the trainer: the norm of what it launches is part of backward.
    hooks.gradient_ready = [&](std::size_t tensor) {
      const ParameterTensor& ready = model.tensors()[tensor];
      compute.add_squared_norm(model.gradients().subspan(static_cast<std::size_t>(ready.offset),
                                                         static_cast<std::size_t>(ready.elements)));
      compute.wait();
      w.ready.push_back(wall_clock());
      c.ready.push_back(thread_cpu_clock());
    };
    model.forward_backward(batch, 1.0 / static_cast<double>(local_batch), false, hooks);
    compute.wait();
    w.backward_done = wall_clock();
    c.backward_done = thread_cpu_clock();
    // A tiny rate: the time of an update without the risk of one.
    sgd.apply(model.parameters(), model.gradients(), 1e-6);
    compute.wait();
    compute.take_squared_norm();
    w.end = wall_clock();
    c.end = thread_cpu_clock();
    if (step >= options.warmup) {
      wall.push_back(std::move(w));
      cpu.push_back(std::move(c));
    }
  }
  return {medians(wall), medians(cpu)};
}

/// Train a model on threads of their own, from the end of the constructor until they end.
class OtherWorkers {
 public:
  OtherWorkers(const TrainingConfig& config, const Dataset& data, const ProfileOptions& options) {
    for (std::size_t i = 0; i < options.others; ++i) {
      workers_.push_back(std::make_unique<Worker>(config, data, options.local_batch));
    }
    std::latch have_begun(static_cast<std::ptrdiff_t>(workers_.size()));
    for (const auto& worker : workers_) {
      threads_.emplace_back([&one = *worker, &have_begun](const std::stop_token& stop) {
        one.step();
        have_begun.count_down();
        while (!stop.stop_requested()) {
          one.step();
        }
      });
    }
    have_begun.wait();
  }

 private:
  struct Worker {
    Worker(const TrainingConfig& config, const Dataset& data, std::int64_t local_batch)
        : batch(local_batch),
          model(make_model(config.model, config.data.format.image, config.data.format.classes,
                           config.seed)),
          loader(data, Shard({local_batch}, 0, 1), LoaderOptions{}),
          sgd(model->tensors(), config.optimizer) {}
    void step() {
      model->forward_backward(loader.next(), 1.0 / static_cast<double>(batch), false, {});
      sgd.apply(model->parameters(), model->gradients(), 1e-6);
    }

    std::int64_t batch;
    std::unique_ptr<Model> model;
    BatchLoader loader;
    Sgd sgd;
  };

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::jthread> threads_;  // end before the workers do
};

bool is_host(const Compute& compute) { return compute.name() == "cpu"; }

std::string device_class_of(const std::string& device) {
  const plan::DeviceClass* likeliest = plan::likeliest_device_class(device);
  return likeliest == nullptr ? device : likeliest->name;
}

}  // namespace

Duration ComputeProfile::total() const {
  Duration sum = forward + backward_tail + optimizer;
  for (const Duration gap : ready_gaps) {
    sum += gap;
  }
  return sum;
}

MeasuredProfile profile_model(Model& model, const SgdOptions& optimizer, const Dataset& data,
                              const ProfileOptions& options) {
  MeasuredProfile profile;
  profile.local_batch = options.local_batch;
  BothClocks times = measure(model, optimizer, data, options.local_batch, options);
  profile.wall = std::move(times.wall);
  profile.cpu = std::move(times.cpu);
  if (options.local_batch >= 2) {
    // t(b) = fixed + slope · b through two batch sizes; the optimiser is all fixed and no part of
    // what the workload scales.
    const auto scalable = [](const ComputeProfile& of) {
      return (of.total() - of.optimizer).seconds();
    };
    const bool by_wall = !is_host(*options.compute);
    const std::int64_t half = options.local_batch / 2;
    const BothClocks smaller = measure(model, optimizer, data, half, options);
    const double whole_time = scalable(by_wall ? profile.wall : profile.cpu);
    const double half_time = scalable(by_wall ? smaller.wall : smaller.cpu);
    const double slope = (whole_time - half_time) / static_cast<double>(options.local_batch - half);
    if (whole_time > 0) {
      profile.fixed_share =
          std::clamp(1.0 - slope * static_cast<double>(options.local_batch) / whole_time, 0.0, 1.0);
    }
  }
  return profile;
}

plan::Workload workload_shape(const std::string& name, const Model& model) {
  plan::Workload workload;
  workload.name = name;
  for (const ParameterTensor& tensor : model.tensors()) {
    plan::GradientTensor gradient{.name = tensor.name, .elements = tensor.elements};
    if (tensor.shape.size() > 1) {
      const std::int64_t rows = tensor.shape.front();
      gradient.shape = plan::MatrixShape{rows, tensor.elements / rows};
    }
    workload.tensors.push_back(std::move(gradient));
  }
  return workload;
}

plan::Workload make_workload(const TrainingConfig& config, Model& model,
                             const MeasuredProfile& profile, ProfileClock clock) {
  const bool is_wall = clock == ProfileClock::kWall;
  const ComputeProfile& times = is_wall ? profile.wall : profile.cpu;
  plan::Workload workload = workload_shape(config.name, model);
  const std::string device = model.compute().name();
  workload.source = "measured by the built-in trainer, " +
                    (device == "cpu" ? std::string("one thread, ") : device + ", ") +
                    (is_wall ? "wall-clock" : "processor") + " time";
  workload.device_class = device_class_of(device);
  workload.profiled_batch = profile.local_batch;
  for (std::size_t t = 0; t < workload.tensors.size(); ++t) {
    workload.tensors[t].ready_gap = times.ready_gaps[t];
  }
  workload.forward = times.forward;
  workload.backward_tail = times.backward_tail;
  workload.optimizer = times.optimizer;
  workload.fixed_share = profile.fixed_share;
  // An activation and, in turn, its gradient; parameters, gradients and momentum.
  workload.memory_per_sample = Bytes(4) * (2 * model.activations_per_sample());
  workload.memory_fixed = workload.gradient_bytes() * 3;
  workload.base_learning_rate = config.base_learning_rate;
  workload.has_learning_rate = true;
  workload.base_batch = config.base_batch;
  return workload;
}

plan::Workload profile_training(const TrainingConfig& config, const ProfileOptions& options,
                                ProfileClock clock) {
  const DataSplit data = load_data(config.data);
  const auto fresh_model = [&config] {
    return make_model(config.model, config.data.format.image, config.data.format.classes,
                      config.seed);
  };
  const auto model = fresh_model();
  const auto measured = [&] {
    const OtherWorkers others(config, data.train, options);
    return profile_model(*model, config.optimizer, data.train, options);
  };
  plan::Workload workload = make_workload(config, *model, measured(), clock);
  if (options.others > 0) {
    workload.source += ", beside " + std::to_string(options.others) + " others";
  }
  workload.codec_errors =
      measure_codec_errors(config, *fresh_model(), data.train,
                           {.local_batch = options.local_batch, .also = options.codecs});
  return workload;
}

plan::Plan single_rank_plan(const plan::Workload& workload, std::int64_t local_batch) {
  plan::Plan plan;
  plan.name = workload.name + " on one rank";
  plan.rank_names = {"rank 0"};
  plan.workload_name = workload.name;
  plan.workload_digest = workload.digest();
  plan.schedules.emplace_back("nothing", plan::Collective::kAllReduce, 1,
                              std::vector<std::uint32_t>{1});
  for (std::size_t t = 0; t < workload.tensors.size(); ++t) {
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(t)};
    bucket.elements = workload.tensors[t].elements;
    bucket.slice_elements = 32 * 1024;
    plan.buckets.push_back(std::move(bucket));
  }
  plan.batch.local_batch = {local_batch};
  return plan;
}

}  // namespace rackrail::trainer

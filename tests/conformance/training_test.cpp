// What every place where the built-in trainer computes must do: a GPU, where there is one, is held
// against the host. (Compiled once more with tests/support/emulated_gpu, the kernels run on the
// CPU, and a stand-in multiplies matrices.)
#include <catch2/catch.hpp>
#include <cmath>

#include "base/random.hpp"
#include "runtime/cuda/factory.hpp"
#include "runtime/cuda/training.hpp"
#include "runtime/nccl/plan_executor.hpp"
#include "runtime/trainer/executor_exchange.hpp"
#include "runtime/trainer/optimizer.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::training_test {
namespace {

/// Why this machine cannot compute on a GPU.
std::optional<std::string> no_gpu() {
  const runtime::CudaStatus cuda = runtime::cuda_status();
  return cuda.unavailable ? cuda.unavailable : runtime::cublas_status().unavailable;
}

constexpr std::int64_t kClasses = 3;

std::vector<float> random_floats(std::size_t size, std::uint64_t seed) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = random_unit_float(seed, i) - 0.5F;
  }
  return values;
}

std::vector<float> read(Model& model, std::span<const float> here) {
  std::vector<float> values(here.size());
  model.compute().store(here, values);
  return values;
}

void check_close(const std::vector<float>& found, const std::vector<float>& expected,
                 double margin) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    REQUIRE(found[i] == Approx(expected[i]).epsilon(1e-4).margin(margin));
  }
}

TEST_CASE("GPU training: memory, norms and updates are the host's") {
  if (const auto reason = no_gpu()) RACKRAIL_SKIP(*reason);
  constexpr std::size_t kSize = 20'011;
  const std::vector<float> parameters = random_floats(kSize, 1);
  const std::vector<float> gradients = random_floats(kSize, 2);
  const SgdStep step{.momentum = 0.9F, .scale = 0.7F, .decay = 0.01F, .rate = 0.3F};
  std::vector<std::vector<float>> results;
  std::vector<double> norms;
  for (const auto& compute : {make_host_compute(), runtime::make_cuda_compute(0)}) {
    const Floats w = compute->make_floats(kSize);
    const Floats v = compute->make_floats(kSize);
    const Floats g = compute->make_floats(kSize + 1);
    compute->load(parameters, w.span());
    compute->load(gradients, g.span().first(kSize));
    for (int times = 0; times < 3; ++times) {
      compute->update(w.span(), v.span(), g.span().first(kSize), step);
    }
    const Floats copied = compute->make_floats(kSize);
    compute->copy(v.span(), copied.span());
    std::vector<float> buffer;
    for (const std::span<float> here : {w.span(), copied.span(), g.span().last(1)}) {
      const std::span<const float> values = compute->on_host(here, buffer);
      results.emplace_back(values.begin(), values.end());
    }
    norms.push_back(compute->norm(g.span()));
    compute->add_squared_norm(g.span().first(100));
    compute->add_squared_norm(w.span());
    norms.push_back(compute->take_squared_norm());
    CHECK(compute->take_squared_norm() == 0);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(results[i] == results[i + 3]);  // bit by bit
  }
  CHECK(results[2] == std::vector<float>{0});
  CHECK(norms[2] == Approx(norms[0]).epsilon(1e-12));
  CHECK(norms[3] == Approx(norms[1]).epsilon(1e-12));
  CHECK(norms[0] > 1);
}

TEST_CASE("GPU training: models start equal, and have the host's losses and gradients") {
  if (const auto reason = no_gpu()) RACKRAIL_SKIP(*reason);
  const auto gpu = runtime::make_cuda_compute(0);
  for (const test::ModelExample& example : test::model_examples()) {
    CAPTURE(example.name);
    const auto host_model = make_model(example.config, example.image, kClasses, 5);
    const auto model = make_model(example.config, example.image, kClasses, 5, gpu);
    CHECK(model->parameters_digest() == host_model->parameters_digest());
    CHECK(model->activations_per_sample() == host_model->activations_per_sample());
    // Biases that are not zero find more.
    const std::vector<float> parameters = random_floats(host_model->parameters().size(), 3);
    host_model->compute().load(parameters, host_model->parameters());
    model->compute().load(parameters, model->parameters());
    for (const std::int64_t samples : {7, 3, 11}) {  // memory shrinks and grows
      const Dataset data =
          test::make_dataset(example.image, kClasses, samples, static_cast<std::uint64_t>(samples));
      const bool accumulate = samples == 3;
      std::vector<std::size_t> order;
      const double loss = model->forward_backward(
          data.all(), 0.25, accumulate, {{}, [&](std::size_t tensor) { order.push_back(tensor); }});
      CHECK(loss ==
            Approx(host_model->forward_backward(data.all(), 0.25, accumulate, {})).epsilon(1e-5));
      CHECK(order.size() == model->tensors().size());
      CHECK(std::is_sorted(order.begin(), order.end()));
      check_close(read(*model, model->gradients()), read(*host_model, host_model->gradients()),
                  1e-5);
    }
    const Dataset data = test::make_dataset(example.image, kClasses, 150, 9);
    const Evaluation found = model->evaluate(data.all());
    const Evaluation expected = host_model->evaluate(data.all());
    CHECK(found.samples == expected.samples);
    CHECK(found.loss == Approx(expected.loss).epsilon(1e-5));
    CHECK(found.accuracy == Approx(expected.accuracy).margin(0.011));
  }
}

struct Run {
  std::vector<double> losses;
  std::vector<double> noise;
  TrainingResult result;
};

/// One rank alone, from a checkpoint or from the start.
Run train(const TrainingConfig& config, const DataSplit& data, std::shared_ptr<Compute> compute,
          const LoadedCheckpoint* from = nullptr, LoadedCheckpoint* at_20 = nullptr) {
  Run run;
  LocalExchange exchange;
  TrainerHooks hooks;
  std::optional<Trainer> trainer;
  hooks.on_step = [&](const StepReport& report) {
    run.losses.push_back(report.loss);
    run.noise.push_back(report.weighted_squared_norm);
    if (report.step == 20 && at_20 != nullptr) {
      const TrainingState state = trainer->state();
      at_20->info = state.info;
      at_20->tensors.assign(state.tensors.begin(), state.tensors.end());
      at_20->parameters.assign(state.parameters.begin(), state.parameters.end());
      at_20->momentum.assign(state.momentum.begin(), state.momentum.end());
    }
  };
  TrainerOptions options;
  options.compute = std::move(compute);
  options.keeps_points = true;
  // A bucket whose tensors are no neighbours is copied there and back.
  trainer.emplace(config, test::make_plan(config, {8}, {{0, 2}, {1}, {3, 4, 5}}), data, exchange,
                  options, hooks);
  if (from != nullptr) {
    trainer->restore(*from);
  }
  run.result = trainer->run();
  return run;
}

TEST_CASE("GPU training: the losses of a training are the host's, and so is what it learns") {
  if (const auto reason = no_gpu()) RACKRAIL_SKIP(*reason);
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  const Run host = train(config, data, nullptr);
  const Run gpu = train(config, data, runtime::make_cuda_compute(0));
  REQUIRE(gpu.losses.size() == host.losses.size());
  for (std::size_t i = 0; i < host.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(gpu.losses[i] == Approx(host.losses[i]).epsilon(1e-3).margin(1e-4));
    CHECK(gpu.noise[i] == Approx(host.noise[i]).epsilon(1e-2).margin(1e-6));
  }
  CHECK(host.losses.back() < 0.5 * host.losses.front());
  CHECK(gpu.result.final_evaluation->accuracy ==
        Approx(host.result.final_evaluation->accuracy).margin(0.04));
}

TEST_CASE("GPU training: a run that goes on from a checkpoint ends with the same bits") {
  if (const auto reason = no_gpu()) RACKRAIL_SKIP(*reason);
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  LoadedCheckpoint middle;
  const Run whole = train(config, data, runtime::make_cuda_compute(0), nullptr, &middle);
  const Run rest = train(config, data, runtime::make_cuda_compute(0), &middle);
  CHECK(rest.losses.size() == whole.losses.size() - 20);
  CHECK(rest.result.parameters_digest == whole.result.parameters_digest);
}

TEST_CASE("GPU training: a step is taken back, and a trainer elsewhere goes on from there") {
  if (const auto reason = no_gpu()) RACKRAIL_SKIP(*reason);
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  LocalExchange exchange;
  TrainerOptions options;
  options.compute = runtime::make_cuda_compute(0);
  options.keeps_points = true;
  std::string before;
  Trainer* running = nullptr;
  TrainerHooks hooks;
  hooks.on_step = [&](const StepReport& report) {
    if (report.step == 4) {
      before = running->model().parameters_digest();
    }
  };
  Trainer trainer(config, test::make_plan(config, {8}), data, exchange, options, hooks);
  running = &trainer;
  trainer.request_stop_after(5);
  trainer.run();
  CHECK(trainer.model().parameters_digest() != before);
  trainer.go_back();
  CHECK(trainer.model().parameters_digest() == before);
  Trainer on_host(config, test::make_plan(config, {8}), data, exchange, {}, {});
  on_host.take_over(trainer);
  CHECK(on_host.model().parameters_digest() == before);
}

/// A ring of three ranks with this codec on every hop.
plan::Plan ring_plan(const TrainingConfig& config, const plan::Codec& codec) {
  plan::Plan plan = test::make_plan(config, {4, 4, 8});
  plan.schedules = {runtime::ring(3, codec)};
  for (plan::Bucket& bucket : plan.buckets) {
    bucket.schedule = 0;
    bucket.slice_elements = 16;
  }
  return plan;
}

TEST_CASE("GPU training: ranks that share the GPU end with the same bits and the host's losses") {
  if (const auto reason = no_gpu()) RACKRAIL_SKIP(*reason);
  if (runtime::make_cuda_compute(0)->name() != "emulated GPU") {
    // See runtime/nccl/host_messages.hpp; scripts/gpu-check has the same with processes.
    RACKRAIL_SKIP("ranks that are threads may wait for each other in a real driver");
  }
  const std::string codec = GENERATE("none", "int8");
  CAPTURE(codec);
  TrainingConfig config = test::small_config();
  config.steps = 12;
  const DataSplit data = test::make_split(config, 120, 60);
  const plan::Plan plan = ring_plan(config, plan::parse_codec(codec));
  std::vector<std::vector<TrainingResult>> results;
  std::vector<std::vector<std::int64_t>> sent;
  for (const bool on_gpu : {false, true}) {
    const auto transports = runtime::make_in_process_transports(3);
    auto& of_ranks = results.emplace_back(3);
    auto& of_ranks_sent = sent.emplace_back(3);
    runtime::on_every_rank(3, [&](Rank self) {
      TrainerOptions options{.self = self, .compute = nullptr};
      options.compute = on_gpu ? runtime::make_cuda_compute(0) : make_host_compute();
      runtime::Transport& transport = *transports[self.index()];
      std::unique_ptr<runtime::PlanExecutor> executor;
      if (on_gpu) {
        executor = runtime::make_device_plan_executor(plan, self, transport,
                                                      {.stream = options.compute->stream(),
                                                       .path = runtime::DevicePath::kTransport,
                                                       .groups = {},
                                                       .exchange = {}});
      } else {
        executor =
            std::make_unique<runtime::Executor>(plan, self, transport, runtime::ExecutorOptions{});
      }
      {
        ExecutorExchange exchange(*executor);
        Trainer trainer(config, plan, data, exchange, options, {});
        of_ranks[self.index()] = trainer.run();
        of_ranks_sent[self.index()] = executor->statistics().sent.count();
      }
      executor.reset();
      transport.close(1_s);
    });
  }
  if (codec == "none") {  // else a message has each slice's codes at an address of their own
    CHECK(sent[0] == sent[1]);
  }
  CHECK(sent[0][0] > 0);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(results[1][r].parameters_digest == results[1][0].parameters_digest);
    // With a codec, what is rounded up here may be rounded down there.
    CHECK(results[1][r].final_loss ==
          Approx(results[0][r].final_loss).epsilon(codec == "none" ? 1e-3 : 0.05));
  }
}

}  // namespace
}  // namespace rackrail::trainer::training_test

// Gradients move while backward goes on. Layers and routes take times that no core has a part in:
// a layer's backward sleeps, and the executor holds what leaves to a route's rate.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/trainer/compute.hpp"
#include "runtime/trainer/executor_exchange.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::overlap_test {
namespace {

constexpr std::chrono::milliseconds kBackward(30);  // of a layer with parameters
constexpr std::int64_t kHidden = 64;
/// With it a hidden layer's gradients, some 4160 floats, take as long as backward of one.
constexpr Bandwidth kRate(550'000);
constexpr std::int64_t kSteps = 9;

class SlowLayer final : public Layer {
 public:
  explicit SlowLayer(std::unique_ptr<Layer> layer) : layer_(std::move(layer)) {}
  ImageShape output_shape() const override { return layer_->output_shape(); }
  std::vector<TensorSpec> tensors() const override { return layer_->tensors(); }
  std::int64_t activations_per_sample() const override { return layer_->activations_per_sample(); }
  void bind(std::span<float> parameters, std::span<float> gradients) override {
    layer_->bind(parameters, gradients);
  }
  std::span<const float> forward(std::int64_t samples, std::span<const float> input) override {
    return layer_->forward(samples, input);
  }
  void backward(std::int64_t samples, std::span<const float> input,
                std::span<const float> output_gradient, std::span<float> input_gradient,
                bool accumulate, const TensorReady& ready) override {
    std::this_thread::sleep_for(kBackward);
    layer_->backward(samples, input, output_gradient, input_gradient, accumulate, ready);
  }

 private:
  std::unique_ptr<Layer> layer_;
};

/// The host with slow dense layers.
class SlowHost final : public Compute {
 public:
  std::string name() const override { return host_->name(); }
  Floats make_floats(std::size_t size) override { return host_->make_floats(size); }
  void load(std::span<const float> host, std::span<float> here) override {
    host_->load(host, here);
  }
  void store(std::span<const float> here, std::span<float> host) override {
    host_->store(here, host);
  }
  void copy(std::span<const float> from, std::span<float> to) override { host_->copy(from, to); }
  std::span<const float> on_host(std::span<const float> here, std::vector<float>& buffer) override {
    return host_->on_host(here, buffer);
  }
  std::span<const float> take_in(std::span<const float> host) override {
    return host_->take_in(host);
  }
  std::unique_ptr<Layer> make_layer(const LayerSpec& spec) override {
    std::unique_ptr<Layer> layer = host_->make_layer(spec);
    return spec.kind == LayerSpec::Kind::kDense ? std::make_unique<SlowLayer>(std::move(layer))
                                                : std::move(layer);
  }
  LossSum softmax_cross_entropy(std::span<const float> outputs,
                                std::span<const std::int32_t> labels, double weight,
                                std::span<float> gradient) override {
    return host_->softmax_cross_entropy(outputs, labels, weight, gradient);
  }
  void add_squared_norm(std::span<const float> here) override { host_->add_squared_norm(here); }
  double take_squared_norm() override { return host_->take_squared_norm(); }
  double norm(std::span<const float> here) override { return host_->norm(here); }
  void update(std::span<float> parameters, std::span<float> momentum,
              std::span<const float> gradients, const SgdStep& step) override {
    host_->update(parameters, momentum, gradients, step);
  }
  void wait() override { host_->wait(); }

 private:
  std::shared_ptr<Compute> host_ = make_host_compute();
};

/// Rank 0 adds what rank 1 has and copies the sum back, both at the rate.
plan::TransferGraph paced_all_reduce() {
  plan::TransferGraph graph("paced", plan::Collective::kAllReduce, 2, {1});
  const RouteId there = graph.add_route({LinkId(0)}, kRate);
  const RouteId back = graph.add_route({LinkId(1)}, kRate);
  plan::Transfer transfer;
  transfer.codec = graph.add_codec({});
  transfer.op = plan::TransferOp::kReduce;
  transfer.src = Rank(1);
  transfer.dst = Rank(0);
  transfer.route = there;
  const std::vector<TransferId> addition = {graph.add_transfer(transfer, {})};
  transfer.op = plan::TransferOp::kCopy;
  transfer.src = Rank(0);
  transfer.dst = Rank(1);
  transfer.route = back;
  graph.add_transfer(transfer, addition);
  return graph;
}

/// What all buckets take when nothing is computed beside them: the least of some tries.
Duration time_of_communication(const plan::Plan& plan) {
  constexpr std::uint32_t kTries = 3;
  runtime::Ranks ranks(plan);
  Duration least = Duration::from_seconds(3600);
  runtime::on_every_rank(plan.rank_count(), [&](Rank rank) {
    std::vector<std::vector<float>> gradients;
    for (const plan::Bucket& bucket : plan.buckets) {
      gradients.emplace_back(static_cast<std::size_t>(bucket.elements));
    }
    for (std::uint32_t step = 0; step < kTries; ++step) {
      const Duration began = wall_clock();
      ranks[rank].begin_step(step);
      for (std::size_t b = 0; b < gradients.size(); ++b) {
        ranks[rank].launch(BucketId(b), gradients[b]);
      }
      ranks[rank].wait_all();
      if (rank == Rank(0)) {
        least = std::min(least, wall_clock() - began);
      }
    }
  });
  return least;
}

/// Rank 0's.
std::vector<StepTimes> train(const TrainingConfig& config, const plan::Plan& plan) {
  const DataSplit data = test::make_split(config, 64, 16);
  std::vector<StepTimes> times;
  std::vector<std::unique_ptr<Trainer>> trainers(plan.rank_count());  // outlive the executors
  runtime::Ranks ranks(plan);
  runtime::on_every_rank(plan.rank_count(), [&](Rank rank) {
    ExecutorExchange exchange(ranks[rank]);
    TrainerHooks hooks;
    if (rank == Rank(0)) {
      hooks.on_step = [&](const StepReport& report) { times.push_back(report.times); };
    }
    TrainerOptions options;
    options.self = rank;
    options.compute = std::make_shared<SlowHost>();
    options.evaluate = false;
    trainers[rank.index()] =
        std::make_unique<Trainer>(config, plan, data, exchange, options, hooks);
    trainers[rank.index()]->run();
  });
  return times;
}

TEST_CASE("A step takes less than its computation and its communication, one after the other") {
  TrainingConfig config = test::small_config();
  config.model.hidden = {kHidden, kHidden, kHidden};
  config.steps = kSteps;
  plan::Plan plan = test::make_plan(config, {4, 4}, {{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  plan.schedules = {paced_all_reduce()};
  for (plan::Bucket& bucket : plan.buckets) {
    bucket.slice_elements = 64;
  }
  // What else a machine does may make every step of a try longer, and its communication not.
  constexpr int kTries = 4;
  double saved = 0;  // of the communication
  for (int attempt = 0; attempt < kTries && saved <= 0.5; ++attempt) {
    const Duration communication = time_of_communication(plan);
    // Two hidden layers', and a little; the slices that may catch up are sooner.
    CHECK(communication.seconds() > 0.055);
    const std::vector<StepTimes> steps = train(config, plan);
    REQUIRE(steps.size() == kSteps);
    for (const StepTimes& step : steps) {
      CHECK(step.backward.seconds() >= 4 * 0.03);
      saved = std::max(saved, (step.compute() + communication - step.step) / communication);
    }
  }
  // All but what the first layer's gradients take, which are the last to be there: seven eighths.
  CHECK(saved > 0.5);
}

}  // namespace
}  // namespace rackrail::trainer::overlap_test

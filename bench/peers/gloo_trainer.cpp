// The built-in trainer over Gloo's ring: what scripts/measure-trainer holds `rackrail train`
// against.
//
//   gloo_trainer <plan> <training> <steps> <store>
//
// Same model, data, batches, optimiser and buckets as `rackrail train <plan>`; only what sums a
// bucket is another: a thread that gives each to gloo::allreduce (ring) as soon as it is launched,
// while backward goes on, as PyTorch's DistributedDataParallel does. One rank of RACKRAIL_RANK and
// RACKRAIL_WORLD_SIZE; `store` is a folder where all find each other. Codecs of the plan are not
// used. Rank 0 prints one JSON object.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>

#include "base/file.hpp"
#include "plan/format.hpp"
#include "runtime/trainer/trainer.hpp"

namespace {

using namespace rackrail;

class GlooExchange final : public trainer::GradientExchange {
 public:
  explicit GlooExchange(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {
    thread_ = std::thread([this] { sum_all(); });
  }
  ~GlooExchange() override {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void begin_step(std::uint32_t /*step*/) override {}
  void launch(BucketId bucket, std::span<float> data) override {
    const std::lock_guard lock(mutex_);
    launched_.emplace_back(bucket, data);
    ++open_;
    changed_.notify_all();
  }
  void wait_all() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ == 0; });
  }

 private:
  void sum_all() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || !launched_.empty(); });
      if (launched_.empty()) {
        return;
      }
      const auto [bucket, data] = launched_.front();
      launched_.pop_front();
      lock.unlock();
      gloo::AllreduceOptions options(context_);
      options.setOutput(data.data(), data.size());
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setReduceFunction(
          static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
      options.setTag(bucket.value());
      gloo::allreduce(options);
      lock.lock();
      --open_;
      changed_.notify_all();
    }
  }

  const std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<BucketId, std::span<float>>> launched_;
  std::size_t open_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

int number(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

std::shared_ptr<gloo::Context> connect(int rank, int ranks, const std::string& folder) {
  gloo::transport::tcp::attr attribute;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  attribute.iface = interface == nullptr ? "lo" : interface;
  auto device = gloo::transport::tcp::CreateDevice(attribute);
  gloo::rendezvous::FileStore store(folder);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  return context;
}

int train(char** words) {
  const int rank = number("RACKRAIL_RANK");
  const int ranks = number("RACKRAIL_WORLD_SIZE");
  const plan::Plan plan = plan::load_plan(words[1]);
  trainer::TrainingConfig config = trainer::parse_training_config(read_file(words[2]), words[2]);
  config.steps = std::atoi(words[3]);
  config.epochs.reset();
  const trainer::DataSplit data = trainer::load_data(config.data);
  GlooExchange exchange(connect(rank, ranks, words[4]));
  trainer::TrainerOptions options;
  options.self = Rank(static_cast<std::uint32_t>(rank));
  trainer::Trainer trainer(config, plan, data, exchange, options, {});
  const trainer::TrainingResult result = trainer.run();
  if (rank == 0) {
    std::cout << nlohmann::json{{"step_time_s", result.summary.step_time.seconds()},
                                {"mean_step_time_s", result.summary.mean_step_time.seconds()},
                                {"steps", result.steps},
                                {"final_accuracy", result.final_evaluation->accuracy}}
              << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "gloo_trainer <plan> <training> <steps> <store>\n";
    return 2;
  }
  try {
    return train(argv);
  } catch (const std::exception& error) {
    std::cerr << "gloo_trainer: " << error.what() << '\n';
    return 1;
  }
}

// What the built-in trainer must not do on a GPU while its sums are under way. On the emulated one.
#include <catch2/catch.hpp>
#include <optional>

#include "runtime/cuda/training.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/emulated_gpu/fibers.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::emulated_training_test {
namespace {

/// Counts what happens between the first launch of a step and the sums' end.
class WatchingExchange final : public GradientExchange {
 public:
  void begin_step(std::uint32_t /*step*/) override {}
  void launch(BucketId /*bucket*/, std::span<float> /*data*/) override {
    ++launches;
    if (!memory_calls_) {
      memory_calls_ = emulated_gpu::memory_calls;
      kernels_ = emulated_gpu::loaded_kernels();
    }
  }
  void wait_all() override {
    REQUIRE(memory_calls_);
    memory_calls += emulated_gpu::memory_calls - *memory_calls_;
    kernels += emulated_gpu::loaded_kernels() - kernels_;
    memory_calls_.reset();
  }

  int launches = 0;
  int memory_calls = 0;
  std::size_t kernels = 0;

 private:
  std::optional<int> memory_calls_;
  std::size_t kernels_ = 0;
};

TEST_CASE("GPU training: from the first step on, backward takes no memory and loads no kernel") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 120, 60);
  emulated_gpu::forget_kernels();
  WatchingExchange exchange;
  TrainerOptions options;
  options.compute = runtime::make_cuda_compute(0);
  Trainer trainer(config, test::make_plan(config, {8}, {{0, 1}, {2, 3}, {4, 5}}), data, exchange,
                  options, {});
  trainer.request_stop_after(3);
  trainer.run();
  CHECK(exchange.launches == 9);
  CHECK(exchange.memory_calls == 0);
  CHECK(exchange.kernels == 0);
}

}  // namespace
}  // namespace rackrail::trainer::emulated_training_test

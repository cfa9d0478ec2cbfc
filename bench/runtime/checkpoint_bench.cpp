// What a checkpoint costs the training thread of rank 0: written there, or by a CheckpointWriter.
#include <benchmark/benchmark.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "runtime/trainer/checkpoint_writer.hpp"

namespace {

using namespace rackrail;
using namespace rackrail::trainer;
using Clock = std::chrono::steady_clock;

/// Parameters and momentum of digits-mlp, as one tensor.
struct State {
  static constexpr std::int64_t kElements = 1'126'410;

  TrainingState of_step(std::int64_t step) {
    TrainingState state{.info = {},
                        .tensors = tensors,
                        .parameters = parameters,
                        .momentum = momentum,
                        .residuals = {}};
    state.info.step = step;
    state.info.world_size = 1;
    return state;
  }

  std::vector<ParameterTensor> tensors{{"weight", {kElements}, 0, kElements}};
  std::vector<float> parameters = std::vector<float>(kElements, 1.5F);
  std::vector<float> momentum = std::vector<float>(kElements, -0.5F);
};

std::filesystem::path folder() {
  return std::filesystem::temp_directory_path() / "rackrail-checkpoint-bench";
}

void on_the_training_thread(benchmark::State& run) {
  State state;
  std::int64_t step = 0;
  for (auto _ : run) {
    write_shards(folder(), Rank(0), state.of_step(++step));
    run.PauseTiming();
    std::filesystem::remove_all(folder());
    run.ResumeTiming();
  }
}
BENCHMARK(on_the_training_thread)->Unit(benchmark::kMillisecond)->UseRealTime();

/// The time until training goes on; the file is waited for outside of it.
void while_training_goes_on(benchmark::State& run) {
  State state;
  std::int64_t step = 0;
  CheckpointWriter writer(
      [](Rank self, const TrainingState& saved) { return stage_shards(folder(), self, saved); },
      [](std::int64_t, const std::vector<CheckpointFile>&) {});
  for (auto _ : run) {
    const Clock::time_point start = Clock::now();
    writer.save(Rank(0), state.of_step(++step));
    run.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
    writer.finish();
    std::filesystem::remove_all(folder());
  }
}
BENCHMARK(while_training_goes_on)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(40);  // by its own time alone it would run for a minute

}  // namespace

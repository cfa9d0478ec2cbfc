// Several ranks as threads: a division of the global batch must not change what is learnt.
#include <barrier>
#include <catch2/catch.hpp>
#include <memory>
#include <mutex>
#include <thread>

#include "runtime/trainer/trainer.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::trainer_ranks_test {
namespace {

/// Sums over threads through shared memory, in the order of ranks: simple enough to be right.
class SharedSum {
 public:
  SharedSum(std::size_t ranks, std::size_t buckets)
      : barrier_(static_cast<std::ptrdiff_t>(ranks)),
        shares_(ranks, std::vector<std::span<float>>(buckets)) {}

  void publish(std::size_t rank, std::size_t bucket, std::span<float> data) {
    shares_[rank][bucket] = data;
  }
  void sum_all(std::size_t rank) {
    barrier_.arrive_and_wait();
    if (rank == 0) {
      for (std::size_t bucket = 0; bucket < shares_[0].size(); ++bucket) {
        for (std::size_t i = 0; i < shares_[0][bucket].size(); ++i) {
          float sum = 0;
          for (const auto& share : shares_) {
            sum += share[bucket][i];
          }
          for (const auto& share : shares_) {
            share[bucket][i] = sum;
          }
        }
      }
    }
    barrier_.arrive_and_wait();
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::vector<std::span<float>>> shares_;
};

class SharedSumExchange final : public GradientExchange {
 public:
  SharedSumExchange(SharedSum& sum, std::size_t rank) : sum_(sum), rank_(rank) {}
  void begin_step(std::uint32_t /*step*/) override {}
  void launch(BucketId bucket, std::span<float> data) override {
    sum_.publish(rank_, bucket.index(), data);
  }
  void wait_all() override { sum_.sum_all(rank_); }

 private:
  SharedSum& sum_;
  std::size_t rank_;
};

struct Outcome {
  std::vector<double> losses;        // mean over the global batch, by step
  std::vector<std::string> digests;  // by rank
  double accuracy = 0;
  std::vector<double> first_weighted;  // w_i·|g_i|² of the first step, by rank
  double first_norm = 0;               // |ḡ| of the first step
};

Outcome train(const TrainingConfig& config, const DataSplit& data,
              const std::vector<std::int64_t>& local_batch) {
  const std::size_t ranks = local_batch.size();
  const plan::Plan plan = test::make_plan(config, local_batch, {{0, 1}, {2, 5}, {3, 4}});
  SharedSum sum(ranks, plan.buckets.size());
  Outcome outcome;
  outcome.losses.resize(static_cast<std::size_t>(*config.steps));
  outcome.digests.resize(ranks);
  outcome.first_weighted.resize(ranks);
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        SharedSumExchange exchange(sum, r);
        TrainerHooks hooks;
        hooks.on_step = [&](const StepReport& report) {
          const std::scoped_lock lock(mutex);
          outcome.losses[static_cast<std::size_t>(report.step - 1)] +=
              report.loss * static_cast<double>(report.samples) /
              static_cast<double>(plan.batch.global_batch());
          if (report.step == 1) {
            outcome.first_weighted[r] = report.weighted_squared_norm;
            outcome.first_norm = report.gradient_norm;
          }
        };
        TrainerOptions options;
        options.self = Rank(r);
        Trainer trainer(config, plan, data, exchange, options, hooks);
        const TrainingResult result = trainer.run();
        const std::scoped_lock lock(mutex);
        outcome.digests[r] = result.parameters_digest;
        if (result.final_evaluation) {
          outcome.accuracy = result.final_evaluation->accuracy;
        }
      });
    }
  }
  return outcome;
}

TEST_CASE("Ranks that share a batch learn the same as one that has it alone") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 100, 50);
  const Outcome alone = train(config, data, {12});
  for (const std::vector<std::int64_t>& local_batch :
       std::vector<std::vector<std::int64_t>>{{3, 3, 3, 3}, {1, 11}, {5, 3, 4}}) {
    CAPTURE(local_batch);
    const Outcome shared = train(config, data, local_batch);
    for (std::size_t step = 0; step < alone.losses.size(); ++step) {
      CAPTURE(step);
      // Up to the order of float additions, which forty steps amplify a little.
      CHECK(shared.losses[step] == Approx(alone.losses[step]).epsilon(1e-3));
    }
    CHECK(shared.losses.front() == Approx(alone.losses.front()).epsilon(1e-6));
    CHECK(shared.accuracy == Approx(alone.accuracy).margin(0.021));
    for (const std::string& digest : shared.digests) {
      CHECK(digest == shared.digests.front());
    }
  }
  CHECK(alone.losses.back() < 0.5 * alone.losses.front());
}

TEST_CASE("A rank's norm is that of the gradient it would have alone") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 100, 50);
  // The first rank's samples of the first step are the first of the stream, with or without others.
  for (const std::vector<std::int64_t>& local_batch :
       std::vector<std::vector<std::int64_t>>{{3, 9}, {5, 3, 4}}) {
    CAPTURE(local_batch);
    const Outcome shared = train(config, data, local_batch);
    const double alone = train(config, data, {local_batch[0]}).first_norm;
    CHECK(shared.first_weighted[0] * 12 / static_cast<double>(local_batch[0]) ==
          Approx(alone * alone).epsilon(1e-4));
    double sum = 0;
    for (const double weighted : shared.first_weighted) {
      sum += weighted;
    }
    CHECK(sum > shared.first_norm * shared.first_norm);  // Jensen's inequality
  }
}

}  // namespace
}  // namespace rackrail::trainer::trainer_ranks_test

// The trainer over the real executor: ranks are threads, joined by in-process transports.
#include "runtime/trainer/executor_exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <exception>
#include <mutex>
#include <thread>

#include "runtime/executor.hpp"
#include "runtime/trainer/trainer.hpp"
#include "runtime/transport.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::trainer_executor_test {
namespace {

/// All-reduce in two hops, made by hand: chunk c is added up at rank c, then copied to all.
plan::TransferGraph direct_all_reduce(std::size_t ranks, const plan::Codec& codec) {
  plan::TransferGraph graph("direct", plan::Collective::kAllReduce, ranks,
                            std::vector<std::uint32_t>(ranks, 1));
  const std::uint8_t codec_index = graph.add_codec(codec);
  for (std::size_t owner = 0; owner < ranks; ++owner) {
    plan::Transfer transfer;
    transfer.chunk_begin = static_cast<std::uint32_t>(owner);
    transfer.codec = codec_index;
    transfer.op = plan::TransferOp::kReduce;
    transfer.dst = Rank(owner);
    std::vector<TransferId> additions;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r != owner) {
        transfer.src = Rank(r);
        additions.push_back(graph.add_transfer(transfer, {}));
      }
    }
    transfer.op = plan::TransferOp::kCopy;
    transfer.src = Rank(owner);
    for (std::size_t r = 0; r < ranks; ++r) {
      if (r != owner) {
        transfer.dst = Rank(r);
        graph.add_transfer(transfer, additions);
      }
    }
  }
  return graph;
}

plan::Plan make_direct_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch,
                            const plan::Codec& codec) {
  const std::size_t ranks = local_batch.size();
  plan::Plan plan = test::make_plan(config, std::move(local_batch), {{0, 1}, {2, 5}, {3, 4}});
  plan.schedules = {direct_all_reduce(ranks, codec)};
  plan.seed = 3;
  return plan;
}

struct Outcome {
  std::vector<double> losses;        // mean over the global batch, by step
  std::vector<std::string> digests;  // by rank
  std::int64_t first_step = 0;
};

/// What one call of train() does besides training to the end.
struct Course {
  std::optional<std::int64_t> stop_after;
  std::filesystem::path save_to;  // files of all ranks, committed after the run
  std::filesystem::path restore_from;
};

Outcome train(const TrainingConfig& config, const DataSplit& data, const plan::Plan& plan,
              const Course& course = {}) {
  const std::size_t ranks = plan.rank_count();
  auto transports = runtime::make_in_process_transports(ranks);
  std::vector<std::vector<std::byte>> addresses(ranks);
  std::ranges::transform(transports, addresses.begin(),
                         [](const auto& transport) { return transport->address(); });
  Outcome outcome;
  outcome.losses.resize(static_cast<std::size_t>(*config.steps));
  outcome.digests.resize(ranks);
  std::vector<CheckpointFile> files;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto run_rank = [&](std::size_t r) {
    transports[r]->connect(Rank(r), addresses);
    TrainerHooks hooks;
    hooks.on_step = [&](const StepReport& report) {
      const std::scoped_lock lock(mutex);
      outcome.losses[static_cast<std::size_t>(report.step - 1)] +=
          report.loss * static_cast<double>(report.samples) /
          static_cast<double>(plan.batch.global_batch());
    };
    hooks.on_checkpoint = [&](const TrainingState& state) {
      std::vector<CheckpointFile> own = write_shards(course.save_to, Rank(r), state);
      const std::scoped_lock lock(mutex);
      files.insert(files.end(), own.begin(), own.end());
    };
    TrainerOptions options;
    options.self = Rank(r);
    std::unique_ptr<Trainer> trainer;  // outlives the executor, which works on its gradients
    runtime::Executor executor(plan, Rank(r), *transports[r], {});
    ExecutorExchange exchange(executor);
    trainer = std::make_unique<Trainer>(config, plan, data, exchange, options, hooks);
    if (!course.restore_from.empty()) {
      trainer->restore(load_checkpoint(course.restore_from, Rank(r), trainer->expectation()));
    }
    if (course.stop_after) {
      trainer->request_stop_after(*course.stop_after);
    }
    const TrainingResult result = trainer->run();
    const std::scoped_lock lock(mutex);
    outcome.digests[r] = result.parameters_digest;
    outcome.first_step = result.first_step;
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] {
        try {
          run_rank(r);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          failure = std::current_exception();
        }
      });
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  if (!course.save_to.empty()) {
    commit_checkpoint(course.save_to, *course.stop_after, files);
  }
  return outcome;
}

TEST_CASE("Four ranks over the executor follow the loss curve of one rank alone") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 100, 50);
  std::vector<double> alone;
  {
    LocalExchange exchange;
    TrainerHooks hooks;
    hooks.on_step = [&](const StepReport& report) { alone.push_back(report.loss); };
    Trainer(config, test::make_plan(config, {16}), data, exchange, {}, hooks).run();
  }
  CHECK(alone.back() < 0.5 * alone.front());
  for (const std::vector<std::int64_t>& local_batch :
       std::vector<std::vector<std::int64_t>>{{4, 4, 4, 4}, {1, 8, 2, 5}, {7, 9}}) {
    CAPTURE(local_batch);
    const Outcome shared =
        train(config, data, make_direct_plan(config, local_batch, plan::Codec{}));
    REQUIRE(shared.losses.size() == alone.size());
    for (std::size_t step = 0; step < alone.size(); ++step) {
      CAPTURE(step);
      // Up to the order of float additions, which forty steps amplify a little.
      CHECK(shared.losses[step] == Approx(alone[step]).epsilon(1e-3));
    }
    for (const std::string& digest : shared.digests) {
      CHECK(digest == shared.digests.front());
    }
  }
}

TEST_CASE("Compressed training with error feedback learns, with equal bits on all ranks") {
  const TrainingConfig config = test::small_config();
  const DataSplit data = test::make_split(config, 100, 50);
  plan::Codec codec;
  codec.kind = plan::CodecKind::kInt8Block;
  const Outcome exact = train(config, data, make_direct_plan(config, {4, 4, 4}, plan::Codec{}));
  const Outcome compressed = train(config, data, make_direct_plan(config, {4, 4, 4}, codec));
  CHECK(compressed.losses != exact.losses);
  CHECK(compressed.losses.back() == Approx(exact.losses.back()).epsilon(0.1));
  for (const std::string& digest : compressed.digests) {
    CHECK(digest == compressed.digests.front());
  }
}

TEST_CASE("Ranks that resume with their residuals end with the same bits as unbroken ones") {
  TrainingConfig config = test::small_config();
  config.checkpoint_every = 20;
  const DataSplit data = test::make_split(config, 50, 20);
  plan::Codec codec;
  codec.kind = plan::CodecKind::kInt8Block;
  const plan::Plan plan = make_direct_plan(config, {3, 5, 4}, codec);

  TrainingConfig unsaved = config;
  unsaved.checkpoint_every = 0;
  const Outcome unbroken = train(unsaved, data, plan);

  const rackrail::test::TemporaryDirectory folder;
  const Outcome first = train(config, data, plan, {20, folder.path(), {}});
  const FoundCheckpoint found = find_latest_valid(folder.path());
  REQUIRE(found.path);
  CHECK_FALSE(load_checkpoint(*found.path, Rank(1), {}).residuals.empty());
  const Outcome second = train(unsaved, data, plan, {{}, {}, *found.path});
  CHECK(second.first_step == 20);
  CHECK(second.digests == unbroken.digests);
  for (std::size_t step = 0; step < unbroken.losses.size(); ++step) {
    CHECK((step < 20 ? first : second).losses[step] == Approx(unbroken.losses[step]));
  }
}

}  // namespace
}  // namespace rackrail::trainer::trainer_executor_test

#include "tests/unit/runtime/trainer/test_ranks.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/parameter_server/parameter_exchange.hpp"
#include "runtime/trainer/executor_exchange.hpp"
#include "runtime/trainer/trainer.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::test {

plan::TransferGraph servers_on_ranks(std::size_t ranks) {
  plan::TransferGraph graph("parameter-server", plan::Collective::kAllReduce, ranks,
                            std::vector<std::uint32_t>(ranks, 1));
  std::vector<std::vector<TransferId>> pushes(ranks);
  plan::Transfer transfer;
  for (std::size_t server = 0; server < ranks; ++server) {
    transfer.chunk_begin = static_cast<std::uint32_t>(server);
    transfer.op = plan::TransferOp::kReduce;
    transfer.dst = Rank(server);
    for (std::size_t offset = 1; offset < ranks; ++offset) {
      transfer.src = Rank((server + offset) % ranks);
      pushes[server].push_back(graph.add_transfer(transfer, {}));
    }
  }
  for (std::size_t server = 0; server < ranks; ++server) {
    transfer.chunk_begin = static_cast<std::uint32_t>(server);
    transfer.op = plan::TransferOp::kCopy;
    transfer.src = Rank(server);
    for (std::size_t offset = 1; offset < ranks; ++offset) {
      transfer.dst = Rank((server + offset) % ranks);
      graph.add_transfer(transfer, pushes[server]);
    }
  }
  return graph;
}

plan::Plan make_server_plan(const TrainingConfig& config, std::vector<std::int64_t> local_batch) {
  const std::size_t ranks = local_batch.size();
  plan::Plan plan = make_plan(config, std::move(local_batch), {{0, 1}, {2, 5}, {3, 4}});
  plan.schedules = {servers_on_ranks(ranks)};
  plan.seed = 3;
  for (plan::Bucket& bucket : plan.buckets) {
    bucket.slice_elements = 16;  // several slices, though the model is small
  }
  return plan;
}

namespace {

/// What moves gradients for one rank: the executor, or the servers of an asynchronous course.
class RankExchange {
 public:
  RankExchange(const plan::Plan& plan, Rank self, runtime::Transport& transport,
               const Synchrony& synchrony) {
    if (synchrony.staleness) {
      servers_ = std::make_unique<runtime::ParameterExchange>(
          plan, self, transport,
          runtime::ParameterExchangeOptions{.staleness = *synchrony.staleness});
    } else {
      executor_ =
          std::make_unique<runtime::Executor>(plan, self, transport, runtime::ExecutorOptions{});
      sums_ = std::make_unique<ExecutorExchange>(*executor_);
    }
  }

  GradientExchange& get() { return servers_ ? static_cast<GradientExchange&>(*servers_) : *sums_; }
  void abort(const std::string& reason) {
    servers_ ? servers_->abort(reason) : executor_->abort(reason);
  }
  void add_to(RankOutcome& outcome) const {
    outcome.sent += (servers_ ? servers_->statistics() : executor_->statistics()).sent;
    if (servers_) {
      const runtime::UpdateStatistics updates = servers_->update_statistics();
      outcome.updates += updates.updates;
      outcome.conflicts += updates.conflicts;
      outcome.stale += updates.stale;
      outcome.most_ahead = std::max(outcome.most_ahead, updates.most_ahead);
    }
  }

 private:
  std::unique_ptr<runtime::ParameterExchange> servers_;
  std::unique_ptr<runtime::Executor> executor_;
  std::unique_ptr<ExecutorExchange> sums_;
};

}  // namespace

RankOutcome train_ranks(const TrainingConfig& config, const DataSplit& data, const plan::Plan& plan,
                        const RankCourse& course) {
  const std::size_t ranks = plan.rank_count();
  RankOutcome outcome;
  outcome.losses.resize(static_cast<std::size_t>(*config.steps));
  outcome.digests.resize(ranks);
  std::map<std::int64_t, std::vector<CheckpointFile>> files;  // by step
  std::mutex mutex;
  std::vector<std::unique_ptr<Trainer>> trainers(ranks);  // outlive what works on their gradients
  // All ranks are served until the last one has ended.
  const auto transports = runtime::joined_transports("in-process", ranks);
  std::vector<std::unique_ptr<RankExchange>> exchanges;
  for (std::size_t r = 0; r < ranks; ++r) {
    exchanges.push_back(
        std::make_unique<RankExchange>(plan, Rank(r), *transports[r], course.synchrony));
  }
  const auto train = [&](Rank rank) {
    TrainerHooks hooks;
    hooks.on_step = [&, rank](const StepReport& report) {
      {
        const std::scoped_lock lock(mutex);
        outcome.losses[static_cast<std::size_t>(report.step - 1)] +=
            report.loss * static_cast<double>(report.samples) /
            static_cast<double>(plan.batch.global_batch());
      }
      if (course.after_step) {
        course.after_step(rank, report.step);
      }
    };
    if (!course.save_to.empty()) {
      hooks.on_checkpoint = [&, rank](const TrainingState& state) {
        std::vector<CheckpointFile> own = write_shards(course.save_to, rank, state);
        const std::scoped_lock lock(mutex);
        auto& all = files[state.info.step];
        all.insert(all.end(), own.begin(), own.end());
      };
    }
    TrainerOptions options;
    options.self = rank;
    options.local_steps = course.synchrony.local_steps;
    auto& trainer = trainers[rank.index()];
    trainer = std::make_unique<Trainer>(config, plan, data, exchanges[rank.index()]->get(), options,
                                        hooks);
    if (!course.restore_from.empty()) {
      trainer->restore(load_checkpoint(course.restore_from, rank, trainer->expectation()));
    }
    if (course.stop_after) {
      trainer->request_stop_after(*course.stop_after);
    }
    const TrainingResult result = trainer->run();
    const std::scoped_lock lock(mutex);
    outcome.digests[rank.index()] = result.parameters_digest;
    outcome.first_step = result.first_step;
    if (result.final_evaluation) {
      outcome.accuracy = result.final_evaluation->accuracy;
    }
  };
  runtime::on_every_rank(ranks, [&](Rank rank) {
    try {
      train(rank);
    } catch (const std::exception& error) {
      for (const auto& exchange : exchanges) {
        exchange->abort(error.what());
      }
      throw;
    }
  });
  for (const auto& exchange : exchanges) {
    exchange->add_to(outcome);
  }
  for (const auto& [step, parts] : files) {
    commit_checkpoint(course.save_to, step, parts);
    outcome.saved.push_back(step);
  }
  return outcome;
}

}  // namespace rackrail::trainer::test

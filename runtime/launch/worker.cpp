#include "runtime/launch/worker.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/client.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/executor.hpp"
#include "runtime/launch/job_settings.hpp"
#include "runtime/trainer/executor_exchange.hpp"
#include "runtime/trainer/trainer.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime {
namespace {

constexpr Duration kCloseDeadline(2'000'000'000'000);  // 2 s

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

Duration process_cpu_time() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto duration = [](const timeval& time) {
    return Duration(std::int64_t{time.tv_sec} * 1'000'000'000'000 +
                    std::int64_t{time.tv_usec} * 1'000'000);
  };
  return duration(usage.ru_utime) + duration(usage.ru_stime);
}

std::string wanted_transport(const WorkerOptions& options) {
  if (!options.transport.empty()) {
    return options.transport;
  }
  const char* variable = std::getenv("RACKRAIL_TRANSPORT");
  return variable != nullptr && *variable != '\0' ? variable : "ucx";
}

/// The wanted transport, or the first other one that works between processes.
std::unique_ptr<Transport> open_transport(const std::string& wanted,
                                          std::vector<std::string>& notes) {
  std::string reason;
  try {
    return make_transport(wanted);
  } catch (const RuntimeFailure& error) {
    reason = error.what();
  }
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == wanted || kind.name == "in-process" || kind.unavailable) {
      continue;
    }
    std::unique_ptr<Transport> transport = make_transport(kind.name);
    notes.push_back("gradients move over " + kind.name + ", because " + reason);
    return transport;
  }
  throw RuntimeFailure("no transport between processes can be used: " + reason);
}

// Addresses travel with the transport's name before them, so that two ranks with different
// transports find out before they try to connect.

std::vector<std::byte> named_address(const Transport& transport) {
  const std::string_view name = transport.name();
  std::vector<std::byte> result;
  for (const char c : name) {
    result.push_back(static_cast<std::byte>(c));
  }
  result.push_back(std::byte{0});
  const std::vector<std::byte> address = transport.address();
  result.insert(result.end(), address.begin(), address.end());
  return result;
}

std::vector<std::vector<std::byte>> plain_addresses(
    const Transport& transport, const std::vector<std::vector<std::byte>>& named) {
  std::vector<std::vector<std::byte>> result;
  for (std::size_t rank = 0; rank < named.size(); ++rank) {
    const auto end = std::find(named[rank].begin(), named[rank].end(), std::byte{0});
    std::string name;
    std::transform(named[rank].begin(), end, std::back_inserter(name),
                   [](std::byte byte) { return static_cast<char>(byte); });
    if (end == named[rank].end() || name != transport.name()) {
      throw RuntimeFailure("rank " + std::to_string(rank) + " uses the transport '" + name +
                           "', this worker '" + std::string(transport.name()) + "'");
    }
    result.emplace_back(end + 1, named[rank].end());
  }
  return result;
}

WorkerResult failed(const AbortReason& reason) {
  WorkerResult result;
  result.reason = reason.line;
  result.exit_status = reason.bad_input ? 2 : 1;
  return result;
}

/// The executor, and when its current step began.
class TimedExchange final : public trainer::GradientExchange {
 public:
  explicit TimedExchange(Executor& executor) : exchange_(executor) {}

  void begin_step(std::uint32_t step) override {
    step_began_ = trainer::wall_clock();
    exchange_.begin_step(step);
  }
  void launch(BucketId bucket, std::span<float> data) override { exchange_.launch(bucket, data); }
  void wait_all() override { exchange_.wait_all(); }
  trainer::Residuals residuals() const override { return exchange_.residuals(); }
  void set_residuals(const trainer::Residuals& residuals) override {
    exchange_.set_residuals(residuals);
  }

  Duration step_began() const { return step_began_; }

 private:
  trainer::ExecutorExchange exchange_;
  Duration step_began_;
};

/// One worker from joining to leaving. Members are made in the order of the story, and go in the
/// opposite one.
class Life {
 public:
  explicit Life(const WorkerOptions& options)
      : options_(options),
        client_(options.coordinator, read_job_token(options.token_file),
                [this](const std::string& reason) { abort(reason); }) {
    report_.host = host_name();
    report_.pid = getpid();
  }

  WorkerResult run() {
    try {
      live();
      WorkerResult result;
      result.ok = true;
      result.joined = true;
      result.report = std::move(report_);
      return result;
    } catch (const PeerLostError& error) {
      return end_after_loss(error.what());
    } catch (const Error& error) {
      return end_after_failure({error.what(), error.is_bad_input()});
    } catch (const std::exception& error) {
      return end_after_failure({error.what(), false});
    }
  }

 private:
  void live() {
    transport_ = open_transport(wanted_transport(options_), report_.notes);
    report_.transport = transport_->name();
    const Welcome welcome = client_.join({.rank = options_.rank,
                                          .world_size = options_.world_size,
                                          .address = named_address(*transport_),
                                          .plan_digest = options_.plan_digest,
                                          .host = report_.host,
                                          .pid = report_.pid,
                                          .version = std::string(build_config::kVersion)},
                                         options_.rendezvous_deadline);
    joined_ = true;
    const Duration joined_at = trainer::wall_clock();
    const Duration cpu_before = process_cpu_time();
    report_.rank = welcome.rank;
    report_.membership_epochs = welcome.epoch;

    plan_ = std::make_unique<plan::Plan>(plan::parse_plan(welcome.plan, "the job's plan"));
    if (plan_->rank_count() != welcome.world_size) {
      throw PlanError(
          ErrorContext{.file = "the job's plan",
                       .where = "ranks",
                       .found = std::to_string(plan_->rank_count()),
                       .expected = std::to_string(welcome.world_size) + ", the number of workers"});
    }
    settings_ = parse_job_settings(welcome.job_options);
    connect(welcome);
    train();

    report_.wall_time = trainer::wall_clock() - joined_at;
    report_.cpu_time = process_cpu_time() - cpu_before;
    add_statistics();
    client_.report_result(to_json(report_));
    // Others may still need what this rank's executor forwards.
    client_.wait_until_finished();
    close();
    client_.leave(true);
  }

  void connect(const Welcome& welcome) {
    transport_->connect(welcome.rank, plain_addresses(*transport_, welcome.addresses));
    ExecutorOptions options;
    options.epoch = welcome.epoch;
    options.record_timeline = settings_.timeline_step.has_value();
    executor_made_ = trainer::wall_clock();
    auto executor = std::make_unique<Executor>(*plan_, welcome.rank, *transport_, options);
    const std::lock_guard lock(executor_mutex_);
    executor_ = std::move(executor);
    if (const std::optional<std::string> reason = client_.abort_reason()) {
      executor_->abort(*reason);  // it came before there was an executor to be told
    }
  }

  void train() {
    const trainer::TrainingConfig config = training_config(settings_);
    data_ = std::make_unique<trainer::DataSplit>(trainer::load_data(config.data));
    exchange_ = std::make_unique<TimedExchange>(*executor_);
    trainer::TrainerOptions options;
    options.self = report_.rank;
    options.timeline_step = settings_.timeline_step;
    trainer::TrainerHooks hooks;
    hooks.on_step = [this](const trainer::StepReport& step) { step_done(step); };
    if (!settings_.checkpoint_folder.empty()) {
      hooks.on_checkpoint = [this](const trainer::TrainingState& state) { save(state); };
    }
    trainer_ = std::make_unique<trainer::Trainer>(config, *plan_, *data_, *exchange_, options,
                                                  std::move(hooks));
    if (!settings_.restore.empty()) {
      trainer_->restore(
          trainer::load_checkpoint(settings_.restore, report_.rank, trainer_->expectation()));
    }
    const trainer::TrainingResult result = trainer_->run();

    report_.first_step = static_cast<std::uint32_t>(result.first_step);
    report_.steps = static_cast<std::uint32_t>(result.steps);
    report_.final_loss = result.final_loss;
    if (result.final_evaluation) {
      report_.final_accuracy = result.final_evaluation->accuracy;
      report_.final_test_loss = result.final_evaluation->loss;
    }
    report_.skipped_steps = static_cast<std::uint32_t>(result.skipped_steps);
    report_.parameters_digest = result.parameters_digest;
    report_.step_time = result.summary.step_time;
    report_.compute_time = result.summary.compute_time;
    report_.compute_cpu_time = result.summary.compute_cpu_time;
    report_.sync_time = result.summary.sync_time;
    report_.input_wait = result.summary.input_wait;
    report_.sync_share = result.summary.sync_share;
    report_.timeline.insert(report_.timeline.begin(), result.timeline.begin(),
                            result.timeline.end());
  }

  void step_done(const trainer::StepReport& step) {
    report_.losses.push_back(step.loss);
    if (!step.skipped) {
      report_.weighted_squared_norms.push_back(step.weighted_squared_norm);
      report_.squared_norms.push_back(step.gradient_norm * step.gradient_norm);
    }
    client_.set_progress({static_cast<std::uint32_t>(step.step), step.loss, step.times.step});
    if (settings_.timeline_step) {
      // Taken after every step, so that only the wanted one is kept.
      const std::vector<plan::TimelineEvent> events = executor_->take_timeline();
      if (step.step == std::int64_t{*settings_.timeline_step} + 1) {
        // The executor counts from its making, the trainer's timeline from the step's beginning.
        const Duration shift = executor_made_ - exchange_->step_began();
        for (const plan::TimelineEvent& event : events) {
          report_.timeline.push_back(
              {event.what, event.track, event.start + shift, event.end + shift});
        }
      }
    }
  }

  void save(const trainer::TrainingState& state) {
    std::vector<CheckpointFile> files;
    for (const trainer::CheckpointFile& file :
         trainer::write_shards(settings_.checkpoint_folder, report_.rank, state)) {
      files.push_back({file.name, file.sha256, Bytes(file.bytes)});
    }
    client_.report_checkpoint(static_cast<std::uint32_t>(state.info.step), files);
  }

  void add_statistics() {
    const ExecutorStatistics statistics = executor_->statistics();
    report_.bytes_sent = statistics.sent;
    report_.messages = statistics.messages;
    report_.bytes_by_pair = statistics.bytes_by_pair;
    report_.encode_time = statistics.encode_time;
    report_.decode_time = statistics.decode_time;
  }

  /// From a thread of the client.
  void abort(const std::string& reason) {
    const std::lock_guard lock(executor_mutex_);
    if (executor_ != nullptr) {
      executor_->abort(reason);
    }
  }

  void close() noexcept {
    std::unique_ptr<Executor> ending;
    {
      const std::lock_guard lock(executor_mutex_);
      ending.swap(executor_);
    }
    ending.reset();  // joins its thread, so without the lock
    if (transport_ != nullptr) {
      transport_->close(kCloseDeadline);
    }
  }

  WorkerResult end_after_loss(const std::string& seen_here) {
    // The transport notices a lost peer as soon as the coordinator does, which knows who it was.
    std::optional<std::string> reason = client_.abort_reason();
    if (!reason) {
      reason = client_.report_transport_error(std::nullopt, seen_here);
    }
    return end_after_failure({reason.value_or(seen_here), false});
  }

  WorkerResult end_after_failure(const AbortReason& reason) {
    client_.leave(false, reason);
    close();
    WorkerResult result = failed(reason);
    result.joined = joined_;
    result.leader_knows = client_.coordinator_knows();
    return result;
  }

  const WorkerOptions& options_;
  bool joined_ = false;
  WorkerReport report_;
  JobSettings settings_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<plan::Plan> plan_;
  std::unique_ptr<trainer::DataSplit> data_;
  std::unique_ptr<TimedExchange> exchange_;
  // Owns the gradients, which the executor's thread may touch as long as there is one.
  std::unique_ptr<trainer::Trainer> trainer_;
  std::mutex executor_mutex_;  // guards the pointer against the client's threads
  std::unique_ptr<Executor> executor_;
  Duration executor_made_;
  CoordinatorClient client_;  // last: its threads call abort()
};

}  // namespace

WorkerResult run_worker(const WorkerOptions& options) {
  if (options.die_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  try {
    return Life(options).run();
  } catch (const Error& error) {  // no token, for example
    return failed({error.what(), error.is_bad_input()});
  } catch (const std::exception& error) {
    return failed({error.what(), false});
  }
}

}  // namespace rackrail::runtime

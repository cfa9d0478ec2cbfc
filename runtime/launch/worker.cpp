#include "runtime/launch/worker.hpp"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/executor.hpp"
#include "runtime/launch/job_settings.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/trainer/executor_exchange.hpp"
#include "runtime/trainer/trainer.hpp"

namespace rackrail::runtime {
namespace {

Duration process_cpu_time() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto duration = [](const timeval& time) {
    return Duration(std::int64_t{time.tv_sec} * 1'000'000'000'000 +
                    std::int64_t{time.tv_usec} * 1'000'000);
  };
  return duration(usage.ru_utime) + duration(usage.ru_stime);
}

SessionOptions session_options(const WorkerOptions& options) {
  SessionOptions session;
  session.coordinator = options.coordinator;
  session.token = read_job_token(options.token_file);
  session.rank = options.rank;
  session.world_size = options.world_size;
  session.plan_digest = options.plan_digest;
  session.transport = options.transport.empty() ? default_transport() : options.transport;
  session.takes_other_transport = true;
  session.rendezvous_deadline = options.rendezvous_deadline;
  return session;
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
  explicit Life(const WorkerOptions& options) : session_(session_options(options)) {
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
      return end_after_failure({session_.reason_of_loss(error.what()), false});
    } catch (const Error& error) {
      return end_after_failure({error.what(), error.is_bad_input()});
    } catch (const std::exception& error) {
      return end_after_failure({error.what(), false});
    }
  }

 private:
  void live() {
    session_.join();
    const Welcome& welcome = session_.welcome();
    const Duration joined_at = trainer::wall_clock();
    const Duration cpu_before = process_cpu_time();
    report_.transport = session_.transport_name();
    report_.notes = session_.notes();
    report_.rank = welcome.rank;
    report_.membership_epochs = welcome.epoch;

    plan::Plan plan = plan::parse_plan(welcome.plan, "the job's plan");
    settings_ = parse_job_settings(welcome.job_options);
    executor_made_ = trainer::wall_clock();
    session_.start(std::move(plan), {.record_timeline = settings_.timeline_step.has_value()});
    train();

    report_.wall_time = trainer::wall_clock() - joined_at;
    report_.cpu_time = process_cpu_time() - cpu_before;
    add_statistics();
    session_.finish(to_json(report_));
  }

  void train() {
    const trainer::TrainingConfig config = training_config(settings_);
    data_ = std::make_unique<trainer::DataSplit>(trainer::load_data(config.data));
    exchange_ = std::make_unique<TimedExchange>(session_.executor());
    trainer::TrainerOptions options;
    options.self = report_.rank;
    options.timeline_step = settings_.timeline_step;
    trainer::TrainerHooks hooks;
    hooks.on_step = [this](const trainer::StepReport& step) { step_done(step); };
    if (!settings_.checkpoint_folder.empty()) {
      hooks.on_checkpoint = [this](const trainer::TrainingState& state) { save(state); };
    }
    trainer_ = std::make_unique<trainer::Trainer>(config, session_.plan(), *data_, *exchange_,
                                                  options, std::move(hooks));
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
    session_.coordinator().set_progress(
        {static_cast<std::uint32_t>(step.step), step.loss, step.times.step});
    if (settings_.timeline_step) {
      // Taken after every step, so that only the wanted one is kept.
      const std::vector<plan::TimelineEvent> events = session_.executor().take_timeline();
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
    session_.coordinator().report_checkpoint(static_cast<std::uint32_t>(state.info.step), files);
  }

  void add_statistics() {
    const ExecutorStatistics statistics = session_.executor().statistics();
    report_.bytes_sent = statistics.sent;
    report_.messages = statistics.messages;
    report_.bytes_by_pair = statistics.bytes_by_pair;
    report_.encode_time = statistics.encode_time;
    report_.decode_time = statistics.decode_time;
  }

  WorkerResult end_after_failure(const AbortReason& reason) {
    session_.fail(reason);
    WorkerResult result = failed(reason);
    result.joined = session_.has_joined();
    result.leader_knows = session_.coordinator().coordinator_knows();
    return result;
  }

  WorkerReport report_;
  JobSettings settings_;
  std::unique_ptr<trainer::DataSplit> data_;
  std::unique_ptr<TimedExchange> exchange_;
  // Owns the gradients, which the executor's thread may touch as long as there is one.
  std::unique_ptr<trainer::Trainer> trainer_;
  Duration executor_made_;
  Session session_;  // last: its executor goes first
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

#include "runtime/launch/worker.hpp"

#include <sys/prctl.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/coordinator/job_token.hpp"
#include "runtime/executor.hpp"
#include "runtime/launch/detachable_exchange.hpp"
#include "runtime/launch/exchange_times.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/launch/job_settings.hpp"
#include "runtime/launch/session.hpp"
#include "runtime/launch/state_transfer.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/residual_limit.hpp"
#include "runtime/trainer/checkpoint_writer.hpp"
#include "runtime/trainer/profile.hpp"
#include "runtime/trainer/statistics.hpp"
#include "runtime/trainer/trainer.hpp"

namespace rackrail::runtime {
namespace {

// For a coordinator that does not answer, and for the others and a plan.
constexpr Duration kReturnPatience = 30_s;
// Period of the pulses between workers over that of the heartbeats.
constexpr double kPulsesPerHeartbeat = 0.5;
// Steps between meetings of asynchronous workers that may have to go back to one: enough for a
// meeting to cost little, few enough for a loss to cost little.
constexpr std::int64_t kMeetsPerBound = 8;  // bounds: steps that workers may be apart, and one
constexpr std::int64_t kMostBetweenMeetings = 96;

SessionOptions session_options(const WorkerOptions& options) {
  SessionOptions session;
  session.coordinator = options.coordinator;
  session.token = read_job_token(options.token_file);
  session.tls = tls_of_environment();
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

/// One worker from joining to leaving. Members are made in the order of the story, and go in the
/// opposite one.
class Life {
 public:
  explicit Life(const WorkerOptions& options)
      : no_nccl_(options.no_nccl),
        session_options_(session_options(options)),
        session_(std::make_unique<Session>(session_options_)) {
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
      return end_after_failure({session_->reason_of_loss(error), false});
    } catch (const Error& error) {
      return end_after_failure({error.what(), error.is_bad_input()});
    } catch (const std::exception& error) {
      return end_after_failure({error.what(), false});
    }
  }

 private:
  void live() {
    bool is_lost = false;
    do {
      try {
        if (is_lost) {
          come_back();
        } else {
          join();
        }
        if (data_ == nullptr) {
          prepare();
        }
        begin();
        work();
        return;
      } catch (const PeerLostError& error) {
        is_lost = true;
        const std::string reason = session_->reason_of_loss(error);
        // A coordinator that is lost may be busy, or be restarted.
        const CoordinatorClient& coordinator = session_->coordinator();
        const bool may_come_back = (goes_back() && coordinator.is_to_come_back()) ||
                                   (settings_.survives_losses && coordinator.is_coordinator_lost());
        if (!may_come_back) {
          throw PeerLostError(reason);
        }
      }
    } while (is_lost);
  }

  /// The seat is this worker's, and it knows the job, also where it cannot reach the others.
  void join() {
    const auto take_note = [this] {
      const Welcome& welcome = session_->welcome();
      seat_ = welcome.seat;
      report_.rank = welcome.rank;
      report_.membership_epochs = welcome.epoch;
      settings_ = parse_job_settings(welcome.job_options);
    };
    try {
      session_->join();
    } catch (const MissedPeerError&) {
      take_note();
      throw;
    }
    take_note();
  }

  /// Once, after this worker has joined.
  void prepare() {
    joined_at_ = trainer::wall_clock();
    cpu_before_ = trainer::process_cpu_clock();
    report_.transport = session_->transport_name();
    report_.notes = session_->notes();
    if (settings_.outlives_coordinator) {
      std::signal(SIGPIPE, SIG_IGN);  // who reads the output may be gone with it
    }
    data_ =
        std::make_unique<trainer::DataSplit>(trainer::load_data(training_config(settings_).data));
    if (!settings_.checkpoint_folder.empty()) {
      writer_ = make_writer(settings_.checkpoint_folder);
    }
  }

  /// Whether the membership may begin another epoch while this worker lives.
  bool goes_back() const { return settings_.survives_losses || settings_.measures_steps; }

  /// To the end of the training and the job.
  void work() {
    train();
    if (writer_ != nullptr) {
      writer_->finish();
    }
    report_.wall_time = trainer::wall_clock() - joined_at_;
    report_.cpu_time = trainer::process_cpu_clock() - cpu_before_;
    add_statistics();
    session_->finish(to_json(report_));
  }

  /// An epoch of the membership, once this worker has joined it.
  void begin() {
    const Welcome& welcome = session_->welcome();
    const bool is_first = trainer_ == nullptr;
    const bool is_newcomer = std::ranges::count(welcome.newcomers, welcome.rank) != 0;
    std::optional<trainer::LoadedCheckpoint> given;
    const bool is_restart = welcome.newcomers.size() == welcome.world_size;
    if (!welcome.newcomers.empty() && !is_restart) {
      given = pass_on_state();
    }
    take_up_plan();
    if (given) {
      given->tensors = std::vector<trainer::ParameterTensor>(trainer_->model().tensors().begin(),
                                                             trainer_->model().tensors().end());
      trainer_->restore(*given);
    } else if (is_restart && !welcome.checkpoint.empty()) {
      restore_saved_point(welcome.checkpoint);
    } else if (is_first && !settings_.restore.empty()) {
      trainer_->restore(
          trainer::load_checkpoint(settings_.restore, report_.rank, trainer_->expectation()));
    }
    if (is_first) {
      report_.first_step = static_cast<std::uint32_t>(trainer_->step());
    }
    if (!is_restart) {
      note_newcomers();
    }
    if (!is_first || is_newcomer) {
      require_equal_parameters();
    }
    if (!is_first) {
      give_back_memory();
    }
  }

  /// Nobody has parameters, but there is this checkpoint of the job, which may have taken up
  /// another plan since.
  void restore_saved_point(const std::filesystem::path& checkpoint) {
    trainer::CheckpointExpectation expected = trainer_->expectation();
    const std::string plan = std::exchange(expected.plan_digest, {});
    trainer::LoadedCheckpoint saved = trainer::load_checkpoint(checkpoint, report_.rank, expected);
    if (saved.info.plan_digest != plan) {
      saved.residuals.clear();
    }
    trainer_->restore(saved);
  }

  /// What the epoch before has left free in the heap goes to the system, or a job that loses
  /// workers now and then would look as if it leaked.
  static void give_back_memory() {
#ifdef __GLIBC__
    malloc_trim(0);
#endif
  }

  /// Throws PeerLostError when this epoch of the membership is over.
  void require_no_abort() const {
    if (const std::optional<std::string> reason = session_->coordinator().abort_reason()) {
      throw PeerLostError(*reason);
    }
  }

  /// From those who have parameters to those who came for lost ones; what this rank was given.
  std::optional<trainer::LoadedCheckpoint> pass_on_state() {
    const Welcome& welcome = session_->welcome();
    StateTransfer transfer(session_->transport(), welcome.epoch, [this] { require_no_abort(); });
    if (std::ranges::count(welcome.newcomers, welcome.rank) == 0) {
      transfer.give(receivers_of(welcome.rank, welcome.newcomers, welcome.world_size),
                    trainer_->state());
      return std::nullopt;
    }
    const trainer::TrainingConfig config = training_config(settings_);
    const auto model = trainer::make_model(config.model, config.data.format.image,
                                           config.data.format.classes, config.seed);
    return transfer.receive(giver_of(welcome.rank, welcome.newcomers, welcome.world_size),
                            model->parameters().size());
  }

  /// What they were not given, because it was lost with the workers before them.
  void note_newcomers() {
    const Welcome& welcome = session_->welcome();
    const std::string when = " after step " + std::to_string(trainer_->step());
    for (const Rank newcomer : welcome.newcomers) {
      const std::string rank = "rank " + std::to_string(newcomer.value());
      if (settings_.synchrony.local_steps) {
        const Rank giver = giver_of(newcomer, welcome.newcomers, welcome.world_size);
        report_.notes.push_back("the new " + rank + " began with the momentum of rank " +
                                std::to_string(giver.value()) + when);
      } else if (settings_.synchrony.staleness) {
        report_.notes.push_back("the momentum of what " + rank + " serves began anew" + when);
      }
    }
  }

  /// Executor and trainer for the plan of the membership's epoch; a trainer that there was goes on.
  void take_up_plan() {
    const Welcome& welcome = session_->welcome();
    executor_made_ = trainer::wall_clock();
    exchange_times_.begin();
    arrived_.clear();
    plan::Plan plan = plan::parse_plan(welcome.plan, "the job's plan");
    const bool has_rails = !plan.adapters.empty();
    std::unique_ptr<DetachableExchange> exchange;
    if (const auto& staleness = settings_.synchrony.staleness) {
      session_->start_servers(std::move(plan),
                              {.staleness = *staleness, .pulse = pulse(has_rails)});
      exchange = std::make_unique<DetachableExchange>(*session_->servers());
    } else {
      ExecutorOptions options;
      options.record_timeline = settings_.timeline_step.has_value();
      options.pulse = pulse(has_rails);
      session_->start(std::move(plan), options, settings_.gpu ? take_gpu() : MakeExecutor());
      for (const std::string& note : session_->notes()) {
        if (std::find(report_.notes.begin(), report_.notes.end(), note) == report_.notes.end()) {
          report_.notes.push_back(note);
        }
      }
      exchange = std::make_unique<DetachableExchange>(session_->executor());
    }
    std::unique_ptr<trainer::Trainer> trainer = make_trainer(*exchange);
    if (trainer_ != nullptr) {
      note_momentum_of_servers(*trainer);
      trainer->take_over(*trainer_);
    }
    trainer_ = std::move(trainer);
    exchange_ = std::move(exchange);
  }

  /// Others notice a cable that was cut within the time in which the coordinator notices a worker
  /// that froze. Of rails one may be cut while the coordinator is still heard by another.
  std::optional<PulseOptions> pulse(bool has_rails) const {
    if (!settings_.survives_losses && !has_rails) {
      return std::nullopt;
    }
    const Welcome& welcome = session_->welcome();
    const Duration period = scaled(welcome.heartbeat_period, kPulsesPerHeartbeat);
    return PulseOptions{.period = period, .patience = welcome.heartbeat_timeout - period};
  }

  /// A GPU, once; and what moves gradients from there to the ranks of this epoch.
  MakeExecutor take_gpu() {
    gpu_ = std::make_unique<GpuWorker>(
        agree_on_gpu(*settings_.gpu, session_->welcome().rank, {.no_nccl = no_nccl_},
                     [this](const auto& own) { return session_->coordinator().exchange(own); }));
    const GpuChoice& choice = gpu_->choice();
    report_.device = gpu_->compute()->name();
    report_.transport =
        to_string(choice.path, choice.path == DevicePath::kNccl ||
                                   is_staged(choice.staging, session_->transport()));
    if (choice.path != DevicePath::kNccl) {
      report_.transport += " and " + std::string(session_->transport_name());
    }
    if (!choice.note.empty()) {
      report_.notes.push_back(choice.note);
    }
    return gpu_->make_executor();
  }

  /// After a loss, or for another plan: joins the next epoch of the membership with the parameters
  /// that there are, and takes a step back if others lack it.
  void come_back() {
    if (writer_ != nullptr) {
      writer_->drop();  // those of this epoch who are left may have other numbers in the next one
    }
    if (exchange_ != nullptr && exchange_->is_attached()) {
      note_residuals();
      exchange_->detach();
    }
    forget_steps();
    session_->disconnect();
    Returning has{.seat = seat_,
                  .epoch = report_.membership_epochs,
                  .step = 0,
                  .oldest_step = 0,
                  .has_parameters = trainer_ != nullptr};
    if (trainer_ != nullptr) {
      has.step = static_cast<std::uint32_t>(trainer_->step());
      has.oldest_step = static_cast<std::uint32_t>(trainer_->oldest_step());
    }
    session_options_.returning = has;
    if (!settings_.outlives_coordinator) {
      session_options_.rendezvous_deadline = kReturnPatience;
    }
    // The old stream stays until the new one is welcome: the coordinator must not take it for lost.
    const std::unique_ptr<Session> former =
        std::exchange(session_, std::make_unique<Session>(session_options_));
    try {
      join();
    } catch (const MissedPeerError&) {
      throw;
    } catch (const RuntimeFailure& error) {
      // Once more if another worker was lost meanwhile, or a coordinator that is restarted.
      const bool is_again =
          session_->has_joined() ||
          (settings_.outlives_coordinator && session_->coordinator().is_coordinator_lost());
      if (!is_again) {
        throw;
      }
      throw PeerLostError(error.what());
    }
    if (trainer_ != nullptr && session_->welcome().step != trainer_->step()) {
      trainer_->go_back();
      forget_steps();
      if (has_norms_) {
        report_.weighted_squared_norms.pop_back();
        report_.squared_norms.pop_back();
      }
    }
  }

  /// Those that are no part of the training any more.
  void forget_steps() {
    if (trainer_ != nullptr) {
      report_.losses.resize(static_cast<std::size_t>(trainer_->step() - report_.first_step));
    }
  }

  void note_residuals() {
    const trainer::Residuals residuals = exchange_->residuals();
    const auto places = std::ranges::count_if(
        residuals, [](const auto& entry) { return !entry.first.ends_with(kNormsSuffix); });
    if (places != 0 && !exchange_->holds_parameters()) {
      report_.notes.push_back(
          "error feedback of " + std::to_string(places) + " encoders was dropped after step " +
          std::to_string(trainer_->step()) + ": they were those of the plan before");
    }
  }

  /// `next` takes over from the trainer that there is.
  void note_momentum_of_servers(const trainer::Trainer& next) {
    if (exchange_->holds_parameters() &&
        next.expectation().plan_digest != trainer_->expectation().plan_digest) {
      report_.notes.push_back("the servers' momentum began anew after step " +
                              std::to_string(trainer_->step()) +
                              ": it was that of the plan before");
    }
  }

  /// That nobody has an update that another has not. Also a meeting: all have their executors.
  void require_equal_parameters() {
    const std::string own =
        std::to_string(trainer_->step()) + " " + trainer_->model().parameters_digest();
    const std::vector<std::string> all = session_->coordinator().exchange(own);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] != all[0]) {
        throw RuntimeFailure("rank " + std::to_string(rank) +
                             " has other parameters than rank 0 in a new epoch");
      }
    }
  }

  std::unique_ptr<trainer::Trainer> make_trainer(trainer::GradientExchange& exchange) {
    const trainer::TrainingConfig config = training_config(settings_);
    trainer::TrainerOptions options;
    options.keeps_points = goes_back();
    options.saves_end = report_.membership_epochs > 1;
    options.self = report_.rank;
    options.timeline_step = settings_.timeline_step;
    options.compute = gpu_ != nullptr ? gpu_->compute() : nullptr;
    options.local_steps = settings_.synchrony.local_steps;
    options.total_samples = settings_.samples;
    if (const auto& staleness = settings_.synchrony.staleness; staleness && goes_back()) {
      options.meets_every = std::min((*staleness + 1) * kMeetsPerBound, kMostBetweenMeetings);
    }
    trainer::TrainerHooks hooks;
    hooks.on_step = [this](const trainer::StepReport& step) { step_done(step); };
    if (writer_ != nullptr) {
      hooks.on_checkpoint = [this](const trainer::TrainingState& state) {
        writer_->save(report_.rank, state);
      };
    }
    return std::make_unique<trainer::Trainer>(config, session_->plan(), *data_, exchange, options,
                                              std::move(hooks));
  }

  void train() {
    const trainer::TrainingResult result = trainer_->run();
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
    report_.process_cpu_time = result.summary.process_cpu_time;
    exchange_times_.put_medians(report_);
    report_.mean_step_time = result.summary.mean_step_time;
    report_.sync_share = settings_.synchrony.is_synchronous() ? result.summary.sync_share
                                                              : result.summary.overall_sync_share;
    report_.timeline.insert(report_.timeline.begin(), result.timeline.begin(),
                            result.timeline.end());
  }

  void step_done(const trainer::StepReport& step) {
    if (writer_ != nullptr) {
      writer_->require_no_failure();
    }
    report_.losses.push_back(step.loss);
    has_norms_ = step.has_sum && !step.skipped;
    if (has_norms_) {
      report_.weighted_squared_norms.push_back(step.weighted_squared_norm);
      report_.squared_norms.push_back(step.gradient_norm * step.gradient_norm);
    }
    session_->coordinator().set_progress(
        {static_cast<std::uint32_t>(step.step), step.loss, step.times.step});
    exchange_times_.step_done(session_->statistics());
    if (settings_.measures_steps) {
      session_->coordinator().add_measurement(measurement(step));
    }
    if (settings_.timeline_step && session_->servers() == nullptr) {
      // Taken after every step, so that only the wanted one is kept.
      const std::vector<plan::TimelineEvent> events = session_->executor().take_timeline();
      if (step.step == std::int64_t{*settings_.timeline_step} + 1) {
        // The executor counts from its making, the trainer's timeline from the step's beginning.
        const Duration shift = executor_made_ - step.began;
        for (const plan::TimelineEvent& event : events) {
          report_.timeline.push_back(
              {event.what, event.track, event.start + shift, event.end + shift});
        }
      }
    }
  }

  StepMeasurement measurement(const trainer::StepReport& step) {
    StepMeasurement result{.rank = report_.rank,
                           .step = static_cast<std::uint32_t>(step.step),
                           .samples = step.samples,
                           .step_time = step.times.step,
                           .compute_time = step.times.compute(),
                           .received = {}};
    if (has_norms_) {
      result.norms =
          GradientNorms{step.weighted_squared_norm, step.gradient_norm * step.gradient_norm};
    }
    std::map<Rank, ArrivedTraffic> arrived = session_->executor().statistics().arrived;
    for (const auto& [source, traffic] : arrived) {
      const ArrivedTraffic& before = arrived_[source];
      result.received.push_back({source, traffic.bytes - before.bytes, traffic.busy - before.busy});
    }
    arrived_ = std::move(arrived);
    return result;
  }

  std::unique_ptr<trainer::CheckpointWriter> make_writer(const std::filesystem::path& folder) {
    const auto stage = [folder](Rank self, const trainer::TrainingState& state) {
      return trainer::stage_shards(folder, self, state);
    };
    // On the writer's thread: the session lives until that has ended or dropped what it writes.
    const auto tell = [this](std::int64_t step, const std::vector<trainer::CheckpointFile>& files) {
      std::vector<CheckpointFile> told;
      for (const trainer::CheckpointFile& file : files) {
        told.push_back({file.name, file.sha256, Bytes(file.bytes)});
      }
      session_->coordinator().report_checkpoint(static_cast<std::uint32_t>(step), told);
    };
    return std::make_unique<trainer::CheckpointWriter>(stage, tell, [this] { require_no_abort(); });
  }

  void add_statistics() {
    const ExecutorStatistics statistics = session_->statistics();
    report_.bytes_sent = statistics.sent;
    report_.messages = statistics.messages;
    report_.bytes_by_pair = statistics.bytes_by_pair;
    report_.encode_time = statistics.encode_time;
    report_.decode_time = statistics.decode_time;
    if (const ParameterExchange* servers = session_->servers()) {
      const UpdateStatistics updates = servers->update_statistics();
      report_.updates = updates.updates;
      report_.conflicts = updates.conflicts;
      report_.stale_updates = updates.stale;
      report_.most_ahead = updates.most_ahead;
    }
  }

  WorkerResult end_after_failure(const AbortReason& reason) {
    if (writer_ != nullptr) {
      writer_->drop();
    }
    session_->fail(reason);
    WorkerResult result = failed(reason);
    result.joined = session_->has_joined();
    result.leader_knows = session_->coordinator().coordinator_knows();
    return result;
  }

  WorkerReport report_;
  JobSettings settings_;
  std::unique_ptr<trainer::DataSplit> data_;
  std::unique_ptr<GpuWorker> gpu_;
  std::unique_ptr<DetachableExchange> exchange_;
  // Owns the gradients, which the executor's thread may touch as long as there is one.
  std::unique_ptr<trainer::Trainer> trainer_;
  Duration executor_made_;
  Duration joined_at_;
  Duration cpu_before_;
  ExchangeTimes exchange_times_;
  std::map<Rank, ArrivedTraffic> arrived_;  ///< by source, until the latest step's end
  Rank seat_;                               ///< the rank of the first epoch
  bool has_norms_ = false;                  ///< of the latest step
  const std::string no_nccl_;
  SessionOptions session_options_;
  std::unique_ptr<Session> session_;                   // its executor goes before the gradients
  std::unique_ptr<trainer::CheckpointWriter> writer_;  // tells the session's coordinator
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

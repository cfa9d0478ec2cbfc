#include "runtime/launch/local_workers.hpp"

#include <csignal>
#include <utility>

#include "runtime/coordinator/job_token.hpp"
#include "runtime/launch/gpu_worker.hpp"
#include "runtime/trainer/statistics.hpp"

namespace rackrail::runtime {
namespace {

constexpr Duration kLook = 100_ms;  // between two looks at everything

std::string signal_name(int number) { return number == SIGINT ? "SIGINT" : "SIGTERM"; }

}  // namespace

LocalWorkers::LocalWorkers(const JobOptions& options, CoordinatorServer& server,
                           const std::string& token)
    : options_(options),
      server_(server),
      command_(worker_command(token)),
      children_([this](std::size_t child, std::string_view line) {
        if (line.find("Assertion `") != std::string_view::npos) {
          failed_assertions_[child] = line;  // a library's, before it aborts
        }
        if (options_.on_worker_line) {
          options_.on_worker_line(ranks_.at(child), line);
        }
      }) {}

void LocalWorkers::start_all(std::size_t count) {
  has_started_workers_ = true;
  for (std::size_t rank = 0; rank < count; ++rank) {
    start(Rank(rank));
  }
}

CoordinatorOutcome LocalWorkers::wait() {
  while (true) {
    for (const LostWorker& lost : take_lost()) {
      end_worker(lost.rank);
      if (lost.is_replaced) {
        start(lost.rank);
      }
    }
    // Its descriptor stays readable after the first signal.
    const int signals = guard_.received() == 0 ? guard_.file_descriptor() : -1;
    for (const ChildEnd& end : children_.wait_for(kLook, signals)) {
      ended(end);
    }
    if (guard_.received() != 0) {
      server_.stop("interrupted by " + signal_name(guard_.received()));
    }
    // A job that waits for others in the place of the lost ones ends by itself where there are
    // none.
    const bool are_awaited = options_.replacement_deadline && server_.has_started();
    if (has_started_workers_ && children_.running() == 0 && !are_awaited) {
      server_.stop("all workers ended without a result");  // no news if there are results
    }
    if (std::optional<CoordinatorOutcome> outcome = server_.wait_for(Duration())) {
      finish();
      if (!outcome->ok) {
        explain(outcome->reason);
      }
      return *std::move(outcome);
    }
  }
}

ChildCommand LocalWorkers::worker_command(const std::string& token) const {
  ChildCommand command;
  command.words = options_.worker_command;
  if (command.words.empty()) {
    command.words = own_program();
    command.words.emplace_back("worker");
  }
  if (!options_.state_folder.empty()) {
    command.words.emplace_back("--outlives-coordinator");
    command.outlives_parent = true;
  }
  command.words.insert(command.words.end(),
                       {"--coordinator", to_string(server_.address()), "--rank"});
  command.environment = options_.worker_environment;
  command.environment[kJobTokenVariable] = token;
  command.environment["RACKRAIL_TRANSPORT"] = options_.transport;
  return command;
}

void LocalWorkers::start(Rank rank) {
  ChildCommand command = command_;
  command.words.push_back(std::to_string(rank.value()));
  if (options_.gpu && options_.gpu->shares) {
    // A place may be a network of its own.
    command.environment.merge(shared_gpu_variables(rank, !options_.place_worker));
  }
  if (options_.place_worker) {
    options_.place_worker(rank, command);
  }
  ranks_.push_back(rank);
  children_.start(command);
}

void LocalWorkers::want(LostWorker lost) {
  const std::lock_guard lock(mutex_);
  lost_.push_back(lost);
}

std::vector<LocalWorkers::LostWorker> LocalWorkers::take_lost() {
  const std::lock_guard lock(mutex_);
  return std::exchange(lost_, {});
}

void LocalWorkers::end_worker(Rank rank) {
  for (std::size_t child = 0; child < ranks_.size(); ++child) {
    if (ranks_[child] == rank) {
      ended_by_us_.insert(child);
      children_.kill(child);
    }
  }
  if (command_.outlives_parent) {
    ChildCommand command = command_;  // as another process with the same state may have started it
    command.words.push_back(std::to_string(rank.value()));
    kill_orphans(command);
  }
}

void LocalWorkers::ended(const ChildEnd& end) {
  if (!server_.has_started() && !end.ok()) {
    if (!early_end_) {
      early_end_ = end;
    }
    server_.stop(name(end) + ") " + describe(end) + " before all workers had come" +
                 (end.last_line.empty() ? "" : ": " + end.last_line));
  }
  if (end.signal != 0) {
    killed_.push_back(end);
  }
  server_.worker_ended(ranks_.at(end.child), end.pid);
}

/// The workers leave by themselves; those that do not are ended.
void LocalWorkers::finish() {
  const Duration start = trainer::wall_clock();
  const Duration grace = guard_.count() > 1 ? Duration() : options_.stop_grace;
  while (children_.running() > 0 && guard_.count() < 2 && trainer::wall_clock() - start < grace) {
    for (const ChildEnd& end : children_.wait_for(kLook)) {
      ended(end);
    }
  }
  children_.terminate(guard_.count() > 1 ? Duration() : options_.stop_grace);
}

std::vector<std::string> LocalWorkers::deaths() const {
  std::vector<std::string> lines;
  for (const ChildEnd& end : killed_) {
    if (!is_our_doing(end)) {
      lines.push_back(name(end) + ") " + how(end));
    }
  }
  return lines;
}

/// Adds what only the parent of the processes knows.
void LocalWorkers::explain(AbortReason& reason) const {
  if (early_end_ && early_end_->status == 2) {
    reason.bad_input = true;
  }
  for (const ChildEnd& end : killed_) {
    if (reason.line.starts_with(name(end) + " ")) {
      reason.line += "; its process " + how(end);
    } else if (!is_our_doing(end)) {
      reason.line += "; " + name(end) + ") " + how(end);
    }
  }
}

/// A lost worker's process may have been killed by another before it was ended here: that cannot be
/// told apart.
bool LocalWorkers::is_our_doing(const ChildEnd& end) const {
  return end.signal == SIGKILL && ended_by_us_.contains(end.child);
}

std::string LocalWorkers::name(const ChildEnd& end) const {
  return "rank " + std::to_string(ranks_.at(end.child).value()) + " (pid " +
         std::to_string(end.pid);
}

std::string LocalWorkers::how(const ChildEnd& end) const {
  const auto line = failed_assertions_.find(end.child);
  return describe(end) + (line == failed_assertions_.end() ? "" : ": " + line->second);
}

}  // namespace rackrail::runtime

#include "bench/gpu/rank_processes.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/error.hpp"

namespace rackrail::bench {
namespace {

constexpr auto kToSayWhy = std::chrono::seconds(3);

bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

void lose(Rank victim, Shared& shared) {
  shared.lost_at = now_in_nanoseconds();
  shared.lost = static_cast<int>(victim.value());
}

void kill_those_left(const std::vector<pid_t>& children) {
  std::this_thread::sleep_for(kToSayWhy);
  for (const pid_t child : children) {
    if (waitid(P_PID, static_cast<id_t>(child), nullptr, WEXITED | WNOHANG | WNOWAIT) == 0) {
      static_cast<void>(kill(child, SIGKILL));
    }
  }
}

bool end_well(const std::vector<pid_t>& children, int victim, Shared& shared) {
  bool is_good = true;
  bool is_stopped = false;  // the victim, which is still there
  const pid_t victim_pid =
      victim == Shared::kNobody ? 0 : children[static_cast<std::size_t>(victim)];
  for (std::size_t left = children.size(); left > 0;) {
    if (is_stopped && left == 1) {
      static_cast<void>(kill(victim_pid, SIGKILL));
    }
    int status = 0;
    const pid_t child = waitpid(-1, &status, WUNTRACED);
    if (child < 0) {
      return false;
    }
    const bool is_victim = child == victim_pid;
    if (WIFSTOPPED(status)) {
      if (is_victim && !std::exchange(is_stopped, true)) {
        lose(Rank(static_cast<std::size_t>(victim)), shared);
      }
      continue;
    }
    --left;
    if (is_victim && std::exchange(is_stopped, false)) {
      continue;  // killed here, as it is of no more use
    }
    if (is_victim && was_killed(status) && is_good) {
      lose(Rank(static_cast<std::size_t>(victim)), shared);
    } else if ((status != 0 || is_victim) && std::exchange(is_good, false)) {
      kill_those_left(children);
    }
  }
  return is_good;
}

}  // namespace

std::int64_t now_in_nanoseconds() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void raise_to(std::atomic<std::int64_t>& value, std::int64_t least) {
  std::int64_t found = value;
  while (found < least && !value.compare_exchange_weak(found, least)) {
  }
}

Meeting::Meeting(Shared& shared, Rank self, std::size_t ranks) : shared_(shared), self_(self) {
  for (std::size_t r = 0; r < ranks; ++r) {
    members_.emplace_back(r);
  }
}

std::vector<std::string> Meeting::exchange(const std::string& own) {
  auto& round = shared_.statements.at(round_++);
  Statement& mine = round.at(self_.index());
  if (own.size() > mine.text.size()) {
    throw RuntimeFailure(fmt::format("what rank {} has to say takes {} bytes, expected at most {}",
                                     self_.value(), own.size(), mine.text.size()));
  }
  std::copy(own.begin(), own.end(), mine.text.begin());
  mine.size = own.size();
  mine.is_made = true;
  std::vector<std::string> all;
  for (const Rank member : members_) {
    const Statement& its = round.at(member.index());
    while (!its.is_made) {
      if (shared_.is_over) {
        throw RuntimeFailure("another rank has failed");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    all.emplace_back(its.text.data(), its.size);
  }
  return all;
}

void Meeting::leave_out(Rank lost) { std::erase(members_, lost); }

Rank Meeting::self() const {
  const auto place = std::find(members_.begin(), members_.end(), self_) - members_.begin();
  return Rank(static_cast<std::size_t>(place));
}

bool run_processes(std::size_t ranks, int victim, Shared& shared,
                   const std::function<int(Rank)>& act) {
  std::vector<pid_t> children;
  for (std::size_t r = 0; r < ranks; ++r) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::_Exit(act(Rank(r)));
    }
    if (child < 0) {
      fmt::print(stderr, "no process for rank {}\n", r);
      shared.is_over = true;
      victim = Shared::kNobody;
      break;
    }
    children.push_back(child);
  }
  return end_well(children, victim, shared) && children.size() == ranks;
}

}  // namespace rackrail::bench

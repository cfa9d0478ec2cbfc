// Ranks that are processes of this machine, forked by one that only waits: what they tell each
// other, and how they end.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/ids.hpp"

namespace rackrail::bench {

inline constexpr std::size_t kMostRanks = 64;

/// What a rank says to all others, once.
struct Statement {
  std::array<char, 16'384> text = {};
  std::size_t size = 0;
  std::atomic<bool> is_made = false;
};

/// Memory of all processes.
struct Shared {
  static constexpr int kNobody = -1;

  std::array<std::array<Statement, kMostRanks>, 8> statements;  ///< by round and rank
  std::atomic<bool> is_over = false;                            ///< a rank has failed
  std::atomic<int> lost = kNobody;           ///< the rank that was to be lost, and was
  std::atomic<std::int64_t> lost_at = 0;     ///< by now_in_nanoseconds()
  std::atomic<std::int64_t> noticed_at = 0;  ///< by the last of the others
  std::atomic<std::int64_t> summed_at = 0;   ///< by all of them, without it
  std::atomic<std::uint64_t> wrong = 0;      ///< elements
  std::atomic<std::int64_t> step = 0;        ///< of rank 0, the median, in nanoseconds
  std::atomic<bool> is_staged = true;        ///< messages, at rank 0
};

/// Of a clock that all processes share.
std::int64_t now_in_nanoseconds();
/// Makes `value` at least `least`.
void raise_to(std::atomic<std::int64_t>& value, std::int64_t least);

/// One rank's place among the processes.
class Meeting {
 public:
  Meeting(Shared& shared, Rank self, std::size_t ranks);

  /// What each of those who are here says in this round, in the order of their ranks. Throws
  /// RuntimeFailure where one of them fails instead.
  std::vector<std::string> exchange(const std::string& own);
  /// Without this rank, from the next round on.
  void leave_out(Rank lost);
  /// In their order: the ranks that the processes were started as.
  const std::vector<Rank>& members() const { return members_; }
  /// This process's rank among those who are here.
  Rank self() const;

 private:
  Shared& shared_;
  const Rank self_;
  std::vector<Rank> members_;
  std::size_t round_ = 0;
};

/// Starts so many processes, each of which does `act` as a rank and ends with its status, and waits
/// for all of them. Whether all ended well: those that wait for one that has failed would do so for
/// ever, so they are given a moment to say why, and killed. `victim` is to be killed or stopped
/// while it works, after which the others are told (Shared::lost); Shared::kNobody: nobody is.
bool run_processes(std::size_t ranks, int victim, Shared& shared,
                   const std::function<int(Rank)>& act);

}  // namespace rackrail::bench

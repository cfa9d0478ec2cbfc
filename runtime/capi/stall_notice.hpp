// What a rank says when a sum takes so long that another rank may never begin it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.hpp"
#include "runtime/coordinator/inquiry.hpp"

namespace rackrail::capi {

/// Once in each wait of a minute, and then every five: a line to stderr with the ranks that have
/// begun fewer steps than this one, by the coordinator. Nothing where there are none: links are
/// slow.
class StallNotice {
 public:
  StallNotice(runtime::Inquirer inquirer, Rank self);
  ~StallNotice();
  StallNotice(const StallNotice&) = delete;
  StallNotice& operator=(const StallNotice&) = delete;

  /// As long as it lives, this rank waits for the sums of a step, counted from 1.
  class Wait {
   public:
    Wait(StallNotice& notice, std::uint32_t step);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    StallNotice& notice_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  void run();
  void look(std::uint32_t step) const;

  const runtime::Inquirer inquirer_;
  const Rank self_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;  // these are guarded by mutex_
  int waits_ = 0;
  std::uint32_t step_ = 0;
  Clock::time_point next_;  ///< when to look, while there are waits
  std::thread thread_;
};

/// "rank 2", "ranks 1, 3": those that have begun fewer steps; empty: none.
std::string ranks_behind(const std::vector<runtime::MemberStatus>& members, std::uint32_t step);

}  // namespace rackrail::capi

// What a rank says while it waits for the others to join.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.hpp"
#include "runtime/coordinator/inquiry.hpp"

namespace rackrail::capi {

/// As long as it lives, after 10 s and then every minute: a line to stderr. Rank 0 says which ranks
/// have not come and where it listens (`where`), others whether a coordinator answers them.
class LateNotice {
 public:
  LateNotice(runtime::Inquirer inquirer, std::string where, Rank self, std::size_t ranks);
  ~LateNotice();
  LateNotice(const LateNotice&) = delete;
  LateNotice& operator=(const LateNotice&) = delete;

 private:
  void run();
  std::string line() const;

  const runtime::Inquirer inquirer_;
  const std::string where_;
  const Rank self_;
  const std::size_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;  ///< guarded by mutex_
  std::thread thread_;
};

/// "1 of 4 ranks has not come yet: 2", of those who have; empty: all have.
std::string missing_ranks(const std::vector<runtime::MemberStatus>& members, std::size_t ranks);

}  // namespace rackrail::capi

// What a rank says while it waits for the others to join, or to end.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.hpp"
#include "runtime/coordinator/inquiry.hpp"

namespace rackrail::capi {

/// As long as it lives, after 10 s and then every minute: a line to stderr, unless it is empty.
class LateNotice {
 public:
  /// `line` is called from a thread of its own.
  explicit LateNotice(std::function<std::string()> line);
  ~LateNotice();
  LateNotice(const LateNotice&) = delete;
  LateNotice& operator=(const LateNotice&) = delete;

 private:
  void run();

  const std::function<std::string()> line_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;  ///< guarded by mutex_
  std::thread thread_;
};

/// Of rank 0, which listens at `where`: whom it waits for. Others wait for rank 0 to say so: they
/// only say where no coordinator answers.
std::string joining_line(const runtime::Inquirer& inquirer, const std::string& where, Rank self,
                         std::size_t ranks);

/// "1 of 4 ranks has not come yet: 2", of those who have; empty: all have.
std::string missing_ranks(const std::vector<runtime::MemberStatus>& members, std::size_t ranks);

}  // namespace rackrail::capi

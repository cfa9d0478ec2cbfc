// SIGINT, SIGTERM and SIGPIPE as something to wait for, while a job runs.
#pragma once

#include <csignal>

namespace rackrail::runtime {

/// Takes over SIGINT, SIGTERM and SIGPIPE (nobody reads what is printed any more), and gives them
/// back when it goes. One at a time per process.
class InterruptGuard {
 public:
  /// Throws RuntimeFailure when there is one already.
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Becomes readable when a signal came.
  int file_descriptor() const { return read_end_; }
  /// The first signal that came; 0: none.
  int received() const;
  /// How many came: the second says that the user will not wait. A broken pipe counts once.
  int count() const;

 private:
  int read_end_ = -1;
  int write_end_ = -1;
  struct sigaction old_interrupt_ = {};
  struct sigaction old_terminate_ = {};
  struct sigaction old_pipe_ = {};
};

}  // namespace rackrail::runtime

#include "runtime/launch/signals.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "base/error.hpp"

namespace rackrail::runtime {
namespace {

// What a handler may touch: lock-free atomics.
std::atomic<int> wake_descriptor{-1};
std::atomic<int> first_signal{0};
std::atomic<int> signal_count{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  const int old_errno = errno;
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
  ++signal_count;
  const int descriptor = wake_descriptor;
  if (descriptor >= 0) {
    const char byte = 0;
    // A full pipe is as readable as one more byte would make it.
    [[maybe_unused]] const ssize_t written = write(descriptor, &byte, 1);
  }
  errno = old_errno;
}

// Each further line that is printed brings another one.
void on_broken_pipe(int number) {
  if (first_signal == 0) {
    on_signal(number);
  }
}

}  // namespace

InterruptGuard::InterruptGuard() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw RuntimeFailure("no pipe for signals: too many open files");
  }
  int none = -1;
  if (!wake_descriptor.compare_exchange_strong(none, ends[1])) {
    close(ends[0]);
    close(ends[1]);
    throw RuntimeFailure("a job already runs in this process");
  }
  read_end_ = ends[0];
  write_end_ = ends[1];
  first_signal = 0;
  signal_count = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
  action.sa_handler = on_broken_pipe;
  sigaction(SIGPIPE, &action, &old_pipe_);
}

InterruptGuard::~InterruptGuard() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
  sigaction(SIGPIPE, &old_pipe_, nullptr);
  wake_descriptor = -1;
  close(read_end_);
  close(write_end_);
}

int InterruptGuard::received() const { return first_signal; }

int InterruptGuard::count() const { return signal_count; }

}  // namespace rackrail::runtime

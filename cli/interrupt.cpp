#include "cli/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace rackrail::cli {

namespace {

// What a handler may touch: lock-free atomics.
std::atomic<bool> has_come{false};
std::atomic<bool> prints_json{false};
std::atomic<bool> is_on_terminal{false};
std::atomic<int> ending_early{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

/// Over a progress bar, if there is one.
void say(std::string_view line) {
  constexpr std::string_view kErase = "\r\033[K";
  if (is_on_terminal) {
    [[maybe_unused]] const ssize_t erased = write(STDERR_FILENO, kErase.data(), kErase.size());
  }
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void on_interrupt(int /*number*/) {
  const int old_errno = errno;
  const bool is_first = !has_come.exchange(true);
  if (is_first && ending_early > 0) {
    if (!prints_json) {
      say("stopping with the best result so far; press Ctrl-C again to end at once\n");
    }
    errno = old_errno;
    return;
  }
  say(prints_json ? "{\"error\":{\"message\":\"stopped by Ctrl-C before there was a result\"}}\n"
                  : "rackrail: stopped by Ctrl-C before there was a result\n");
  _exit(kInterrupted);
}

}  // namespace

InterruptHandler::InterruptHandler(bool json) {
  prints_json = json;
  is_on_terminal = isatty(STDERR_FILENO) == 1;
  sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) {
    return;
  }
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

InterruptHandler::~InterruptHandler() { sigaction(SIGINT, &before_, nullptr); }

EndsEarly::EndsEarly() { ++ending_early; }
EndsEarly::~EndsEarly() { --ending_early; }

bool was_interrupted() { return has_come; }

}  // namespace rackrail::cli

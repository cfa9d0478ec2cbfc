// Ctrl-C (SIGINT) while a command works.
//
// The first one ends the command with one line and status 130, unless the work can end early with
// what it found so far (EndsEarly): then was_interrupted() says so, the work ends soon, and the
// command shows its result and that it is not the last word. A second one ends at once.
#pragma once

#include <csignal>
#include <exception>

namespace rackrail::cli {

/// Exit status of a command that Ctrl-C ended, with a result or without.
inline constexpr int kInterrupted = 130;

/// Answers SIGINT while it lives, unless that was ignored before. One at a time. What takes SIGINT
/// over meanwhile (runtime/launch/signals.hpp) gives it back.
class InterruptHandler {
 public:
  /// With `json` what is printed on stderr is JSON, and only about errors.
  explicit InterruptHandler(bool json);
  ~InterruptHandler();
  InterruptHandler(const InterruptHandler&) = delete;
  InterruptHandler& operator=(const InterruptHandler&) = delete;

 private:
  struct sigaction before_ = {};
};

/// While one lives, the first Ctrl-C is left to the work, which asks was_interrupted().
class EndsEarly {
 public:
  EndsEarly();
  ~EndsEarly();
  EndsEarly(const EndsEarly&) = delete;
  EndsEarly& operator=(const EndsEarly&) = delete;
};

bool was_interrupted();

/// Thrown by work that ends early with nothing found.
class NothingFound : public std::exception {
 public:
  const char* what() const noexcept override {
    return "stopped by Ctrl-C before there was a result";
  }
};

}  // namespace rackrail::cli

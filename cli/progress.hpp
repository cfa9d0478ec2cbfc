// What long work shows on stderr while it lasts. On a terminal: a bar that is gone at the end.
// Elsewhere: a line every ten seconds, so that a log shows what goes on; with --json nothing.
// A thread redraws it, so its seconds go on while a piece of work reports nothing.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace rackrail::cli {

/// Lines for logs about long work, ten seconds apart: what is done sooner leaves none.
class ProgressLines {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kBetween{10};

  ProgressLines(std::string title, Clock::time_point start)
      : title_(std::move(title)), start_(start), next_(start + kBetween) {}

  /// "simulating: 23 % after 40 s, …", when it is time for one; without a share "…: 40 s so far".
  std::optional<std::string> line(std::optional<double> share, const std::string& what,
                                  Clock::time_point now);

 private:
  std::string title_;
  Clock::time_point start_;
  Clock::time_point next_;
};

/// What is printed where stderr is no terminal.
enum class Elsewhere { kNothing, kLines };

/// One at a time. Its methods may be called from any thread.
class ProgressBar {
 public:
  ProgressBar(std::string title, Elsewhere elsewhere);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `share` in 0..1 and what is being done; redraws at most ten times a second.
  void update(double share, const std::string& what = "");
  /// Removes the bar from the terminal; nothing is shown before the next update().
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void keep_showing();
  void show(Clock::time_point now);
  void erase();

  std::string title_;
  bool is_on_terminal_ = false;
  std::optional<ProgressLines> lines_;
  Clock::time_point start_;
  std::thread showing_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable over_;
  bool is_over_ = false;
  bool is_hidden_ = false;
  bool is_drawn_ = false;
  std::optional<double> share_;
  std::string what_;
  Clock::time_point last_draw_;
};

}  // namespace rackrail::cli

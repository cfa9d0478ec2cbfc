// Progress on stderr: a bar where stderr is a terminal, else now and then a line, if it may be.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace rackrail::cli {

/// Lines for logs about long work: the first after kFirst, others kBetween apart, so that what is
/// done sooner leaves none.
class ProgressLines {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kFirst{10};
  static constexpr std::chrono::seconds kBetween{30};

  ProgressLines(std::string title, Clock::time_point start)
      : title_(std::move(title)), start_(start), next_(start + kFirst) {}

  /// "simulating: 23 % after 40 s", when it is time for one.
  std::optional<std::string> line(double share, const std::string& what, Clock::time_point now);

 private:
  std::string title_;
  Clock::time_point start_;
  Clock::time_point next_;
};

/// What is printed where stderr is no terminal.
enum class Elsewhere { kNothing, kLines };

class ProgressBar {
 public:
  explicit ProgressBar(std::string title, Elsewhere elsewhere = Elsewhere::kNothing);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Whether stderr is a terminal, so that a bar is drawn.
  bool is_active() const { return active_; }
  /// `share` in 0..1; redraws at most ten times a second.
  void update(double share, const std::string& what = "");
  /// Removes the bar from the terminal.
  void clear();

 private:
  std::string title_;
  bool active_ = false;
  std::optional<ProgressLines> lines_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace rackrail::cli

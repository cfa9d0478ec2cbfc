// A progress bar on stderr, only when stderr is a terminal; otherwise nothing is printed.
#pragma once

#include <chrono>
#include <string>

namespace rackrail::cli {

class ProgressBar {
 public:
  explicit ProgressBar(std::string title);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Whether stderr is a terminal, so that anything is drawn at all.
  bool is_active() const { return active_; }
  /// `share` in 0..1; redraws at most ten times a second.
  void update(double share, const std::string& what = "");
  /// Removes the bar from the terminal.
  void clear();

 private:
  std::string title_;
  bool active_ = false;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace rackrail::cli

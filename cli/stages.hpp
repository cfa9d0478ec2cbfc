// A progress bar for work of known stages but unknown lengths: which stage runs, and for how long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>

#include "cli/progress.hpp"

namespace rackrail::cli {

/// Draws on stderr, from a thread of its own so that the seconds go on while a stage computes; does
/// nothing where stderr is no terminal. Gone with the object.
class StageBar {
 public:
  StageBar(std::string title, std::size_t stages);
  ~StageBar();
  StageBar(const StageBar&) = delete;
  StageBar& operator=(const StageBar&) = delete;

  /// The stage before this one, if any, is done.
  void begin(std::string stage);

 private:
  void keep_drawing();
  void draw();

  std::mutex mutex_;  // guards what follows
  ProgressBar bar_;
  std::size_t stages_;
  std::size_t begun_ = 0;
  std::string stage_;
  std::chrono::steady_clock::time_point start_;
  bool is_over_ = false;
  std::condition_variable over_;
  std::thread drawing_;
};

}  // namespace rackrail::cli

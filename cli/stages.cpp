#include "cli/stages.hpp"

#include <fmt/format.h>

#include <utility>

namespace rackrail::cli {

namespace {
constexpr std::chrono::milliseconds kLookPeriod{200};
}  // namespace

StageBar::StageBar(std::string title, std::size_t stages)
    : bar_(std::move(title)), stages_(stages), start_(std::chrono::steady_clock::now()) {
  if (bar_.is_active()) {
    drawing_ = std::thread([this] { keep_drawing(); });
  }
}

StageBar::~StageBar() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (drawing_.joinable()) {
    drawing_.join();
  }
}

void StageBar::begin(std::string stage) {
  const std::lock_guard lock(mutex_);
  stage_ = std::move(stage);
  ++begun_;
  draw();
}

void StageBar::keep_drawing() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, kLookPeriod, [this] { return is_over_; })) {
    if (begun_ > 0) {
      draw();
    }
  }
}

void StageBar::draw() {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  bar_.update(static_cast<double>(begun_ - 1) / static_cast<double>(stages_),
              fmt::format("{}, {:.0f} s", stage_, elapsed.count()));
}

}  // namespace rackrail::cli

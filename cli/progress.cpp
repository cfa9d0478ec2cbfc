#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace rackrail::cli {

namespace {
constexpr int kWidth = 30;
constexpr std::size_t kTextWidth = 40;
constexpr std::chrono::milliseconds kDrawPeriod{100};
}  // namespace

std::optional<std::string> ProgressLines::line(double share, const std::string& what,
                                               Clock::time_point now) {
  if (now < next_) {
    return std::nullopt;
  }
  next_ = now + kBetween;
  return fmt::format("{}: {:.0f} % after {:.0f} s{}{}", title_, share * 100,
                     std::chrono::duration<double>(now - start_).count(), what.empty() ? "" : ", ",
                     what);
}

ProgressBar::ProgressBar(std::string title, Elsewhere elsewhere)
    : title_(std::move(title)), active_(isatty(STDERR_FILENO) == 1) {
  if (!active_ && elsewhere == Elsewhere::kLines) {
    lines_.emplace(title_, std::chrono::steady_clock::now());
  }
}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::update(double share, const std::string& what) {
  const auto now = std::chrono::steady_clock::now();
  if (lines_) {
    if (const std::optional<std::string> line = lines_->line(share, what, now)) {
      fmt::print(stderr, "{}\n", *line);
    }
  }
  if (!active_ || (drawn_ && now - last_draw_ < kDrawPeriod)) {
    return;
  }
  drawn_ = true;
  last_draw_ = now;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kWidth);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3.0f} % {:.{}}\033[K", title_, "", filled, "",
             kWidth - filled, share * 100, what, kTextWidth);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (drawn_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    drawn_ = false;
  }
}

}  // namespace rackrail::cli

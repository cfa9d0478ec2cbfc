#include "cli/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

namespace rackrail::cli {

namespace {

constexpr int kWidth = 20;
constexpr std::size_t kUsualColumns = 80;
constexpr std::chrono::milliseconds kDrawPeriod{100};
constexpr std::chrono::milliseconds kLookPeriod{500};
/// Work that reports no share is not shown before.
constexpr std::chrono::milliseconds kQuiet{1000};

double seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

std::size_t terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                         : kUsualColumns;
}

/// A thread that gets no signals: they are the main thread's.
template <typename Work>
std::thread without_signals(Work work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

std::optional<std::string> ProgressLines::line(std::optional<double> share, const std::string& what,
                                               Clock::time_point now) {
  if (now < next_) {
    return std::nullopt;
  }
  next_ = now + kBetween;
  const std::string more = what.empty() ? "" : ", " + what;
  return share ? fmt::format("{}: {:.0f} % after {:.0f} s{}", title_, *share * 100,
                             seconds(now - start_), more)
               : fmt::format("{}: {:.0f} s so far{}", title_, seconds(now - start_), more);
}

ProgressBar::ProgressBar(std::string title, Elsewhere elsewhere)
    : title_(std::move(title)), is_on_terminal_(isatty(STDERR_FILENO) == 1), start_(Clock::now()) {
  if (!is_on_terminal_ && elsewhere == Elsewhere::kLines) {
    lines_.emplace(title_, start_);
  }
  if (is_on_terminal_ || lines_) {
    showing_ = without_signals([this] { keep_showing(); });
  }
}

ProgressBar::~ProgressBar() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (showing_.joinable()) {
    showing_.join();
  }
  erase();
}

void ProgressBar::keep_showing() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, kLookPeriod, [this] { return is_over_; })) {
    show(Clock::now());
  }
}

void ProgressBar::update(double share, const std::string& what) {
  if (!is_on_terminal_ && !lines_) {
    return;
  }
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  is_hidden_ = false;
  share_ = std::clamp(share, 0.0, 1.0);
  if (what_ != what) {
    what_ = what;
  }
  if (!is_drawn_ || now - last_draw_ >= kDrawPeriod) {
    show(now);
  }
}

void ProgressBar::show(Clock::time_point now) {
  if (is_hidden_ || (!share_ && now - start_ < kQuiet)) {
    return;
  }
  if (lines_) {
    if (const std::optional<std::string> line = lines_->line(share_, what_, now)) {
      fmt::print(stderr, "{}\n", *line);
    }
    return;
  }
  is_drawn_ = true;
  last_draw_ = now;
  std::string text = title_ + " ";
  if (share_) {
    const int filled = static_cast<int>(*share_ * kWidth);
    text +=
        fmt::format("[{:#<{}}{:.<{}}] {:3.0f} % ", "", filled, "", kWidth - filled, *share_ * 100);
  }
  const std::string elapsed = fmt::format("{:.0f} s", seconds(now - start_));
  const std::string separator = what_.empty() ? "" : ", ";
  const std::size_t taken = text.size() + separator.size() + elapsed.size() + 1;
  const std::size_t columns = terminal_columns();
  const std::size_t room = columns > taken ? columns - taken : 0;
  fmt::print(stderr, "\r{}{:.{}}{}{}\033[K", text, what_, room, separator, elapsed);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  const std::lock_guard lock(mutex_);
  is_hidden_ = true;
  erase();
}

void ProgressBar::erase() {
  if (is_drawn_) {
    fmt::print(stderr, "\r\033[K");
    std::fflush(stderr);
    is_drawn_ = false;
  }
}

}  // namespace rackrail::cli

#include "runtime/capi/stall_notice.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "base/error.hpp"

namespace rackrail::capi {
namespace {

constexpr std::chrono::seconds kFirstLook{60};
constexpr std::chrono::seconds kNextLook{300};
constexpr std::chrono::seconds kBetweenLooks{5};  // at the clock, so that a short wait wakes nobody
constexpr Duration kAnswerWithin = 2_s;

}  // namespace

std::string ranks_behind(const std::vector<runtime::MemberStatus>& members, std::uint32_t step) {
  std::vector<std::uint32_t> behind;
  for (const runtime::MemberStatus& member : members) {
    if (member.rank && member.is_present && member.progress.step < step) {
      behind.push_back(member.rank->value());
    }
  }
  return behind.empty()
             ? ""
             : fmt::format("rank{} {}", behind.size() == 1 ? "" : "s", fmt::join(behind, ", "));
}

StallNotice::StallNotice(runtime::Inquirer inquirer, Rank self)
    : inquirer_(std::move(inquirer)), self_(self), thread_([this] { run(); }) {}

StallNotice::~StallNotice() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

StallNotice::Wait::Wait(StallNotice& notice, std::uint32_t step) : notice_(notice) {
  const std::lock_guard lock(notice.mutex_);
  if (notice.waits_++ == 0) {
    notice.next_ = Clock::now() + kFirstLook;
  }
  notice.step_ = step;
}

StallNotice::Wait::~Wait() {
  const std::lock_guard lock(notice_.mutex_);
  --notice_.waits_;
}

void StallNotice::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kBetweenLooks, [this] { return is_over_; })) {
    if (waits_ > 0 && Clock::now() >= next_) {
      next_ = Clock::now() + kNextLook;
      const std::uint32_t step = step_;
      lock.unlock();
      look(step);
      lock.lock();
    }
  }
}

void StallNotice::look(std::uint32_t step) const {
  try {
    const std::string behind =
        ranks_behind(runtime::ask_for_status(inquirer_, kAnswerWithin).members, step);
    if (!behind.empty()) {
      fmt::print(stderr, "rackrail: rank {} has waited {} s and more in a sum that {} not begun\n",
                 self_.value(), kFirstLook.count(),
                 behind + (behind.starts_with("ranks") ? " have" : " has"));
    }
  } catch (const Error&) {
    // Who is lost is said by others.
  }
}

}  // namespace rackrail::capi

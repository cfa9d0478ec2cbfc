#include "runtime/capi/late_notice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace rackrail::capi {
namespace {

constexpr std::chrono::seconds kFirst{10};
constexpr std::chrono::seconds kNext{60};
constexpr Duration kPatience = 2_s;
constexpr std::size_t kMostNamed = 8;

}  // namespace

std::string missing_ranks(const std::vector<runtime::MemberStatus>& members, std::size_t ranks) {
  std::vector<bool> is_here(ranks);
  for (const runtime::MemberStatus& member : members) {
    if (member.is_present && member.rank && member.rank->index() < ranks) {
      is_here[member.rank->index()] = true;
    }
  }
  std::vector<std::size_t> missing;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (!is_here[r]) {
      missing.push_back(r);
    }
  }
  if (missing.empty()) {
    return {};
  }
  const std::size_t count = missing.size();
  missing.resize(std::min(count, kMostNamed));
  return fmt::format("{} of {} ranks {} not come yet: {}{}", count, ranks,
                     count == 1 ? "has" : "have", fmt::join(missing, ", "),
                     count > kMostNamed ? ", ..." : "");
}

LateNotice::LateNotice(runtime::Inquirer inquirer, std::string where, Rank self, std::size_t ranks)
    : inquirer_(std::move(inquirer)),
      where_(std::move(where)),
      self_(self),
      ranks_(ranks),
      thread_([this] { run(); }) {}

LateNotice::~LateNotice() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LateNotice::run() {
  std::unique_lock lock(mutex_);
  for (auto wait = kFirst; !changed_.wait_for(lock, wait, [this] { return is_over_; });
       wait = kNext) {
    lock.unlock();
    const std::string text = line();
    lock.lock();
    if (!text.empty() && !is_over_) {
      fmt::print(stderr, "rackrail: {}\n", text);
    }
  }
}

/// Empty: it waits for others, and rank 0 says for whom.
std::string LateNotice::line() const {
  try {
    const runtime::JobStatus status = runtime::ask_for_status(inquirer_, kPatience);
    const std::string missing = missing_ranks(status.members, ranks_);
    return self_.value() == 0 && !missing.empty()
               ? fmt::format("{}; rank 0 listens at {}", missing, where_)
               : "";
  } catch (const Error& error) {
    return fmt::format("rank {} waits: {}", self_.value(), error.what());
  }
}

}  // namespace rackrail::capi

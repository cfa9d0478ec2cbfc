#include "runtime/time_slice.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace rackrail::runtime {
namespace {

/// sched_setattr(2), which the C library has no declaration of.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  ///< ns: of the ordinary class, the time slice
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

constexpr std::uint64_t kShortest = 100'000;  // that the kernel takes
constexpr int kNice = -10;

std::optional<SchedulingAttributes> attributes() noexcept {
  SchedulingAttributes now;
  const bool is_known = syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) == 0;
  if (!is_known || now.policy != SCHED_OTHER || now.runtime == 0) {
    return std::nullopt;
  }
  return now;
}

}  // namespace

std::optional<Duration> time_slice() noexcept {
  const std::optional<SchedulingAttributes> now = attributes();
  return now ? std::optional(Duration(static_cast<std::int64_t>(now->runtime) * 1000))
             : std::nullopt;
}

bool take_short_time_slices() noexcept {
  std::optional<SchedulingAttributes> wanted = attributes();
  if (!wanted) {
    return false;
  }
  wanted->size = sizeof(SchedulingAttributes);  // the kernel's may be larger
  wanted->runtime = kShortest;
  return syscall(SYS_sched_setattr, 0, &*wanted, 0) == 0;
}

bool take_larger_share() noexcept {
  // On Linux nobody's number is the calling thread, not its whole process.
  errno = 0;
  const int now = getpriority(PRIO_PROCESS, 0);
  return (errno == 0 && now <= kNice) || setpriority(PRIO_PROCESS, 0, kNice) == 0;
}

}  // namespace rackrail::runtime

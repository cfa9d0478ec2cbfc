#include "base/other_load.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace rackrail {

namespace {

double seconds(const timeval& time) {
  constexpr double kMicrosecond = 1e-6;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * kMicrosecond;
}

double used_by(int who) {
  rusage used{};
  return getrusage(who, &used) == 0 ? seconds(used.ru_utime) + seconds(used.ru_stime) : 0;
}

/// Columns of /proc/stat (proc(5)): user, nice, system, idle, iowait, irq, softirq, steal.
std::optional<double> busy_core_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double waiting = 0;
  double interrupts = 0;
  double soft_interrupts = 0;
  double stolen = 0;
  if (!(file >> name >> user >> nice >> system >> idle >> waiting >> interrupts >>
        soft_interrupts >> stolen) ||
      name != "cpu") {
    return std::nullopt;
  }
  return (user + nice + system + stolen) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

OtherLoad::OtherLoad() : start_(now()) {}

std::optional<OtherLoad::Times> OtherLoad::now() {
  const auto busy = busy_core_seconds();
  if (!busy) {
    return std::nullopt;
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
  return Times{wall.count(), *busy, used_by(RUSAGE_SELF) + used_by(RUSAGE_CHILDREN)};
}

double OtherLoad::cores() const {
  const std::optional<Times> end = now();
  if (!start_ || !end || end->wall <= start_->wall) {
    return 0;
  }
  const double others = (end->busy - start_->busy) - (end->own - start_->own);
  return std::max(0.0, others / (end->wall - start_->wall));
}

double machine_cores() { return static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)); }

bool is_busy(double others) { return others > OtherLoad::kMost * machine_cores(); }

std::string other_load_text(double others) {
  return fmt::format("other programs took {:.1f} of {:.0f} cores", others, machine_cores());
}

}  // namespace rackrail

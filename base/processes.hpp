// Processes of this machine, by /proc.
#pragma once

#include <sys/types.h>

#include <vector>

namespace rackrail {

/// All that /proc shows, this one among them; in no order.
std::vector<pid_t> process_ids();

/// A process whose number cannot become another one's between a look at it and a signal: held by a
/// file descriptor of it (pidfd_open); where the kernel or a filter of its calls has none, by its
/// number.
class HeldProcess {
 public:
  /// Holds nothing where there is no such process.
  explicit HeldProcess(pid_t pid);
  ~HeldProcess();
  HeldProcess(const HeldProcess&) = delete;
  HeldProcess& operator=(const HeldProcess&) = delete;

  explicit operator bool() const { return descriptor_ >= 0 || by_number_ != 0; }
  /// SIGKILL; does nothing where it has ended.
  void kill() const;

 private:
  int descriptor_;
  pid_t by_number_ = 0;  ///< 0: by the descriptor
};

}  // namespace rackrail

#include "base/processes.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <string>
#include <system_error>

namespace rackrail {

std::vector<pid_t> process_ids() {
  std::vector<pid_t> ids;
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", status)) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size() && pid > 0) {
      ids.push_back(pid);
    }
  }
  return ids;
}

// By number: the C library of Debian 12 has functions of these names, older ones do not.
HeldProcess::HeldProcess(pid_t pid)
    : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  if (descriptor_ < 0 && errno != ESRCH && ::kill(pid, 0) == 0) {
    by_number_ = pid;
  }
}

HeldProcess::~HeldProcess() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

void HeldProcess::kill() const {
  if (by_number_ != 0) {
    ::kill(by_number_, SIGKILL);
  } else {
    syscall(SYS_pidfd_send_signal, descriptor_, SIGKILL, nullptr, 0);
  }
}

}  // namespace rackrail

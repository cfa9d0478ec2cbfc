// A library to preload: a disk that never ends to flush the files whose path contains
// RACKRAIL_SLOW_DISK, or takes RACKRAIL_SLOW_DISK_SECONDS for each. Everything else is as fast as
// it is.
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

extern "C" int fsync(int descriptor) {
  const char* const slow = std::getenv("RACKRAIL_SLOW_DISK");
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  char path[4096] = {};
  if (slow != nullptr && readlink(link.c_str(), path, sizeof path - 1) > 0 &&
      std::strstr(path, slow) != nullptr) {
    const char* const seconds = std::getenv("RACKRAIL_SLOW_DISK_SECONDS");
    if (seconds == nullptr) {
      while (true) {
        pause();
      }
    }
    std::this_thread::sleep_for(std::chrono::seconds(std::atoi(seconds)));
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

// A library to preload: a thread beside the program's own from its start on, as libraries have.
#include <unistd.h>

#include <thread>

namespace {

[[gnu::constructor]] void begin() {
  std::thread([] {
    while (true) {
      pause();
    }
  }).detach();
}

}  // namespace

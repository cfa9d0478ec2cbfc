// A parent for tests: starts two children that sleep, one of which ignores SIGTERM, says their
// process ids, and waits to be killed.
#include <unistd.h>

#include <iostream>

#include "runtime/launch/spawn.hpp"

int main() {
  using namespace rackrail::runtime;
  ChildProcesses children([](std::size_t, std::string_view) {});
  children.start({.words = {"/bin/sleep", "1000"}, .environment = {}});
  children.start(
      {.words = {"/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"}, .environment = {}});
  std::cout << children.pid(0) << ' ' << children.pid(1) << std::endl;
  while (true) {
    pause();
  }
}

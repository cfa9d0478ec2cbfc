#include "bench/peers/measure.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>

#include "base/error.hpp"

namespace rackrail::bench {

namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

[[noreturn]] void fail(const char* what) {
  throw Error(std::string(what) + ": " + std::generic_category().message(errno));
}

[[noreturn]] void run_child(const std::function<Outcome()>& work, int to) {
  int status = 1;
  try {
    const Outcome outcome = work();
    status = write(to, &outcome, sizeof outcome) == sizeof outcome ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "peers_bench: %s\n", error.what());
  }
  _exit(status);
}

}  // namespace

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Measurement measure(const std::function<Outcome()>& work) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) {
    fail("pipe");
  }
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    fail("fork");
  }
  if (child == 0) {
    close(ends[0]);
    run_child(work, ends[1]);
  }
  close(ends[1]);
  Measurement measured;
  const ssize_t got = read(ends[0], &measured.outcome, sizeof measured.outcome);
  close(ends[0]);
  rusage usage{};
  int status = 0;
  if (wait4(child, &status, 0, &usage) != child) {
    fail("wait4");
  }
  if (status != 0 || got != sizeof measured.outcome) {
    throw Error("a run ended without a result");
  }
  measured.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  measured.peak_mb = static_cast<double>(usage.ru_maxrss) * 1024e-6;
  return measured;
}

}  // namespace rackrail::bench

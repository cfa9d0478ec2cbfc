#include "runtime/emulate/tools.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "runtime/launch/spawn.hpp"

namespace rackrail::runtime::emulate {
namespace {

constexpr std::chrono::seconds kPatience(30);

/// A file of these lines that has no name and goes with its descriptor.
class LinesInMemory {
 public:
  explicit LinesInMemory(const std::string& lines)
      : descriptor_(memfd_create("rackrail-batch", MFD_CLOEXEC)) {
    std::string_view rest = lines;
    while (descriptor_ >= 0 && !rest.empty()) {
      const ssize_t count = write(descriptor_, rest.data(), rest.size());
      if (count < 0 && errno != EINTR) {
        close(descriptor_);
        descriptor_ = -1;
      }
      rest.remove_prefix(count > 0 ? static_cast<std::size_t>(count) : 0);
    }
    if (descriptor_ < 0) {
      throw RuntimeFailure(std::string("no memory for a batch of commands: ") +
                           std::strerror(errno));
    }
  }
  ~LinesInMemory() { close(descriptor_); }
  LinesInMemory(const LinesInMemory&) = delete;
  LinesInMemory& operator=(const LinesInMemory&) = delete;

  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), descriptor_); }

 private:
  int descriptor_;
};

/// The line that "Command failed <file>:<number>" at the end of `said` means; empty: not found.
std::string failed_line(const std::string& lines, std::string_view said) {
  const std::size_t colon = said.rfind(':');
  int number = 0;
  if (colon == std::string_view::npos ||
      std::from_chars(said.data() + colon + 1, said.data() + said.size(), number).ec !=
          std::errc()) {
    return "";
  }
  std::istringstream stream(lines);
  std::string line;
  for (int i = 0; i < number; ++i) {
    if (!std::getline(stream, line)) {
      return "";
    }
  }
  return line;
}

}  // namespace

std::string find_program(const std::string& name) {
  const auto is_program = [](const std::string& path) { return access(path.c_str(), X_OK) == 0; };
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? name : "";
  }
  const char* const path = std::getenv("PATH");
  std::istringstream folders(std::string(path != nullptr ? path : "") +
                             ":/usr/sbin:/sbin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (folder.empty()) {
      continue;
    }
    folder.append("/").append(name);
    if (is_program(folder)) {
      return folder;
    }
  }
  return "";
}

void run_batch(const std::string& program, const std::string& lines, int network_namespace) {
  if (lines.empty()) {
    return;
  }
  const std::string path = find_program(program);
  if (path.empty()) {
    throw RuntimeFailure("the program '" + program +
                         "' is not there; Debian's package iproute2 has it");
  }
  const LinesInMemory batch(lines);
  std::string first_line;
  ChildProcesses children([&](std::size_t, std::string_view line) {
    if (first_line.empty()) {
      first_line = line;
    }
  });
  children.start({.words = {path, "-batch", batch.path()},
                  .environment = {},
                  .network_namespace = network_namespace});
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  std::vector<ChildEnd> ends;
  while (ends.empty()) {  // output ends a wait early, too
    if (std::chrono::steady_clock::now() > deadline) {
      throw RuntimeFailure(fmt::format("{} -batch does not come to an end", program));
    }
    ends = children.wait_for(1_s);
  }
  if (!ends.front().ok()) {
    const std::string line = failed_line(lines, ends.front().last_line);
    throw RuntimeFailure(fmt::format("'{}{}{}' {}: {}", program, line.empty() ? "" : " ", line,
                                     describe(ends.front()), first_line));
  }
}

}  // namespace rackrail::runtime::emulate

#include "runtime/launch/spawn.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/processes.hpp"
#include "runtime/launch/environment.hpp"

namespace rackrail::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLine = 16'384;

/// An open file that is closed when it goes.
class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }
  void reset() {
    if (descriptor_ >= 0) {
      close(std::exchange(descriptor_, -1));
    }
  }

 private:
  int descriptor_;
};

struct Pipe {
  Descriptor read_end{-1};
  Descriptor write_end{-1};
  explicit Pipe(std::array<int, 2> ends) : read_end(ends[0]), write_end(ends[1]) {}
};

std::array<int, 2> open_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw RuntimeFailure(std::string("no pipe for a worker's output: ") + std::strerror(errno));
  }
  return ends;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (std::string& word : words) {
    result.push_back(word.data());
  }
  result.push_back(nullptr);
  return result;
}

/// In the child: whether it is now where the command says. The mounts are the child's own from then
/// on, because /sys/class/net, where UCX looks for interfaces, shows those of whoever mounted it.
/// Async-signal-safe.
bool move_to(int network_namespace, const char* host_name, std::size_t host_name_length) {
  if (network_namespace >= 0 &&
      (setns(network_namespace, CLONE_NEWNET) != 0 || unshare(CLONE_NEWNS) != 0 ||
       mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
       mount("rackrail", "/sys", "sysfs", 0, nullptr) != 0)) {
    return false;
  }
  return host_name_length == 0 ||
         (unshare(CLONE_NEWUTS) == 0 && sethostname(host_name, host_name_length) == 0);
}

/// In the child: becomes the program, or writes errno into `failure`. Async-signal-safe throughout.
[[noreturn]] void become(const char* path, char* const* words, char* const* environment,
                         const ChildCommand& command, int null, int output, int failure,
                         pid_t parent) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT, SIGCHLD}) {
    signal(number, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  setpgid(0, 0);
  // Nothing of the parent but its standard streams is the child's business. Kernels before 5.11 do
  // not know this; then the files that were not opened with O_CLOEXEC stay open.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  // The parent may be gone before the kernel was told to watch it.
  const bool is_bound =
      command.outlives_parent || (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
  if (is_bound && dup2(null, 0) >= 0 && dup2(output, 1) >= 0 && dup2(output, 2) >= 0 &&
      move_to(command.network_namespace, command.host_name.data(), command.host_name.size())) {
    execve(path, words, environment);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof error);
  _exit(127);
}

Duration since_epoch(const timeval& time) {
  return Duration(std::int64_t{time.tv_sec} * 1'000'000'000'000 +
                  std::int64_t{time.tv_usec} * 1'000'000);
}

}  // namespace

std::vector<std::string> own_program() {
  const std::string file = "/proc/self/exe";
  std::error_code status;
  if (!std::filesystem::read_symlink(file, status).filename().string().starts_with("ld-linux")) {
    return {file};
  }
  // LOADER --library-path FOLDERS PROGRAM ARGUMENTS
  std::vector<std::string> words{file};
  std::ifstream line("/proc/self/cmdline", std::ios::binary);
  std::string word;
  std::getline(line, word, '\0');
  for (bool is_value = false; std::getline(line, word, '\0');) {
    words.push_back(word);
    if (!is_value && !word.starts_with("--")) {
      break;
    }
    is_value = !is_value;  // each option of the loader has one
  }
  return words;
}

std::string describe(const ChildEnd& end) {
  if (end.signal != 0) {
    return "was killed by signal " + std::to_string(end.signal) + " (" + strsignal(end.signal) +
           ")";
  }
  return "exited with status " + std::to_string(end.status);
}

void kill_orphans(const ChildCommand& command) {
  std::string words;
  for (std::size_t i = 1; i < command.words.size(); ++i) {
    words += command.words[i] + '\0';
  }
  for (const pid_t pid : process_ids()) {
    const HeldProcess process(pid);
    const std::string folder = "/proc/" + std::to_string(pid);
    struct stat owner {};
    if (pid == getpid() || !process || stat(folder.c_str(), &owner) != 0 ||
        owner.st_uid != geteuid()) {
      continue;
    }
    std::ifstream file(folder + "/cmdline", std::ios::binary);
    const std::string found(std::istreambuf_iterator<char>(file), {});
    const std::size_t program = found.find('\0');
    if (program != std::string::npos && found.compare(program + 1, std::string::npos, words) == 0) {
      process.kill();
    }
  }
}

ChildProcesses::ChildProcesses(LineHandler on_line) : on_line_(std::move(on_line)) {}

ChildProcesses::~ChildProcesses() {
  signal_all(SIGKILL);
  for (Child& child : children_) {
    if (child.running) {
      // At once: nothing in user space outlives SIGKILL.
      while (waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (child.output >= 0) {
      close(child.output);
    }
  }
}

void ChildProcesses::start(const ChildCommand& command) {
  // Everything that allocates is done before the fork.
  std::vector<std::string> words = command.words;
  const std::string path = words.at(0);
  EnvironmentMap environment = process_environment();
  for (const auto& [name, value] : command.environment) {
    environment[name] = value;
  }
  std::vector<std::string> settings;
  settings.reserve(environment.size());
  for (const auto& [name, value] : environment) {
    settings.push_back(name + "=" + value);
  }
  const std::vector<char*> word_pointers = pointers(words);
  const std::vector<char*> setting_pointers = pointers(settings);
  const Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe output(open_pipe());
  Pipe failure(open_pipe());
  fcntl(output.read_end.get(), F_SETFL, O_NONBLOCK);

  const pid_t parent = getpid();
  // A handler of the parent must not run in the child before its signals are its own.
  sigset_t all;
  sigset_t old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  const pid_t pid = _Fork();
  if (pid == 0) {
    become(path.c_str(), word_pointers.data(), setting_pointers.data(), command, null.get(),
           output.write_end.get(), failure.write_end.get(), parent);
  }
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (pid < 0) {
    throw RuntimeFailure(std::string("cannot start a process: ") + std::strerror(fork_error));
  }
  setpgid(pid, pid);  // here too, so that it is done before either goes on

  failure.write_end.reset();
  int error = 0;
  ssize_t count = 0;
  do {
    count = read(failure.read_end.get(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  if (count == sizeof error) {
    waitpid(pid, nullptr, 0);
    throw RuntimeFailure("cannot start " + path + ": " + std::strerror(error));
  }
  children_.push_back({.pid = pid,
                       .output = output.read_end.release(),
                       .partial = {},
                       .last_line = {},
                       .running = true});
}

std::vector<ChildEnd> ChildProcesses::wait_for(Duration at_most, int also) {
  // A child that ends closes its output, which wakes poll; one that closed it before is looked
  // after this often.
  constexpr std::int64_t kLookEveryMs = 50;
  const auto deadline = Clock::now() + std::chrono::nanoseconds(at_most.picoseconds() / 1000);
  std::vector<ChildEnd> ends;
  while (true) {
    collect(ends);
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (!ends.empty() || left <= 0) {
      return ends;
    }
    std::vector<pollfd> watched;
    std::vector<std::size_t> owner;
    for (std::size_t i = 0; i < children_.size(); ++i) {
      if (children_[i].output >= 0) {
        watched.push_back({children_[i].output, POLLIN, 0});
        owner.push_back(i);
      }
    }
    if (also >= 0) {
      watched.push_back({also, POLLIN, 0});
    }
    poll(watched.data(), watched.size(), static_cast<int>(std::min(left, kLookEveryMs)));
    bool output = false;
    for (std::size_t i = 0; i < owner.size(); ++i) {
      if (watched[i].revents != 0) {
        read_output(owner[i]);
        output = true;
      }
    }
    if (also >= 0 && watched.back().revents != 0) {
      collect(ends);
      return ends;
    }
    if (output) {
      collect(ends);
      return ends;
    }
  }
}

std::vector<ChildEnd> ChildProcesses::terminate(Duration grace) {
  std::vector<ChildEnd> all;
  const auto wait_until = [&](Clock::time_point deadline) {
    while (running() > 0 && Clock::now() < deadline) {
      const auto left = std::chrono::nanoseconds(deadline - Clock::now()).count();
      for (ChildEnd& end : wait_for(Duration(std::max<std::int64_t>(left, 1) * 1000))) {
        all.push_back(std::move(end));
      }
    }
  };
  if (running() > 0) {
    signal_all(SIGTERM);
    wait_until(Clock::now() + std::chrono::nanoseconds(grace.picoseconds() / 1000));
  }
  while (running() > 0) {
    signal_all(SIGKILL);
    wait_until(Clock::now() + std::chrono::seconds(1));
  }
  return all;
}

void ChildProcesses::kill(std::size_t child) const noexcept {
  if (child < children_.size() && children_[child].running) {
    ::kill(-children_[child].pid, SIGKILL);
  }
}

std::size_t ChildProcesses::running() const {
  return static_cast<std::size_t>(std::count_if(children_.begin(), children_.end(),
                                                [](const Child& child) { return child.running; }));
}

void ChildProcesses::signal_all(int number) const noexcept {
  for (const Child& child : children_) {
    if (child.running) {
      ::kill(-child.pid, number);
    }
  }
}

void ChildProcesses::read_output(std::size_t index) {
  Child& child = children_[index];
  std::array<char, 4096> buffer{};
  while (true) {
    const ssize_t count = read(child.output, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0 && errno == EAGAIN) {
      return;
    }
    if (count <= 0) {
      end_output(index);
      return;
    }
    for (const char c : std::string_view(buffer.data(), static_cast<std::size_t>(count))) {
      if (c != '\n') {
        child.partial += c;
      }
      if (c == '\n' || child.partial.size() >= kLongestLine) {
        child.last_line = std::exchange(child.partial, {});
        on_line_(index, child.last_line);
      }
    }
  }
}

void ChildProcesses::end_output(std::size_t index) {
  Child& child = children_[index];
  if (child.output >= 0) {
    close(std::exchange(child.output, -1));
  }
  if (!child.partial.empty()) {
    child.last_line = std::exchange(child.partial, {});
    on_line_(index, child.last_line);
  }
}

void ChildProcesses::collect(std::vector<ChildEnd>& ends) {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (!child.running) {
      continue;
    }
    int status = 0;
    rusage usage = {};
    if (wait4(child.pid, &status, WNOHANG, &usage) != child.pid) {
      continue;
    }
    child.running = false;
    if (child.output >= 0) {
      read_output(i);  // what it wrote last
      end_output(i);   // a grandchild may still hold the pipe
    }
    ChildEnd end;
    end.child = i;
    end.pid = child.pid;
    end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end.status = WIFSIGNALED(status) ? 128 + end.signal : WEXITSTATUS(status);
    end.cpu_time = since_epoch(usage.ru_utime) + since_epoch(usage.ru_stime);
    end.last_line = child.last_line;
    ends.push_back(std::move(end));
  }
}

}  // namespace rackrail::runtime

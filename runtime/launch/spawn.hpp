// Child processes that never outlive their parent, unless they are meant to.
//
// Each child is a process group of its own, so that Ctrl-C reaches the parent alone, which can then
// end the job in order. The kernel kills a child when the thread that started it ends
// (PR_SET_PDEATHSIG), however that happens. What children write to stdout and stderr is cut
// into lines and handed over. Between fork and exec only async-signal-safe calls are made and no
// fork handlers run, so the parent may have threads and use gRPC.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace rackrail::runtime {

struct ChildCommand {
  std::vector<std::string> words;                  ///< the first is the path of the program
  std::map<std::string, std::string> environment;  ///< added to this process's own
  /// An open descriptor of a network namespace to run in, with the /sys that belongs to it; needs
  /// root. -1: where the parent's thread is.
  int network_namespace = -1;
  bool outlives_parent = false;
  std::string host_name;  ///< what the child takes for its host's name; empty: the parent's
};

/// Words that start this very program: the first of ChildCommand::words, with the C library that it
/// has itself where it was started by that one's loader, as scripts/gpu-check does on old systems.
std::vector<std::string> own_program();

/// How a child ended.
struct ChildEnd {
  std::size_t child = 0;  ///< number of start() before this one's
  pid_t pid = 0;
  int status = 0;  ///< exit status; 128 + signal where a signal ended it
  int signal = 0;  ///< 0: it exited
  Duration cpu_time;
  std::string last_line;  ///< that it wrote, maybe empty

  bool ok() const { return status == 0; }
};
/// "exited with status 1", "was killed by signal 9 (Killed)".
std::string describe(const ChildEnd& end);

/// Kills processes of this user that were started with exactly these words, the path of the program
/// aside: what outlives its parent and must not come back to life.
void kill_orphans(const ChildCommand& command);

class ChildProcesses {
 public:
  using LineHandler = std::function<void(std::size_t child, std::string_view line)>;

  /// `on_line` is called from wait_for() and terminate().
  explicit ChildProcesses(LineHandler on_line);
  /// Kills what still runs.
  ~ChildProcesses();
  ChildProcesses(const ChildProcesses&) = delete;
  ChildProcesses& operator=(const ChildProcesses&) = delete;

  /// Throws RuntimeFailure when the program cannot be run. The calling thread must live as long as
  /// the child is to.
  void start(const ChildCommand& command);

  /// Waits until a child has ended or written something, `also` (a file descriptor; -1: none) is
  /// readable, or the time is over. Returns the children that ended.
  std::vector<ChildEnd> wait_for(Duration at_most, int also = -1);

  /// Sends SIGTERM to all, SIGKILL after the grace period to those that are left, and waits.
  std::vector<ChildEnd> terminate(Duration grace);

  /// Kills one with its process group, also while it is stopped; nothing happens when it has ended.
  void kill(std::size_t child) const noexcept;

  std::size_t running() const;
  pid_t pid(std::size_t child) const { return children_[child].pid; }

 private:
  struct Child {
    pid_t pid = 0;
    int output = -1;      ///< read end of the pipe; -1 once closed
    std::string partial;  ///< line that has not ended yet
    std::string last_line;
    bool running = false;
  };

  void read_output(std::size_t child);
  void end_output(std::size_t child);
  void collect(std::vector<ChildEnd>& ends);
  void signal_all(int number) const noexcept;

  LineHandler on_line_;
  std::vector<Child> children_;
};

}  // namespace rackrail::runtime

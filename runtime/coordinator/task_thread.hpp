// A thread that does one thing after another: what only it touches needs no lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rackrail::runtime {

class TaskThread {
 public:
  using Task = std::function<void()>;
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `turn` is called on the thread after every task, so that no task sees what the one before it
  /// has left to do, and says when it wants to be called again at the latest.
  explicit TaskThread(std::function<TimePoint()> turn);
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  /// From any thread; tasks run in the order of posting and must not throw. Dropped after finish().
  void post(Task task);
  /// Does what was posted, then ends. The destructor does the same.
  void finish();

 private:
  void run(const std::function<TimePoint()>& turn);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;
  bool ending_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace rackrail::runtime

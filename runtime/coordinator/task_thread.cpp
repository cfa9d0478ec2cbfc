#include "runtime/coordinator/task_thread.hpp"

#include <utility>

namespace rackrail::runtime {

TaskThread::TaskThread(std::function<TimePoint()> turn)
    : thread_([this, turn = std::move(turn)] { run(turn); }) {}

TaskThread::~TaskThread() { finish(); }

void TaskThread::finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void TaskThread::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) {
      return;
    }
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void TaskThread::run(const std::function<TimePoint()>& turn) {
  TimePoint next = turn();
  while (true) {
    std::vector<Task> batch;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_until(lock, next, [&] { return ending_ || !tasks_.empty(); });
      if (ending_ && tasks_.empty()) {
        ended_ = true;
        return;
      }
      batch.swap(tasks_);
    }
    for (Task& task : batch) {
      task();
      next = turn();
    }
    if (batch.empty()) {
      next = turn();
    }
  }
}

}  // namespace rackrail::runtime

#include "explore/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rackrail::explore {

std::size_t thread_count(std::size_t asked, std::size_t work) {
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  return std::max<std::size_t>(1, std::min(asked == 0 ? cores : asked, work));
}

void for_each_index(std::size_t count, std::size_t threads,
                    const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  std::size_t failed_at = count;
  const auto loop = [&] {
    while (true) {
      const std::size_t i = next.fetch_add(1);
      if (i >= count) {
        return;
      }
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (i < failed_at) {
          failed_at = i;
          failure = std::current_exception();
        }
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (std::size_t t = 1; t < threads; ++t) {
    helpers.emplace_back(loop);
  }
  loop();
  helpers.clear();  // joins
  if (failure) {
    std::rethrow_exception(failure);
  }
}

}  // namespace rackrail::explore

// Independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace rackrail::explore {

/// Threads for `asked`: that many, or one per core for 0; never more than there is work.
std::size_t thread_count(std::size_t asked, std::size_t work);

/// Calls work(i) once for every i below `count`, in ascending order of start, on `threads` threads
/// (the caller's among them). When a call throws, no further one starts, and the exception of the
/// lowest i is thrown once all threads have ended.
void for_each_index(std::size_t count, std::size_t threads,
                    const std::function<void(std::size_t)>& work);

}  // namespace rackrail::explore

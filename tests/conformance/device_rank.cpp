// A rank of a job over the C interface, with gradients on a GPU that is emulated, as a process of
// its own, so that NCCL can be what carries them:
//
//     device_rank sums           arrays and planned buckets, several steps
//     device_rank lose RANK SIGNAL DELAY
//                                that rank gets the signal so many milliseconds after the first
//                                sum, in the middle of others (0: before the next one)
//     device_rank leave RANK     that rank ends the job with a word, from another thread
//
// The others of a job that ends so print how long their last sums took, and their own end, in
// seconds, and the reason.
//
// Exit status 0 when all is as it should be, 2 when it cannot join, otherwise 1; after a line that
// says why.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/on_device.hpp"

namespace rackrail::test {
namespace {

using Clock = std::chrono::steady_clock;
using runtime::CudaStream;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s; last error: %s\n", what.c_str(), rackrail_last_error());
  std::_Exit(1);
}

void check(bool is_so, const std::string& what) {
  if (!is_so) {
    fail(what);
  }
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class DeviceRank {
 public:
  explicit DeviceRank(rackrail_context* job)
      : job_(job), rank_(rackrail_rank(job)), ranks_(rackrail_world_size(job)) {}

  int rank() const { return rank_; }

  void plan(const std::vector<std::int64_t>& elements) {
    std::int32_t first = -1;
    check(rackrail_plan(job_, elements.data(), nullptr, static_cast<std::int32_t>(elements.size()),
                        &first) == RACKRAIL_OK,
          "plan");
    first_ = first;
    elements_ = elements;
  }

  rackrail_status sum_array(std::size_t size, int step) {
    OnDevice array(values_of(rank_, size, step), stream_);
    const rackrail_buffer buffer = array.buffer();
    const rackrail_status status = rackrail_all_reduce(job_, &buffer, RACKRAIL_SUM);
    if (status == RACKRAIL_OK) {
      check(array.read() == sum_of(ranks_, size, step), "array of " + std::to_string(size));
    }
    return status;
  }

  /// All planned buckets, started before the first is waited for, the second one on the host.
  rackrail_status sum_buckets(int step) {
    std::vector<OnDevice> arrays;
    std::vector<std::vector<float>> on_host;
    for (std::size_t b = 0; b < elements_.size(); ++b) {
      const auto size = static_cast<std::size_t>(elements_[b]);
      arrays.emplace_back(values_of(rank_, size, step), stream_);
      on_host.push_back(values_of(rank_, size, step));
    }
    rackrail_status status = RACKRAIL_OK;
    for (std::size_t b = 0; b < elements_.size() && status == RACKRAIL_OK; ++b) {
      const rackrail_buffer buffer =
          b == 1 ? buffer_of(on_host[b].data(), on_host[b].size()) : arrays[b].buffer();
      status = rackrail_start(job_, bucket(b), &buffer, RACKRAIL_SUM);
    }
    for (std::size_t b = elements_.size(); b-- > 0 && status == RACKRAIL_OK;) {
      status = rackrail_wait(job_, bucket(b));
      if (status == RACKRAIL_OK) {
        check((b == 1 ? on_host[b] : arrays[b].read()) == sum_of(ranks_, on_host[b].size(), step),
              "bucket " + std::to_string(b));
      }
    }
    if (status != RACKRAIL_OK) {
      ended_ = Clock::now();
      error_ = rackrail_last_error();
      rackrail_destroy(job_);  // before its arrays go
      job_ = nullptr;
    }
    return status;
  }

  void sums() {
    for (const std::size_t size : {0U, 1U, 1'023U, 5'000U, 70'001U, 1'048'577U}) {
      check(sum_array(size, static_cast<int>(size % 5)) == RACKRAIL_OK, "sum of an array");
    }
    plan({30'000, 700, 1});
    for (int step = 0; step < 3; ++step) {
      check(sum_buckets(step) == RACKRAIL_OK, "sum of buckets");
    }
    check(sum_array(5'000, 1) == RACKRAIL_OK, "an array between buckets");
    plan({4'097});
    check(sum_buckets(7) == RACKRAIL_OK, "a bucket of the second plan");
    finish();
  }

  void finish() {
    check(rackrail_finish(job_) == RACKRAIL_OK, "finish");
    rackrail_destroy(job_);
  }

  /// Sums until somebody is missing.
  void await_loss() {
    Clock::time_point start;
    rackrail_status status = RACKRAIL_OK;
    for (int step = 0; status == RACKRAIL_OK; ++step) {
      start = Clock::now();
      status = sum_buckets(step);
    }
    if (status != RACKRAIL_PEER_LOST) {
      std::fprintf(stderr, "status %d: %s\n", static_cast<int>(status), error_.c_str());
      std::_Exit(1);
    }
    std::printf("%.3f %.3f %s\n", std::chrono::duration<double>(ended_ - start).count(),
                since(ended_), error_.c_str());
  }

  rackrail_context* job() { return job_; }

 private:
  std::int32_t bucket(std::size_t b) const { return first_ + static_cast<std::int32_t>(b); }

  rackrail_context* job_;
  int rank_;
  int ranks_;
  CudaStream stream_;
  std::int32_t first_ = 0;
  std::vector<std::int64_t> elements_;
  Clock::time_point ended_;
  std::string error_;
};

/// Before or in the middle of what comes next.
std::thread soon(int milliseconds, const std::function<void()>& act) {
  if (milliseconds == 0) {
    act();
    return {};
  }
  return std::thread([milliseconds, act] {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    act();
  });
}

int run(const std::vector<std::string>& words) {
  rackrail_context* job = nullptr;
  const Clock::time_point start = Clock::now();
  if (rackrail_init(nullptr, &job) != RACKRAIL_OK) {
    std::fprintf(stderr, "%.3f %s\n", since(start), rackrail_last_error());
    return 2;
  }
  DeviceRank rank(job);
  if (words.at(0) == "sums") {
    rank.sums();
    return 0;
  }
  rank.plan({300'000, 700, 90'000});
  check(rank.sum_buckets(0) == RACKRAIL_OK, "the first sum");
  const bool is_it = std::stoi(words.at(1)) == rank.rank();
  std::thread other;
  if (is_it && words[0] == "lose") {
    const int signal = std::stoi(words.at(2));
    other = soon(std::stoi(words.at(3)), [signal] { kill(getpid(), signal); });
  } else if (is_it && words[0] == "leave") {
    other = soon(40, [job] { rackrail_abort(job, "it has had enough"); });
  }
  rank.await_loss();
  if (other.joinable()) {
    other.join();
  }
  return 0;
}

}  // namespace
}  // namespace rackrail::test

int main(int argc, char** argv) {
  try {
    return rackrail::test::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

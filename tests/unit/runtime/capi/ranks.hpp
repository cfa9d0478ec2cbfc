// Ranks of a job over the C interface, as threads of a test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/capi/rackrail.h"

namespace rackrail::test {

/// "127.0.0.1:port" where nobody listens just now.
inline std::string free_address() {
  const int probe = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool is_bound = bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                        getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  close(probe);
  if (!is_bound) {
    throw std::runtime_error("no free port");
  }
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

inline rackrail_buffer buffer_of(float* data, std::size_t elements) {
  rackrail_buffer buffer = {};
  buffer.size = sizeof buffer;
  buffer.data = data;
  buffer.elements = static_cast<std::int64_t>(elements);
  buffer.type = RACKRAIL_FLOAT32;
  buffer.device = RACKRAIL_HOST;
  return buffer;
}

/// Whole numbers, so that sums are exact whatever their order is.
inline std::vector<float> values_of(int rank, std::size_t size, int step) {
  std::vector<float> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = static_cast<float>((rank + 1) * static_cast<int>(i % 97) + 3 * step);
  }
  return values;
}

inline std::vector<float> sum_of(int ranks, std::size_t size, int step) {
  std::vector<float> sum(size);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> values = values_of(rank, size, step);
    std::transform(sum.begin(), sum.end(), values.begin(), sum.begin(), std::plus<>());
  }
  return sum;
}

/// What went wrong on a rank, one line each: assertions are not for threads.
class TestRank {
 public:
  /// `configure` changes the configuration before the rank joins.
  TestRank(int self, int count, const std::string& coordinator,
           const std::function<void(rackrail_config&)>& configure)
      : rank(self), ranks(count) {
    rackrail_config config = {};
    config.size = sizeof config;
    config.world_size = count;
    config.rank = self;
    config.coordinator = coordinator.c_str();
    config.cluster = "none";
    config.codecs = "none";
    config.timeout_milliseconds = 100'000;
    configure(config);
    expect(rackrail_init(&config, &context), RACKRAIL_OK, "init");
  }
  ~TestRank() { rackrail_destroy(context); }
  TestRank(const TestRank&) = delete;
  TestRank& operator=(const TestRank&) = delete;

  void expect(rackrail_status status, rackrail_status wanted, const std::string& what) {
    if (status != wanted) {
      problems += what + ": " + std::to_string(status) + ": " + rackrail_last_error() + "\n";
    }
  }
  void expect(bool is_so, const std::string& what) { problems += is_so ? "" : what + "\n"; }

  int rank;
  int ranks;
  rackrail_context* context = nullptr;
  std::string problems;
};

/// Every rank on a thread of its own; what went wrong on any of them.
template <typename Act>
std::string on_ranks(int ranks, const std::function<void(rackrail_config&)>& configure, Act act) {
  const std::string coordinator = free_address();
  std::vector<std::string> problems(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      TestRank rank(r, ranks, coordinator, configure);
      if (rank.problems.empty()) {
        act(rank);
      }
      problems[static_cast<std::size_t>(r)] = rank.problems;
    });
  }
  std::string all;
  for (std::size_t r = 0; r < threads.size(); ++r) {
    threads[r].join();
    all += problems[r];
  }
  return all;
}

}  // namespace rackrail::test

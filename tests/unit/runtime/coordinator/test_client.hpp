// A client whose abort a test can wait for.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/coordinator/client.hpp"

namespace rackrail::runtime::test {

class TestClient {
 public:
  TestClient(const HostPort& address, const std::string& token)
      : client_(address, token, [this](const std::string& reason) {
          const std::lock_guard lock(mutex_);
          ++aborts_;
          reason_ = reason;
          aborted_at_ = std::chrono::steady_clock::now();
          changed_.notify_all();
        }) {}

  static JoinRequest request(std::optional<Rank> rank) {
    JoinRequest result;
    result.rank = rank;
    result.host = "host-t";
    result.pid = 1000 + (rank ? std::int64_t{rank->value()} : 0);
    result.version = "test";
    result.address = {std::byte{0x42}, std::byte(rank ? rank->value() : 0xff)};
    return result;
  }

  Welcome join(std::optional<Rank> rank, Duration deadline = Duration(30'000'000'000'000)) {
    return client_.join(request(rank), deadline);
  }

  /// The reason, or nothing when no abort came within twenty seconds.
  std::optional<std::string> wait_for_abort() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return reason_.has_value(); });
    return reason_;
  }
  std::chrono::steady_clock::time_point aborted_at() const {
    const std::lock_guard lock(mutex_);
    return aborted_at_;
  }
  int aborts() const {
    const std::lock_guard lock(mutex_);
    return aborts_;
  }

  CoordinatorClient* operator->() { return &client_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::string> reason_;
  std::chrono::steady_clock::time_point aborted_at_;
  int aborts_ = 0;
  CoordinatorClient client_;
};

}  // namespace rackrail::runtime::test

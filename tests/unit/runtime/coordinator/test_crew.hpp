// A coordinator's options, and workers that join it together: for tests of jobs that go on after a
// loss.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/coordinator/server.hpp"
#include "tests/unit/runtime/coordinator/test_client.hpp"

namespace rackrail::runtime::test {

inline constexpr const char* kCrewToken = "a-token-of-this-test";

inline CoordinatorOptions crew_options(std::size_t workers) {
  CoordinatorOptions options;
  options.token = kCrewToken;
  options.membership.world_size = workers;
  options.membership.version = "test";
  options.membership.plan_digest = "first";
  options.plan = "plan for all";
  options.job_options = "{}";
  return options;
}

/// Workers that come at the same time, and what they are told.
class Crew {
 public:
  explicit Crew(const HostPort& address) : address_(address) {}

  void join(const std::vector<JoinRequest>& requests) {
    std::vector<std::future<Welcome>> waiting;
    for (const JoinRequest& request : requests) {
      clients.push_back(std::make_unique<TestClient>(address_, kCrewToken));
      waiting.push_back(std::async(std::launch::async, [&client = *clients.back(), request] {
        return client->join(request, 30_s);
      }));
    }
    for (std::future<Welcome>& one : waiting) {
      welcomes.push_back(one.get());
    }
  }

  std::vector<std::unique_ptr<TestClient>> clients;
  std::vector<Welcome> welcomes;

 private:
  HostPort address_;
};

inline JoinRequest returning(std::size_t seat, std::uint32_t epoch, std::uint32_t step,
                             std::uint32_t oldest) {
  JoinRequest request = TestClient::request(std::nullopt);
  request.returning =
      Returning{.seat = Rank(seat), .epoch = epoch, .step = step, .oldest_step = oldest};
  return request;
}

/// All of them at the coordinator, as workers are before they train.
inline void meet(std::vector<TestClient*> clients) {
  std::vector<std::future<void>> meeting;
  for (TestClient* client : clients) {
    meeting.push_back(std::async(std::launch::async, [client] { (*client)->exchange("here"); }));
  }
  for (std::future<void>& one : meeting) {
    one.get();
  }
}

}  // namespace rackrail::runtime::test

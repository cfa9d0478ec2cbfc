// One rank's exchange over in-process transports whose other ends are the test's.
#include "runtime/parameter_server/parameter_exchange.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/peer_pulses.hpp"
#include "tests/unit/runtime/parameter_server/server_plan.hpp"

namespace rackrail::runtime::parameter_exchange_test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kElements = 2000;  // two slices

/// Rank 0 is a server with an exchange, rank 1 is a worker that the test plays.
struct ServerAndWorker {
  explicit ServerAndWorker(std::int64_t staleness = 2, std::optional<PulseOptions> pulse = {})
      : plan(test::one_server_plan(2, {kElements}, 1024)),
        transports(joined_transports("in-process", 2)),
        rule(test::plain_rule(plan)) {
    transports[1]->set_handlers(
        [this](Rank, const SliceHeader& header, std::span<const std::byte> payload) {
          std::vector<float> values(payload.size() / sizeof(float));
          if (!payload.empty()) {  // a pulse is
            std::memcpy(values.data(), payload.data(), payload.size());
          }
          answers.emplace_back(header, std::move(values));
        },
        {});
    server = std::make_unique<ParameterExchange>(
        plan, Rank(0), *transports[0],
        ParameterExchangeOptions{.staleness = staleness, .pulse = pulse});
    server->start(rule, 0, {std::vector<float>(kElements, 10)});
  }

  SliceHeader push_header(std::uint32_t step, std::uint32_t slice) const {
    SliceHeader header;
    header.plan = std::stoull(plan::digest(plan).substr(0, 16), nullptr, 16);
    header.step = step;
    header.slice = slice;
    return header;
  }
  void send(SliceHeader header, std::size_t elements) {
    const std::vector<float> gradient(elements, 1);
    header.bytes = static_cast<std::uint32_t>(elements * sizeof(float));
    transports[1]->send(Rank(0), header, std::as_bytes(std::span(gradient)), [] {});
    transports[0]->wake();
  }
  bool comes(std::size_t count) {
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (answers.size() < count && Clock::now() < deadline) {
      transports[1]->progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return answers.size() >= count;
  }
  /// What the server's own part in a step ends with.
  std::string failure() {
    std::vector<float> gradient(kElements, 0);
    try {
      server->begin_step(0);
      server->launch(BucketId(0), gradient);
      server->wait_all();
      server->begin_step(1);
      for (int step = 1; step < 100; ++step) {  // as far as the bound, and then for ever
        server->begin_step(static_cast<std::uint32_t>(step));
        server->launch(BucketId(0), gradient);
        server->wait_all();
      }
    } catch (const PeerLostError& error) {
      return error.what();
    }
    return "";
  }

  plan::Plan plan;
  std::vector<std::unique_ptr<Transport>> transports;
  trainer::UpdateRule rule;
  std::vector<std::pair<SliceHeader, std::vector<float>>> answers;
  std::unique_ptr<ParameterExchange> server;
};

}  // namespace

TEST_CASE("a push is answered with the parameters, slice by slice") {
  ServerAndWorker job;
  job.send(job.push_header(0, 1), kElements - 1024);
  REQUIRE(job.comes(1));
  CHECK(job.answers[0].first.transfer == 1);
  CHECK(job.answers[0].first.slice == 1);
  CHECK(job.answers[0].first.step == 0);
  CHECK(job.answers[0].second == std::vector<float>(kElements - 1024, 9));
  job.send(job.push_header(0, 0), 1024);
  REQUIRE(job.comes(2));

  // The server is a worker, too, which finds that update in its own.
  std::vector<float> gradient(kElements, 2);
  job.server->begin_step(0);
  job.server->launch(BucketId(0), gradient);
  job.server->wait_all();
  CHECK(gradient == std::vector<float>(kElements, 7));
  job.send(job.push_header(1, 0), 1024);
  REQUIRE(job.comes(3));
  CHECK(job.answers[2].second == std::vector<float>(1024, 6));
  const UpdateStatistics updates = job.server->update_statistics();
  // The whole bucket once, and its first slice once more, which met the server's update.
  CHECK(updates.updates == Approx(1 + 1024.0 / kElements));
  CHECK(updates.conflicts == Approx(1024.0 / kElements));
  CHECK(updates.stale == Approx(1024.0 / kElements));
  CHECK(job.server->statistics().messages == 3);
}

TEST_CASE("what is withheld counts as a step and changes nothing") {
  ServerAndWorker job;
  job.send(job.push_header(0, 0), 0);
  REQUIRE(job.comes(1));
  CHECK(job.answers[0].second == std::vector<float>(1024, 10));
  CHECK(job.server->update_statistics().updates == 0);
}

TEST_CASE("a message that no peer with this plan would send ends the exchange with one line") {
  ServerAndWorker job;
  const auto [change, elements, line] =
      GENERATE(table<std::function<void(SliceHeader&)>, std::size_t, std::string>({
          {[](SliceHeader&) {}, 1023, "of 4092 bytes, where 4096 are due"},
          {[](SliceHeader&) {}, 1025, "of 4100 bytes, where 4096 are due"},
          {[](SliceHeader& header) { header.slice = 2; }, 1024, "which is not its own"},
          {[](SliceHeader& header) { header.transfer = 1; }, 1024, "which is not its own"},
          {[](SliceHeader& header) { header.transfer = 2; }, 1024, "which there is not"},
          {[](SliceHeader& header) { header.bucket = 1; }, 1024, "which there is not"},
          {[](SliceHeader& header) { header.step = 1; }, 1024, "where it is at step 0"},
      }));
  SliceHeader header = job.push_header(0, 0);
  change(header);
  job.send(header, elements);
  const std::string failure = job.failure();
  CHECK_THAT(failure, Catch::Contains("rank 1") && Catch::Contains(line));
  CHECK(failure.find('\n') == std::string::npos);
}

TEST_CASE("messages of another plan or epoch are passed over") {
  ServerAndWorker job;
  SliceHeader header = job.push_header(0, 0);
  header.plan += 1;
  job.send(header, 1024);
  header = job.push_header(0, 0);
  header.epoch = 1;
  job.send(header, 1024);
  job.send(job.push_header(0, 0), 1024);
  REQUIRE(job.comes(1));
  CHECK(job.answers[0].second == std::vector<float>(1024, 9));
}

TEST_CASE("a worker that is gone ends the wait of those that are too far ahead") {
  ServerAndWorker job;
  std::thread leaver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    job.transports[1]->close(1_s);
  });
  const auto start = Clock::now();
  CHECK_THAT(job.failure(), Catch::StartsWith("rank 1 cannot be reached"));
  CHECK(Clock::now() - start < std::chrono::seconds(10));
  leaver.join();
}

TEST_CASE("an abort ends every wait with its reason") {
  ServerAndWorker job;
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    job.server->abort("the job is over");
    job.server->abort("too late");
  });
  CHECK(job.failure() == "the job is over");
  aborter.join();
}

TEST_CASE("a worker that falls silent is missed, and one that sends pulses is not") {
  ServerAndWorker job(2, PulseOptions{.period = 150_ms, .patience = 700_ms});
  SliceHeader pulse = job.push_header(0, 0);
  pulse.bucket = ~0U;
  const auto end = Clock::now() + std::chrono::seconds(1);
  while (Clock::now() < end) {
    job.send(pulse, 0);
    job.transports[1]->progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  CHECK(std::ranges::any_of(job.answers,
                            [](const auto& answer) { return PeerPulses::is_pulse(answer.first); }));
  std::vector<float> gradient(kElements, 0);
  job.server->begin_step(0);
  job.server->launch(BucketId(0), gradient);
  CHECK_NOTHROW(job.server->wait_all());  // it may be ahead
  CHECK_THROWS_AS(
      [&] {
        for (std::uint32_t step = 1; step < 100; ++step) {
          job.server->begin_step(step);
          job.server->launch(BucketId(0), gradient);
          job.server->wait_all();
        }
      }(),
      MissedPeerError);
}

TEST_CASE("momentum of another size is refused") {
  const plan::Plan plan = test::one_server_plan(2, {kElements}, 1024);
  const auto transports = joined_transports("in-process", 2);
  ParameterExchange server(plan, Rank(0), *transports[0], {.staleness = 1});
  CHECK_THROWS_AS(server.set_residuals({{"momentum/bucket0/0+2000", {1, 2, 3}}}), ConfigError);
  // One for each of two workers.
  CHECK_NOTHROW(server.set_residuals({{"momentum/bucket0/0+2000", std::vector<float>(4000, 1)}}));
}

}  // namespace rackrail::runtime::parameter_exchange_test

// Whose thread does the work, and that a turn of the caller's ends as the thread's own work does.
#include "runtime/progress_loop.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/transport.hpp"

namespace rackrail::runtime::progress_loop_test {
namespace {

using namespace std::chrono_literals;
using Event = std::function<void()>;

/// What the test posts happens in progress().
class EventTransport final : public Transport {
 public:
  std::string_view name() const override { return "events"; }
  std::vector<std::byte> address() const override { return {}; }
  void set_key(std::uint64_t /*key*/) override {}
  void connect(Rank /*self*/, std::span<const std::vector<std::byte>> /*addresses*/) override {}
  void set_handlers(ReceiveHandler /*on_receive*/, PeerErrorHandler /*on_error*/) override {}
  void send(Rank /*destination*/, const SliceHeader& /*header*/,
            std::span<const std::byte> /*payload*/, SendCompletion /*done*/) override {}
  std::size_t progress() override {
    std::deque<Event> events;
    {
      const std::lock_guard lock(mutex_);
      events.swap(events_);
    }
    for (const Event& event : events) {
      event();
    }
    return events.size();
  }
  void sleep(Duration at_most) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(at_most.picoseconds() / 1000),
                      [this] { return is_woken_ || !events_.empty(); });
    is_woken_ = false;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
    changed_.notify_all();
  }
  void close(Duration /*deadline*/) noexcept override {}

  void post(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool is_woken_ = false;
};

/// Does what it is given, and counts it.
class Errands final : public ProgressLoop {
 public:
  explicit Errands(EventTransport& transport)
      : ProgressLoop(transport, [this](const MissedPeer& peer) {
          missed_ = peer.rank;
          told_by_ = std::this_thread::get_id();
        }) {
    start();
  }
  ~Errands() override { stop(); }
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

  void launch_large(Event errand) {
    put(std::move(errand));
    rouse();
  }
  void launch_small(Event errand) {
    put(std::move(errand));
    work_once();
  }
  void finish_one() {
    const auto guard = lock();
    ++done_;
    notify();
  }
  void await_large(int count) {
    wait_until([&] { return done_ >= count; });
  }
  void await_small(int count) {
    work_until([&] { return done_ >= count; }, true);
  }
  int halts() const { return halts_; }
  std::optional<Rank> missed() const { return missed_; }
  std::thread::id told_by() const { return told_by_; }
  std::thread::id halted_by() const { return halted_by_; }

 private:
  void put(Event errand) {
    const auto guard = lock();
    launched_.push_back(std::move(errand));
  }
  std::size_t take_launches() override {
    std::deque<Event> launched;
    {
      const auto guard = lock();
      launched.swap(launched_);
    }
    for (const Event& errand : launched) {
      errand();
    }
    return launched.size();
  }
  std::size_t advance() override { return 0; }
  void report_finished() override {}
  void halt() noexcept override {
    halted_by_ = std::this_thread::get_id();
    ++halts_;
  }

  std::optional<Rank> missed_;
  std::thread::id told_by_;
  std::deque<Event> launched_;
  int done_ = 0;
  std::atomic<int> halts_ = 0;
  std::thread::id halted_by_;
};

struct Fixture {
  EventTransport transport;
  Errands errands{transport};
  std::thread::id worker;  ///< of the last errand

  /// Notes whose thread it runs on.
  Event errand() {
    return [this] {
      worker = std::this_thread::get_id();
      errands.finish_one();
    };
  }
  /// It happens on the transport after a while.
  std::future<void> later(Event event, std::chrono::milliseconds after) {
    return std::async(std::launch::async, [this, event = std::move(event), after] {
      std::this_thread::sleep_for(after);
      transport.post(event);
    });
  }
};

void spin(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

TEST_CASE("What is large is done by the loop's thread while the caller waits", "[progress-loop]") {
  Fixture fixture;
  fixture.errands.launch_large(fixture.errand());
  fixture.errands.await_large(1);
  CHECK(fixture.worker != std::this_thread::get_id());
}

TEST_CASE("What is small is done by the caller's thread, at once and while it waits",
          "[progress-loop]") {
  Fixture fixture;
  // The loop's thread looks once when it begins: it may be at work just then.
  int by_caller = 0;
  constexpr int kTimes = 20;
  for (int time = 0; time < kTimes; ++time) {
    fixture.errands.launch_small(fixture.errand());
    fixture.errands.await_small(2 * time + 1);
    const std::future<void> event = fixture.later(fixture.errand(), 1ms);
    fixture.errands.await_small(2 * time + 2);
    by_caller += fixture.worker == std::this_thread::get_id() ? 1 : 0;
  }
  CHECK(by_caller > kTimes / 2);
}

TEST_CASE("A caller asks the thread that is at work for its turn", "[progress-loop]") {
  Fixture fixture;
  int by_caller = 0;
  constexpr int kTimes = 20;
  for (int time = 0; time < kTimes; ++time) {
    std::atomic<bool> is_at_work = false;
    fixture.errands.launch_large([&] {
      is_at_work = true;
      spin(100us);
      fixture.errands.finish_one();
    });
    while (!is_at_work) {
      std::this_thread::yield();
    }
    const std::future<void> event = fixture.later(fixture.errand(), 1ms);
    fixture.errands.await_small(2 * time + 2);
    by_caller += fixture.worker == std::this_thread::get_id() ? 1 : 0;
  }
  // On a busy machine the thread may be kept from its core for longer than a caller asks.
  CHECK(by_caller > 0);
}

TEST_CASE("What happens between turns of the caller's is the thread's", "[progress-loop]") {
  Fixture fixture;
  fixture.errands.launch_small(fixture.errand());
  fixture.errands.await_small(1);
  fixture.transport.post(fixture.errand());
  fixture.errands.await_large(2);
  CHECK(fixture.worker != std::this_thread::get_id());
}

TEST_CASE("What another thread launches is done in the caller's turn", "[progress-loop]") {
  Fixture fixture;
  const auto other = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(5ms);
    fixture.errands.launch_large(fixture.errand());
    fixture.errands.launch_small(fixture.errand());
  });
  fixture.errands.await_small(2);
}

TEST_CASE("An exception in the caller's turn is an abort like one on the thread",
          "[progress-loop]") {
  const bool is_at_launch = GENERATE(true, false);
  Fixture fixture;
  const Event failing = [] { throw std::runtime_error("a torn wire"); };
  std::future<void> event;
  if (is_at_launch) {
    fixture.errands.launch_small(failing);
  } else {
    event = fixture.later(failing, 2ms);
  }
  CHECK_THROWS_WITH(fixture.errands.await_small(1), Catch::Contains("a torn wire"));
  CHECK(fixture.errands.is_aborted());
  CHECK_THROWS_AS(fixture.errands.await_small(1), PeerLostError);
  CHECK_THROWS_AS(fixture.errands.await_large(1), PeerLostError);
  CHECK(fixture.errands.halts() == 1);
  CHECK(fixture.errands.halted_by() != std::this_thread::get_id());
}

TEST_CASE("A peer that is missed in the caller's turn is told of by the loop's thread",
          "[progress-loop]") {
  Fixture fixture;
  MissedPeer peer;
  peer.rank = Rank(3);
  peer.why = "silent";
  fixture.errands.launch_small([&] { throw MissedPeerError(peer); });
  CHECK_THROWS_AS(fixture.errands.await_small(1), MissedPeerError);
  CHECK(fixture.errands.missed() == Rank(3));
  CHECK(fixture.errands.told_by() == fixture.errands.halted_by());
  CHECK(fixture.errands.told_by() != std::this_thread::get_id());
}

TEST_CASE("An abort ends the caller's turn", "[progress-loop]") {
  Fixture fixture;
  const auto other = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(5ms);
    fixture.errands.abort("another one went");
  });
  CHECK_THROWS_WITH(fixture.errands.await_small(1), Catch::Contains("another one went"));
  CHECK(fixture.errands.halts() == 1);
}

TEST_CASE("The processor time of the work counts the caller's turns", "[progress-loop]") {
  Fixture fixture;
  const Event event = [&] {
    spin(30ms);
    fixture.errands.finish_one();
  };
  const std::future<void> posted = fixture.later(event, 2ms);
  fixture.errands.await_small(1);
  CHECK(fixture.errands.cpu_time() >= 3_ms);  // of those 30, on a busy machine
}

}  // namespace
}  // namespace rackrail::runtime::progress_loop_test

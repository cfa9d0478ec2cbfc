// What the executor does with messages and completions one by one: the transport of this test does
// nothing of its own, the test decides what arrives and when a send is complete.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "runtime/time_slice.hpp"
#include "runtime/trainer/statistics.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::executor_protocol_test {
namespace {

using namespace std::chrono_literals;

class ManualTransport final : public Transport {
 public:
  struct Sent {
    Rank destination;
    SliceHeader header;
    SendCompletion done;
  };

  std::string_view name() const override { return "manual"; }
  std::vector<std::byte> address() const override { return {}; }
  void set_key(std::uint64_t /*key*/) override {}
  void connect(Rank /*self*/, std::span<const std::vector<std::byte>> /*addresses*/) override {}
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    on_receive_ = std::move(on_receive);
    on_peer_error_ = std::move(on_peer_error);
  }
  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> /*payload*/,
            SendCompletion done) override {
    const std::lock_guard lock(mutex_);
    sent_.push_back({destination, header, std::move(done)});
    changed_.notify_all();
  }
  std::size_t progress() override {
    std::deque<std::function<void()>> events;
    {
      const std::lock_guard lock(mutex_);
      events.swap(events_);
    }
    for (const auto& event : events) {
      event();
    }
    return events.size();
  }
  void sleep(Duration /*at_most*/) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 5ms, [this] { return !events_.empty() || woken_; });
    woken_ = false;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void close(Duration /*deadline*/) noexcept override {}

  // ---- for the test ----

  void arrive(Rank source, const SliceHeader& header, std::vector<float> values) {
    post([this, source, header, values = std::move(values)] {
      if (on_receive_) {
        on_receive_(source, header, std::as_bytes(std::span(values)));
      }
    });
  }
  void lose(Rank peer) {
    post([this, peer] {
      if (on_peer_error_) {
        on_peer_error_(peer, "gone");
      }
    });
  }
  void post(std::function<void()> event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    changed_.notify_all();
  }
  /// The send of this number once it has been made; throws after five seconds.
  Sent sent(std::size_t number) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, 5s, [&] { return sent_.size() > number; })) {
      throw std::runtime_error("nothing was sent");
    }
    return sent_[number];
  }
  std::size_t sent_count() {
    const std::lock_guard lock(mutex_);
    return sent_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  ReceiveHandler on_receive_;
  PeerErrorHandler on_peer_error_;
  std::deque<std::function<void()>> events_;
  std::vector<Sent> sent_;
  bool woken_ = false;
};

// Lets the progress thread do what it would do if it were wrong.
void settle() { std::this_thread::sleep_for(30ms); }

SliceHeader header_of(const plan::Plan& plan, std::uint32_t step, std::uint32_t transfer,
                      std::uint32_t bytes) {
  SliceHeader header;
  header.plan = std::stoull(plan::digest(plan).substr(0, 16), nullptr, 16);
  header.step = step;
  header.transfer = transfer;
  header.bytes = bytes;
  return header;
}

std::string failure_of(Executor& executor) {
  try {
    executor.wait_all();
  } catch (const PeerLostError& error) {
    return error.what();
  }
  return "none";
}

// star(2): transfer 0 adds rank 1 into rank 0, transfer 1 copies back.
struct TwoRanks {
  plan::Plan plan = plan_of(star(2), {4}, 1024);
  ManualTransport transport;
  std::vector<float> data = std::vector<float>(4, 1.0F);
  std::vector<float> other{1, 2, 3, 4};
};

TEST_CASE("executor protocol: the progress thread interrupts threads that compute") {
  const std::optional<Duration> usual = time_slice();
  if (!usual) {
    WARN("skipped: this kernel gives no thread time slices of its own (Linux does since 6.12)");
    return;
  }
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  std::promise<std::optional<Duration>> seen;
  two.transport.post([&] { seen.set_value(time_slice()); });
  CHECK(seen.get_future().get() == 100_us);
  CHECK(time_slice() == usual);  // the caller's thread has those of before
}

TEST_CASE("executor protocol: the progress thread has a larger share of the processor") {
  const int usual = getpriority(PRIO_PROCESS, 0);
  bool may = false;
  std::thread([&may] { may = take_larger_share(); }).join();
  if (!may) {
    WARN("skipped: this process may not raise its threads' priority");
    return;
  }
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  std::promise<int> seen;
  two.transport.post([&] { seen.set_value(getpriority(PRIO_PROCESS, 0)); });
  CHECK(seen.get_future().get() == std::min(usual, -10));
  CHECK(getpriority(PRIO_PROCESS, 0) == usual);  // the caller's thread has that of before
}

TEST_CASE("executor protocol: the processor time of the progress thread is counted") {
  using Clock = std::chrono::steady_clock;
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  const Duration before = executor.statistics().progress_cpu_time;
  std::promise<void> over;
  two.transport.post([&] {
    // As long as it takes for five milliseconds of its own.
    const Duration begin = trainer::thread_cpu_clock();
    while (trainer::thread_cpu_clock() - begin < 5_ms) {
    }
    over.set_value();
  });
  over.get_future().get();
  const auto limit = Clock::now() + 5s;
  while (executor.statistics().progress_cpu_time - before < 5_ms && Clock::now() < limit) {
    settle();
  }
  CHECK(executor.statistics().progress_cpu_time - before >= 5_ms);
}

TEST_CASE("executor protocol: slices of other plans, epochs and steps are ignored") {
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  executor.begin_step(7);
  executor.launch(BucketId(0), two.data);
  SliceHeader header = header_of(two.plan, 7, 0, 16);
  SliceHeader foreign = header;
  foreign.plan ^= 1;
  two.transport.arrive(Rank(1), foreign, two.other);
  foreign = header;
  foreign.epoch = 3;
  two.transport.arrive(Rank(1), foreign, two.other);
  foreign = header;
  foreign.step = 6;
  two.transport.arrive(Rank(1), foreign, two.other);
  foreign = header;
  foreign.bucket = 9;
  two.transport.arrive(Rank(1), foreign, two.other);
  settle();
  CHECK(two.transport.sent_count() == 0);
  two.transport.arrive(Rank(1), header, two.other);
  two.transport.post(two.transport.sent(0).done);
  executor.wait_all();
  CHECK(two.data == std::vector<float>{2, 3, 4, 5});
}

TEST_CASE("executor protocol: early slices of a step that is skipped over are dropped") {
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  two.transport.arrive(Rank(1), header_of(two.plan, 4, 0, 16), {100, 100, 100, 100});
  two.transport.arrive(Rank(1), header_of(two.plan, 5, 0, 16), two.other);
  settle();
  executor.begin_step(5);
  executor.launch(BucketId(0), two.data);
  two.transport.post(two.transport.sent(0).done);
  executor.wait_all();
  CHECK(two.data == std::vector<float>{2, 3, 4, 5});
  CHECK(executor.statistics().peak_buffered_bytes == 32);
}

TEST_CASE("executor protocol: what no peer with this plan would send ends the job") {
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  executor.begin_step(0);
  const SliceHeader good = header_of(two.plan, 0, 0, 16);
  SliceHeader bad = good;
  std::string expected;
  SECTION("the same slice again") {
    executor.launch(BucketId(0), two.data);
    two.transport.arrive(Rank(1), good, two.other);
    expected = "once more";
  }
  SECTION("the same slice again, both early") {
    two.transport.arrive(Rank(1), good, two.other);
    two.transport.arrive(Rank(1), good, two.other);
    settle();
    executor.launch(BucketId(0), two.data);
    expected = "once more";
  }
  SECTION("the same slice again, after the bucket's end") {
    executor.launch(BucketId(0), two.data);
    two.transport.arrive(Rank(1), good, two.other);
    two.transport.post(two.transport.sent(0).done);
    executor.wait_all();
    expected = "once more";
  }
  SECTION("an unknown transfer") {
    executor.launch(BucketId(0), two.data);
    bad.transfer = 77;
    expected = "none of ours";
  }
  SECTION("a transfer that this rank sends") {
    executor.launch(BucketId(0), two.data);
    bad.transfer = 1;
    expected = "not its own";
  }
  SECTION("a slice beyond the last") {
    executor.launch(BucketId(0), two.data);
    bad.slice = 1;
    expected = "not its own";
  }
  SECTION("a wrong size") {
    executor.launch(BucketId(0), two.data);
    two.other.pop_back();
    expected = "bytes";
  }
  two.transport.arrive(Rank(1), bad, two.other);
  for (int i = 0; i < 1000 && !executor.aborted(); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK_THAT(failure_of(executor), Catch::Contains(expected));
}

TEST_CASE("executor protocol: a flood of early slices is bounded") {
  constexpr std::uint32_t kElements = 1 << 20;
  const plan::Plan plan = plan_of(star(2), {kElements}, kElements);
  ManualTransport transport;
  Executor executor(plan, Rank(0), transport, {});
  const std::vector<float> large(kElements);
  for (std::uint32_t step = 0; step < 12; ++step) {
    transport.arrive(Rank(1), header_of(plan, step, 0, 4 * kElements), large);
  }
  for (int i = 0; i < 1000 && !executor.aborted(); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK_THAT(failure_of(executor), Catch::Contains("too far ahead"));
  CHECK(executor.statistics().peak_buffered_bytes <= std::size_t{32} << 20);
}

TEST_CASE("executor protocol: what cannot be a slice takes no memory before its bucket is there") {
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  SliceHeader bad = header_of(two.plan, 0xffffffff, 0, 16);
  std::string expected;
  SECTION("nothing at all, of which there could be any number") {
    two.other.clear();
    expected = "0 bytes, not 16";
  }
  SECTION("more than the slice has") {
    two.other.resize(1 << 20);
    expected = "4194304 bytes, not 16";
  }
  SECTION("a transfer that there is not") {
    bad.transfer = 0xffffffff;
    expected = "none of ours";
  }
  SECTION("a slice beyond the last") {
    bad.slice = 0xffffffff;
    expected = "not its own";
  }
  two.transport.arrive(Rank(1), bad, two.other);
  for (int i = 0; i < 1000 && !executor.aborted(); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK_THAT(failure_of(executor), Catch::Contains(expected));
  CHECK(executor.statistics().peak_buffered_bytes == 0);
}

TEST_CASE("executor protocol: an addition that has to wait is as long as it should be") {
  // Rank 2 adds what comes from rank 0 after what comes from rank 1: that of rank 0 is kept.
  plan::TransferGraph graph("chain", plan::Collective::kAllReduce, 3, {1});
  const std::uint8_t code = graph.add_codec(plan::parse_codec("none"));
  plan::Transfer t;
  t.src = Rank(1);
  t.dst = Rank(2);
  t.op = plan::TransferOp::kReduce;
  t.codec = code;
  const std::vector<TransferId> first{graph.add_transfer(t, {})};
  t.src = Rank(0);
  graph.add_transfer(t, first);
  const plan::Plan plan = plan_of(graph, {4}, 1024);
  ManualTransport transport;
  std::vector<float> data(4, 1.0F);
  Executor executor(plan, Rank(2), transport, {});
  executor.begin_step(0);
  executor.launch(BucketId(0), data);
  transport.arrive(Rank(0), header_of(plan, 0, 1, 16), std::vector<float>(1 << 20));
  for (int i = 0; i < 1000 && !executor.aborted(); ++i) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK_THAT(failure_of(executor), Catch::Contains("4194304 bytes, not 16"));
}

TEST_CASE("executor protocol: plain slices count as read when the transport has completed them") {
  // Rank 0 sends to 1 and then, after that, to 2.
  plan::TransferGraph graph("pair", plan::Collective::kAllReduce, 3, {1});
  const bool is_lossy = GENERATE(false, true);
  const std::uint8_t code = graph.add_codec(plan::parse_codec(is_lossy ? "fp16" : "none"));
  plan::Transfer t;
  t.src = Rank(0);
  t.dst = Rank(1);
  t.op = plan::TransferOp::kReduce;
  t.codec = code;
  const std::vector<TransferId> first{graph.add_transfer(t, {})};
  t.dst = Rank(2);
  graph.add_transfer(t, first);
  const plan::Plan plan = plan_of(graph, {4}, 1024);
  ManualTransport transport;
  std::vector<float> data(4, 1.0F);
  Executor executor(plan, Rank(0), transport, {});
  executor.begin_step(0);
  executor.launch(BucketId(0), data);
  const auto one = transport.sent(0);
  CHECK(one.destination == Rank(1));
  settle();
  CHECK(transport.sent_count() == (is_lossy ? 2 : 1));
  transport.post(one.done);
  const auto two = transport.sent(1);
  CHECK(two.destination == Rank(2));
  transport.post(two.done);
  executor.wait_all();
}

TEST_CASE(
    "executor protocol: slices to one destination leave in the order of transfers and slices") {
  // The second waits for nothing, yet it leaves after the first, whose slices wait for each other's
  // sending: an encoding that frees its followers must not be overtaken by them.
  plan::TransferGraph graph("order", plan::Collective::kAllReduce, 2, {1, 1});
  const std::uint8_t code = graph.add_codec(plan::parse_codec("fp16"));
  plan::Transfer t;
  t.src = Rank(0);
  t.dst = Rank(1);
  t.codec = code;
  const std::vector<TransferId> first{graph.add_transfer(t, {})};
  t.chunk_begin = 1;
  graph.add_transfer(t, first);
  t.chunk_begin = 0;
  t.op = plan::TransferOp::kReduce;
  graph.add_transfer(t, {});
  const plan::Plan plan = plan_of(graph, {6'000}, 1024);
  ManualTransport transport;
  std::vector<float> data(6'000, 1.0F);
  ExecutorOptions options;
  options.send_window = 2;
  Executor executor(plan, Rank(0), transport, options);
  executor.begin_step(0);
  executor.launch(BucketId(0), data);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> order;
  for (std::size_t i = 0; i < 9; ++i) {
    const auto sent = transport.sent(i);
    CHECK(transport.sent_count() <= i + 2);  // the window
    order.emplace_back(sent.header.transfer, sent.header.slice);
    transport.post(sent.done);
  }
  executor.wait_all();
  CHECK(order == std::vector<std::pair<std::uint32_t, std::uint32_t>>{
                     {0, 0}, {0, 1}, {0, 2}, {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}});
}

TEST_CASE("executor protocol: what waits on one route does not hold up another route") {
  plan::TransferGraph graph("two routes", plan::Collective::kAllReduce, 2, {1, 1});
  const RouteId one = graph.add_route({LinkId(0)});
  const RouteId other = graph.add_route({LinkId(1)});
  const TransferId comes = graph.add_transfer({.src = Rank(1), .dst = Rank(0)}, {});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = one}, std::span(&comes, 1));
  const bool goes_elsewhere = GENERATE(true, false);
  graph.add_transfer(
      {.src = Rank(0), .dst = Rank(1), .chunk_begin = 1, .route = goes_elsewhere ? other : one},
      {});
  const plan::Plan plan = plan_of(graph, {2'000}, 1024);
  ManualTransport transport;
  std::vector<float> data(2'000, 1.0F);
  Executor executor(plan, Rank(0), transport, {});
  executor.begin_step(0);
  executor.launch(BucketId(0), data);
  if (!goes_elsewhere) {
    settle();
    CHECK(transport.sent_count() == 0);
  } else {
    CHECK(transport.sent(0).header.transfer == 2);
  }
  transport.arrive(Rank(1), header_of(plan, 0, 0, 4'000), std::vector<float>(1'000, 2.0F));
  const std::uint32_t expected[] = {goes_elsewhere ? 2U : 1U, goes_elsewhere ? 1U : 2U};
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(transport.sent(i).header.transfer == expected[i]);
    transport.post(transport.sent(i).done);
  }
  executor.wait_all();
}

TEST_CASE("executor protocol: waits throw once sends have let go of the gradient") {
  TwoRanks two;
  const plan::Plan& plan = two.plan;
  ManualTransport transport;
  Executor executor(plan, Rank(1), transport, {});  // sends at once
  executor.begin_step(0);
  executor.launch(BucketId(0), two.data);
  const auto sent = transport.sent(0);
  std::atomic<bool> has_thrown = false;
  std::thread waiter([&] {
    failure_of(executor);
    has_thrown = true;
  });
  executor.abort("enough");
  SECTION("as soon as they are complete") {
    std::this_thread::sleep_for(100ms);
    CHECK_FALSE(has_thrown);
    transport.post(sent.done);
    const auto start = std::chrono::steady_clock::now();
    waiter.join();
    CHECK(std::chrono::steady_clock::now() - start < 300ms);
  }
  SECTION("or after a deadline, and a completion after the executor's end does no harm") {
    waiter.join();
  }
  CHECK(failure_of(executor) == "enough");
}

TEST_CASE("executor protocol: completions may come after the executor's end") {
  TwoRanks two;
  SendCompletion done;
  {
    Executor executor(two.plan, Rank(1), two.transport, {});
    executor.begin_step(0);
    executor.launch(BucketId(0), two.data);
    done = two.transport.sent(0).done;
  }
  done();
  two.transport.arrive(Rank(0), header_of(two.plan, 0, 1, 16), two.other);
  two.transport.progress();
  CHECK(two.data == std::vector<float>(4, 1.0F));
}

TEST_CASE("executor protocol: a lost peer matters only while it is needed") {
  TwoRanks two;
  Executor executor(two.plan, Rank(0), two.transport, {});
  executor.begin_step(0);
  const SliceHeader header = header_of(two.plan, 0, 0, 16);
  SECTION("lost before its contribution came") {
    executor.launch(BucketId(0), two.data);
    two.transport.lose(Rank(1));
    CHECK_THAT(failure_of(executor), Catch::Contains("rank 1 cannot be reached: gone"));
  }
  SECTION("lost before the launch") {
    two.transport.lose(Rank(1));
    settle();
    CHECK_FALSE(executor.aborted());
    executor.launch(BucketId(0), two.data);
    CHECK_THAT(failure_of(executor), Catch::Contains("rank 1 cannot be reached: gone"));
  }
  SECTION("lost when it had everything") {
    executor.launch(BucketId(0), two.data);
    two.transport.arrive(Rank(1), header, two.other);
    two.transport.post(two.transport.sent(0).done);
    two.transport.lose(Rank(1));
    executor.wait_all();
    settle();
    CHECK_FALSE(executor.aborted());
    executor.begin_step(1);
    executor.launch(BucketId(0), two.data);
    CHECK_THAT(failure_of(executor), Catch::Contains("rank 1 cannot be reached: gone"));
  }
}

}  // namespace
}  // namespace rackrail::runtime::executor_protocol_test

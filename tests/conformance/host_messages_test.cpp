// What messages over a transport of the host do where that transport fails in ways of its own.
#include "runtime/nccl/host_messages.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace rackrail::runtime::host_messages_test {
namespace {

using Clock = std::chrono::steady_clock;

/// Nobody is at the other end.
class LonelyTransport : public Transport, public DeviceMessaging {
 public:
  std::vector<std::byte> address() const override { return {}; }
  void set_key(std::uint64_t /*key*/) override {}
  void connect(Rank /*self*/, std::span<const std::vector<std::byte>> /*addresses*/) override {}
  void set_handlers(ReceiveHandler /*on_receive*/, PeerErrorHandler /*on_error*/) override {}
  void send(Rank /*destination*/, const SliceHeader& /*header*/,
            std::span<const std::byte> /*payload*/, SendCompletion done) override {
    done();
  }
  void learn(std::span<const std::byte> memory) override { learnt.push_back(memory.size()); }

  std::vector<std::size_t> learnt;
};

/// What is asked for throws.
class BrokenTransport final : public LonelyTransport {
 public:
  std::string_view name() const override { return "broken"; }
  std::size_t progress() override {
    ++rounds;
    if (is_progress_broken) {
      throw std::runtime_error("no progress");
    }
    return 0;
  }
  void sleep(Duration /*at_most*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void wake() override {}
  DeviceMessaging* device_messaging() override { return this; }
  void close(Duration /*deadline*/) noexcept override {}

  void send_from_device(Rank /*destination*/, const SliceHeader& /*header*/,
                        std::span<const std::byte> /*payload*/, SendCompletion /*done*/) override {
    throw std::runtime_error("no such memory");
  }
  void set_landing_handler(LandingHandler /*handler*/) override {}

  bool is_progress_broken = false;
  std::atomic<int> rounds = 0;
};

/// What it has begun with the device's memory ends only by looking: nothing wakes whoever sleeps,
/// as where the driver keeps UCX's function of the host waiting behind one that waits for a
/// message.
class SilentTransport final : public LonelyTransport {
 public:
  std::string_view name() const override { return "silent"; }
  void send_from_device(Rank /*destination*/, const SliceHeader& header,
                        std::span<const std::byte> /*payload*/, SendCompletion done) override {
    sent_ = std::move(done);
    header_ = header;
  }
  void set_landing_handler(LandingHandler handler) override { on_landing_ = std::move(handler); }
  std::size_t progress() override {
    if (landing_ && longest_wait_with_landing > Duration()) {
      std::exchange(landing_, {})->done(true);
      return 1;
    }
    if (!sent_) {
      return 0;
    }
    std::exchange(sent_, {})();
    SliceHeader answer = header_;
    answer.transfer = 1;
    landing_ = on_landing_(Rank(1), answer);
    return 0;  // it is there after a sleep
  }
  bool arm() override {
    was_armed_with_landing = was_armed_with_landing || landing_ || sent_;
    return true;
  }
  void sleep(Duration at_most) override {
    longest_wait_with_landing =
        std::max(longest_wait_with_landing, landing_ ? at_most : Duration());
    std::this_thread::sleep_for(std::chrono::nanoseconds(at_most.picoseconds() / 1000));
  }
  void wake() override {}
  DeviceMessaging* device_messaging() override { return this; }
  void close(Duration /*deadline*/) noexcept override {}

  Duration longest_wait_with_landing;
  bool was_armed_with_landing = false;

 private:
  LandingHandler on_landing_;
  SendCompletion sent_;
  SliceHeader header_;
  std::optional<Landing> landing_;
};

/// What is sent is answered at once; while the answer still lands, the piece of the next turn
/// comes.
class HastyTransport final : public LonelyTransport {
 public:
  std::string_view name() const override { return "hasty"; }
  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler /*on_error*/) override {
    on_receive_ = std::move(on_receive);
  }
  void set_landing_handler(LandingHandler handler) override { on_landing_ = std::move(handler); }
  void send_from_device(Rank /*destination*/, const SliceHeader& header,
                        std::span<const std::byte> /*payload*/, SendCompletion done) override {
    answer_ = header;
    answer_->transfer = 1;
    done();
  }
  std::size_t progress() override {
    if (landing_) {
      std::exchange(landing_, {})->done(true);
      return 1;
    }
    if (!answer_) {
      return 0;
    }
    SliceHeader header = *std::exchange(answer_, {});
    landing_ = on_landing_(Rank(1), header);
    has_landed = has_landed || landing_;
    ++header.step;
    const std::vector<std::byte> payload(header.bytes);
    on_receive_(Rank(1), header, payload);
    return 1;
  }
  void sleep(Duration /*at_most*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void wake() override {}
  DeviceMessaging* device_messaging() override { return this; }
  void close(Duration /*deadline*/) noexcept override {}

  bool has_landed = false;

 private:
  ReceiveHandler on_receive_;
  LandingHandler on_landing_;
  std::optional<SliceHeader> answer_;
  std::optional<Landing> landing_;
};

/// Keeps what is sent, and ends none of it before it is told to.
class HoldingTransport final : public LonelyTransport {
 public:
  std::string_view name() const override { return "holding"; }
  void send(Rank /*destination*/, const SliceHeader& /*header*/, std::span<const std::byte> payload,
            SendCompletion done) override {
    const std::lock_guard lock(mutex_);
    first_bytes_.push_back(payload.front());
    held_.push_back(std::move(done));
  }
  void send_from_device(Rank to, const SliceHeader& header, std::span<const std::byte> payload,
                        SendCompletion done) override {
    send(to, header, payload, std::move(done));
  }
  void set_landing_handler(LandingHandler /*handler*/) override {}
  std::size_t progress() override {
    const std::lock_guard lock(mutex_);
    if (!lets_go || held_.empty()) {
      return 0;
    }
    held_.back()();
    held_.pop_back();
    return 1;
  }
  void sleep(Duration /*at_most*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void wake() override {}
  void close(Duration /*deadline*/) noexcept override {}

  /// The first byte of each message that was sent.
  std::vector<std::byte> first_bytes() const {
    const std::lock_guard lock(mutex_);
    return first_bytes_;
  }

  std::atomic<bool> lets_go = false;

 private:
  mutable std::mutex mutex_;
  std::vector<std::byte> first_bytes_;
  std::vector<SendCompletion> held_;
};

DeviceProgram one_exchange() {
  DeviceProgram program;
  ExchangeOperation exchange;
  for (const bool is_send : {true, false}) {
    exchange.messages.push_back({.transfer = TransferId(std::size_t{is_send ? 0U : 1U}),
                                 .peer = Rank(1),
                                 .is_send = is_send,
                                 .is_gradient = true,
                                 .offset = 0,
                                 .bytes = 64});
  }
  program.operations.push_back({.lane = DeviceLane::kMessages, .what = exchange});
  return program;
}

/// Messages between this rank and one that is not there; enqueue() returns once that is known.
struct OneRank {
  OneRank(Transport& transport, bool is_direct)
      : program(one_exchange()), memory(64), messages(transport, {.is_direct = is_direct}) {
    messages.prepare(BucketId(0), program);
    messages.enqueue(BucketId(0), std::get<ExchangeOperation>(program.operations.front().what),
                     memory.span(), {}, stream.get());
  }

  DeviceProgram program;
  CudaStream stream;
  DeviceBuffer<std::byte> memory;
  HostMessages messages;
};

TEST_CASE("a staged piece is copied from the device while those before it are on the wire") {
  constexpr std::size_t kPiece = 64;
  const std::vector<std::byte> wanted{std::byte{1}, std::byte{2}, std::byte{3}};
  HoldingTransport transport;
  DeviceProgram program;
  program.operations.push_back(
      {.lane = DeviceLane::kMessages,
       .what = ExchangeOperation{.messages = {{.transfer = TransferId(0U),
                                               .peer = Rank(1),
                                               .is_send = true,
                                               .is_gradient = true,
                                               .offset = 0,
                                               .bytes = wanted.size() * kPiece}}}});
  const CudaStream stream;
  const DeviceBuffer<std::byte> memory(wanted.size() * kPiece);
  std::vector<std::byte> values;
  for (const std::byte first : wanted) {
    values.insert(values.end(), kPiece, first);
  }
  copy_to_device<std::byte>(values, memory, stream.get());
  HostMessages messages(transport, {.piece_bytes = kPiece});
  messages.prepare(BucketId(0), program);
  std::jthread device([&] {  // whose functions of the host wait until all is sent
    messages.enqueue(BucketId(0), std::get<ExchangeOperation>(program.operations.front().what),
                     memory.span(), {}, stream.get());
  });
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (transport.first_bytes().size() < wanted.size() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(transport.first_bytes() == wanted);  // and none of these sends has ended
  transport.lets_go = true;
  device.join();
  messages.check_health();
}

TEST_CASE("a transport that fails again and again is left alone in between") {
  BrokenTransport transport;
  transport.is_progress_broken = true;
  OneRank rank(transport, false);
  REQUIRE_THROWS_AS(rank.messages.check_health(), PeerLostError);
  const int before = transport.rounds;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(transport.rounds - before <= 21);  // or it would be as many as a processor can do
}

TEST_CASE("a send from the device that never began holds up no end") {
  BrokenTransport transport;
  auto rank = std::make_unique<OneRank>(transport, true);
  REQUIRE_THROWS_AS(rank->messages.check_health(), PeerLostError);
  const auto start = Clock::now();
  rank.reset();
  CHECK(Clock::now() - start < std::chrono::milliseconds(1500));  // 2 s wait for those under way
}

TEST_CASE("what is on its way into the device's memory is looked at often, whoever is woken") {
  SilentTransport transport;
  {
    OneRank rank(transport, true);
    rank.messages.check_health();
  }
  CHECK(transport.longest_wait_with_landing > Duration());
  CHECK(transport.longest_wait_with_landing <= 1_ms);
  CHECK_FALSE(transport.was_armed_with_landing);
}

TEST_CASE("a piece of the next turn may come while that of this one lands in the device's memory") {
  HastyTransport transport;
  {
    OneRank rank(transport, true);
    CHECK_NOTHROW(rank.messages.check_health());
  }
  CHECK(transport.has_landed);
}

TEST_CASE("a transport learns of the device's memory once") {
  SilentTransport transport;
  const DeviceBuffer<std::byte> memory(64);
  HostMessages messages(transport, {.is_direct = true});
  messages.learn(memory.span());
  messages.learn(memory.span());
  messages.learn(memory.span().first(16));
  CHECK(transport.learnt == std::vector<std::size_t>{64});
  HostMessages staged(transport, {.is_direct = false});
  staged.learn(memory.span());
  CHECK(transport.learnt.size() == 1);
}

}  // namespace
}  // namespace rackrail::runtime::host_messages_test

// What every transport must do, whatever the wire is.
#include "runtime/transport.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>

#include "runtime/missed_peer.hpp"
#include "tests/support/rank_threads.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::runtime::transport_test {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

using Transports = std::vector<std::unique_ptr<Transport>>;

std::vector<std::string> all_kinds() {
  std::vector<std::string> names;
  for (const TransportKind& kind : transport_kinds()) {
    names.push_back(kind.name);
  }
  return names;
}

/// Why a kind cannot be used here, if so.
std::optional<std::string> unavailable(const std::string& name) {
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == name && kind.unavailable) {
      return name + ": " + *kind.unavailable;
    }
  }
  return std::nullopt;
}

void progress_until(Transport& transport, const std::function<bool()>& is_done) {
  const auto end = Clock::now() + 20s;
  while (!is_done()) {
    if (Clock::now() > end) {
      throw std::runtime_error("nothing happened for too long");
    }
    if (transport.progress() == 0) {
      transport.wait(1_ms);
    }
  }
}

std::vector<std::byte> payload_of(Rank source, std::uint32_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 31 + number * 7 + source.value()) & 0xffU);
  }
  return bytes;
}

SliceHeader header_of(Rank source, std::uint32_t number, std::size_t size) {
  return {.plan = 0x0123456789abcdefULL ^ source.value(),
          .epoch = 5,
          .step = number,
          .bucket = number + 1,
          .transfer = number + 2,
          .slice = number + 3,
          .bytes = static_cast<std::uint32_t>(size)};
}

bool same(const SliceHeader& a, const SliceHeader& b) {
  return a.plan == b.plan && a.epoch == b.epoch && a.step == b.step && a.bucket == b.bucket &&
         a.transfer == b.transfer && a.slice == b.slice && a.bytes == b.bytes;
}

void close_all(Transports& transports) {
  on_every_rank(transports.size(), [&](Rank rank) { transports[rank.index()]->close(1_s); });
}

TEST_CASE("transport: messages of all sizes arrive once, whole and in order") {
  const std::string name = GENERATE(from_range(all_kinds()));
  const std::size_t ranks = GENERATE(2U, 3U, 4U);
  CAPTURE(name, ranks);
  if (const auto reason = unavailable(name)) {
    RACKRAIL_SKIP(*reason);
  }
  Transports transports = joined_transports(name, ranks);
  const std::vector<std::size_t> sizes = {0, 4, 1 << 10, 1 << 16, 0, 1 << 20, 4, 8 << 20, 4};
  on_every_rank(ranks, [&](Rank self) {
    Transport& transport = *transports[self.index()];
    std::vector<std::uint32_t> arrived(ranks, 0);
    std::string wrong;
    transport.set_handlers(
        [&](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
          const std::uint32_t number = arrived[source.index()]++;
          if (number >= sizes.size() || payload.size() != sizes[number] ||
              !same(header, header_of(source, number, sizes[number])) ||
              !std::ranges::equal(payload, payload_of(source, number, sizes[number]))) {
            wrong = "message " + std::to_string(number) + " of " + std::to_string(source.value());
          }
        },
        [&](Rank peer, const std::string& why) {
          wrong = "lost " + std::to_string(peer.value()) + ": " + why;
        });
    std::vector<int> completions(ranks * sizes.size(), 0);
    std::vector<std::vector<std::byte>> payloads;
    payloads.reserve(completions.size());
    for (std::uint32_t number = 0; number < sizes.size(); ++number) {
      for (std::size_t peer = 0; peer < ranks; ++peer) {
        if (Rank(peer) == self) {
          continue;
        }
        auto& payload = payloads.emplace_back(payload_of(self, number, sizes[number]));
        int& completed = completions[number * ranks + peer];
        transport.send(Rank(peer), header_of(self, number, sizes[number]), payload,
                       [&completed, &payload] {
                         ++completed;
                         // It is the sender's again: to change it must harm nobody.
                         std::fill(payload.begin(), payload.end(), std::byte{0xee});
                       });
      }
    }
    progress_until(transport, [&] {
      return !wrong.empty() ||
             (std::accumulate(arrived.begin(), arrived.end(), 0U) == (ranks - 1) * sizes.size() &&
              std::accumulate(completions.begin(), completions.end(), 0) ==
                  static_cast<int>((ranks - 1) * sizes.size()));
    });
    if (!wrong.empty()) {
      throw std::runtime_error("wrong: " + wrong);
    }
    if (*std::max_element(completions.begin(), completions.end()) != 1) {
      throw std::runtime_error("a completion came twice");
    }
    transport.set_handlers({}, {});
  });
  close_all(transports);
}

TEST_CASE("transport: wake() from another thread ends a wait") {
  const std::string name = GENERATE(from_range(all_kinds()));
  CAPTURE(name);
  if (const auto reason = unavailable(name)) {
    RACKRAIL_SKIP(*reason);
  }
  Transports transports = joined_transports(name, 2);
  while (transports[0]->progress() + transports[1]->progress() != 0) {
  }
  std::atomic<bool> is_over = false;
  std::thread waiter([&] {
    while (!is_over) {
      transports[0]->wait(Duration(30'000'000'000'000));  // 30 s
    }
  });
  const auto start = Clock::now();
  std::this_thread::sleep_for(20ms);
  is_over = true;
  transports[0]->wake();
  waiter.join();
  CHECK(Clock::now() - start < 5s);
  close_all(transports);
}

TEST_CASE("transport: one that closes is reported once, after its last message") {
  const std::string name = GENERATE(from_range(all_kinds()));
  CAPTURE(name);
  if (const auto reason = unavailable(name)) {
    RACKRAIL_SKIP(*reason);
  }
  Transports transports = joined_transports(name, 3);
  std::atomic<int> has_told = 0;
  on_every_rank(3, [&](Rank self) {
    Transport& transport = *transports[self.index()];
    std::vector<int> lost(3, 0);
    std::uint32_t messages = 0;
    std::uint32_t messages_when_lost = 0;
    transport.set_handlers([&](Rank /*source*/, const SliceHeader& /*header*/,
                               std::span<const std::byte> /*payload*/) { ++messages; },
                           [&](Rank peer, const std::string& why) {
                             ++lost[peer.index()];
                             messages_when_lost = messages;
                             if (why.empty()) {
                               throw std::runtime_error("no reason");
                             }
                           });
    constexpr std::uint32_t kMessages = 50;
    const std::vector<std::byte> payload(10'000);
    std::uint32_t completed = 0;
    if (self == Rank(2)) {
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        for (const Rank peer : {Rank(0), Rank(1)}) {
          transport.send(peer, header_of(self, i, payload.size()), payload, [&] { ++completed; });
        }
      }
      progress_until(transport, [&] { return completed == 2 * kMessages; });
      transport.close(Duration(5'000'000'000'000));
      return;
    }
    progress_until(transport, [&] { return lost[2] != 0; });
    if (messages_when_lost != kMessages) {
      throw std::runtime_error("it was reported before its last message");
    }
    // A send to it is complete all the same, and it is not reported again.
    transport.send(Rank(2), header_of(self, 0, payload.size()), payload, [&] { ++completed; });
    progress_until(transport, [&] { return completed == 1; });
    for (int i = 0; i < 20; ++i) {
      transport.progress();
      transport.wait(1_ms);
    }
    if (lost != std::vector<int>{0, 0, 1}) {
      throw std::runtime_error("peers were reported lost wrongly");
    }
    ++has_told;
    progress_until(transport, [&] { return has_told == 2; });
    transport.set_handlers({}, {});
  });
  CHECK(has_told == 2);
  transports.pop_back();
  close_all(transports);
}

TEST_CASE(
    "transport: what a stranger sends is dropped, and a malformed message is its sender's end",
    "[slow]") {
  if (const auto reason = unavailable("ucx")) {
    RACKRAIL_SKIP(*reason);
  }
  // All claim to be rank 1; the stranger knows where rank 0 is, but not who else is in the job, and
  // the thief knows all addresses, but not the job's key.
  auto self = make_transport("ucx");
  auto peer = make_transport("ucx");
  auto stranger = make_transport("ucx");
  auto thief = make_transport("ucx");
  const std::vector<std::vector<std::byte>> job = {self->address(), peer->address()};
  const std::vector<std::vector<std::byte>> other = {self->address(), stranger->address()};
  constexpr std::uint64_t kKey = 0x0123456789abcdef;
  for (auto* const each : {self.get(), peer.get(), stranger.get()}) {
    each->set_key(kKey);
  }
  self->connect(Rank(0), job);
  peer->connect(Rank(1), job);
  stranger->connect(Rank(1), other);
  thief->connect(Rank(1), job);
  std::vector<std::size_t> received;
  std::vector<std::string> lost;
  self->set_handlers(
      [&](Rank /*source*/, const SliceHeader& /*header*/, std::span<const std::byte> payload) {
        received.push_back(payload.size());
      },
      [&](Rank rank, const std::string& why) {
        lost.push_back(std::to_string(rank.value()) + ": " + why);
      });
  const std::vector<std::byte> payload(1000);
  const auto send = [&](Transport& from, std::uint32_t says) {
    bool is_sent = false;
    SliceHeader header = header_of(Rank(1), 0, payload.size());
    header.bytes = says;
    from.send(Rank(0), header, payload, [&] { is_sent = true; });
    progress_until(from, [&] {
      self->progress();
      return is_sent;
    });
  };
  send(*stranger, 1000);
  send(*stranger, 0xffffffff);
  send(*thief, 1000);
  send(*thief, 0xffffffff);
  send(*peer, 1000);
  progress_until(*self, [&] {
    peer->progress();
    stranger->progress();
    thief->progress();
    return !received.empty();
  });
  stranger->close(Duration(5'000'000'000'000));  // with a good-bye
  thief->close(Duration(5'000'000'000'000));
  send(*peer, 1000);
  progress_until(*self, [&] {
    peer->progress();
    return received.size() == 2;
  });
  CHECK(lost.empty());
  send(*peer, 0xffffffff);  // more than came
  progress_until(*self, [&] {
    peer->progress();
    return !lost.empty();
  });
  CHECK(lost == std::vector<std::string>{"1: it sent a malformed message"});
  CHECK(received == std::vector<std::size_t>(2, 1000));
  self->set_handlers({}, {});
  self->close(Duration());
  peer->close(Duration());
}

/// While it lives, adapters of plans are these devices here.
class AdaptersAre {
 public:
  explicit AdaptersAre(const char* map) { setenv("RACKRAIL_ADAPTERS", map, 1); }
  ~AdaptersAre() { unsetenv("RACKRAIL_ADAPTERS"); }
  AdaptersAre(const AdaptersAre&) = delete;
  AdaptersAre& operator=(const AdaptersAre&) = delete;
};

/// Of rank `self` of two, with two adapters each: the same number meets the same, and rank 0's
/// second the first of rank 1.
std::vector<Rail> three_rails(Rank self) {
  const bool is_first = self == Rank(0);
  const Rank peer(is_first ? 1 : 0);
  return {{peer, 1, "nic0", "", "nic0"},
          {peer, 2, is_first ? "nic1" : "nic0", "", is_first ? "nic0" : "nic1"},
          {peer, 3, "nic1", "", "nic1"}};
}

/// Why the loopback cannot be an adapter here, if so.
std::optional<std::string> no_loopback() {
  if (auto reason = unavailable("ucx")) {
    return reason;
  }
  for (const TransportKind& kind : transport_kinds()) {
    if (kind.name == "ucx" && kind.detail.find("/lo") == std::string::npos) {
      return "UCX sees no loopback here: " + kind.detail;
    }
  }
  return std::nullopt;
}

TEST_CASE(
    "transport: messages of a rail arrive in order, and a peer is gone after all of its rails") {
  if (const auto reason = no_loopback()) {
    RACKRAIL_SKIP(*reason);
  }
  const AdaptersAre adapters("nic0=lo,nic1=lo");
  Transports transports = joined_transports("ucx", 2);
  constexpr std::uint32_t kMessages = 40;
  constexpr std::size_t kLarge = 1 << 20;
  std::atomic<bool> is_told = false;
  on_every_rank(2, [&](Rank self) {
    Transport& transport = *transports[self.index()];
    std::vector<std::uint32_t> arrived(4, 0);
    std::optional<std::vector<std::uint32_t>> arrived_when_lost;
    std::string wrong;
    transport.set_handlers(
        [&](Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
          // Of the large ones the first bytes: who looks at all of them is never idle, and would
          // not find out too early that the peer has gone.
          const auto begin = payload.first(std::min<std::size_t>(payload.size(), 100));
          if (header.rail > 3 || header.step != arrived[header.rail]++ ||
              !std::ranges::equal(begin, payload_of(source, header.step, begin.size()))) {
            wrong = "message " + std::to_string(header.step) + " of rail " +
                    std::to_string(header.rail);
          }
        },
        [&](Rank /*peer*/, const std::string& /*why*/) { arrived_when_lost = arrived; });
    if (!transport.use_rails(three_rails(self)).empty()) {
      throw std::runtime_error("there is something to say of the loopback");
    }
    // Rank 1 sends, and goes as soon as it has; the rails have different amounts to carry.
    if (self == Rank(1)) {
      std::vector<std::vector<std::byte>> payloads;
      std::uint32_t completed = 0;
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        payloads.push_back(payload_of(self, i, kLarge));
      }
      for (std::uint32_t i = 0; i < kMessages; ++i) {
        for (std::uint32_t rail = 0; rail < 4; ++rail) {
          SliceHeader header = header_of(self, i, 0);
          const std::span<const std::byte> payload =
              std::span(payloads[i]).first(rail == 3 ? kLarge : 100);
          header.bytes = static_cast<std::uint32_t>(payload.size());
          header.rail = rail;
          transport.send(Rank(0), header, payload, [&] { ++completed; });
        }
      }
      // Its goodbye without a rail is there long before what the last rail carries.
      progress_until(transport, [&] { return completed >= 3 * kMessages; });
      transport.close(Duration(20'000'000'000'000));
      return;
    }
    progress_until(transport, [&] { return arrived_when_lost.has_value() || !wrong.empty(); });
    if (!wrong.empty() || arrived_when_lost != std::vector<std::uint32_t>(4, kMessages)) {
      throw std::runtime_error("wrong or too few: " + wrong);
    }
    is_told = true;
    transport.set_handlers({}, {});
  });
  CHECK(is_told);
  transports.pop_back();
  close_all(transports);
}

TEST_CASE("transport: what one end cannot tell of the rails goes as before, and one line says so") {
  if (const auto reason = no_loopback()) {
    RACKRAIL_SKIP(*reason);
  }
  // nic1 is nothing that is there.
  const AdaptersAre adapters("nic0=lo,nic7=lo");
  Transports transports = joined_transports("ucx", 2);
  std::array<std::vector<std::string>, 2> notes;
  on_every_rank(2, [&](Rank self) {
    Transport& transport = *transports[self.index()];
    std::vector<int> arrived(4, 0);
    std::string lost;
    transport.set_handlers(
        [&](Rank /*source*/, const SliceHeader& header, std::span<const std::byte> /*payload*/) {
          ++arrived.at(header.rail);
        },
        [&](Rank /*peer*/, const std::string& why) { lost = why; });
    notes[self.index()] = transport.use_rails(three_rails(self));
    int completed = 0;
    for (std::uint32_t rail = 0; rail < 4; ++rail) {
      SliceHeader header = header_of(self, 0, 0);
      header.rail = rail;
      transport.send(Rank(1 - self.value()), header, {}, [&] { ++completed; });
    }
    progress_until(transport, [&] {
      return (completed == 4 && arrived == std::vector<int>(4, 1)) || !lost.empty();
    });
    if (!lost.empty()) {
      throw std::runtime_error(lost);
    }
    transport.set_handlers({}, {});
  });
  for (const std::vector<std::string>& lines : notes) {
    REQUIRE(lines.size() == 1);
    CHECK_THAT(lines[0], Catch::Contains("nic1") && Catch::Contains("RACKRAIL_ADAPTERS") &&
                             Catch::Contains("lo") && !Catch::Contains("nic0"));
  }
  close_all(transports);
}

TEST_CASE("transport: a device that the user names and that is not there is one more line") {
  if (const auto reason = no_loopback()) {
    RACKRAIL_SKIP(*reason);
  }
  const AdaptersAre adapters("nic0=lo,nic1=no-such-device");
  Transports transports = joined_transports("ucx", 2);
  const std::vector<std::string> notes = transports[0]->use_rails(three_rails(Rank(0)));
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], Catch::Contains("nic1 (") && Catch::Contains("no-such-device"));
  close_all(transports);
}

TEST_CASE(
    "transport: sends that a peer never takes end with the transport, whose memory they use") {
  const std::string name = GENERATE(from_range(all_kinds()));
  CAPTURE(name);
  if (const auto why = unavailable(name)) {
    RACKRAIL_SKIP(*why);
  }
  constexpr int kSends = 400;
  const std::vector<std::byte> payload = payload_of(Rank(0), 0, 64 << 10);
  int completed = 0;
  Transports transports = joined_transports(name, 2);
  for (int i = 0; i < kSends; ++i) {
    transports[0]->send(Rank(1), header_of(Rank(0), 0, payload.size()), payload,
                        [&completed] { ++completed; });
  }
  transports[0].reset();
  CHECK(completed == kSends);
  transports[1]->close(10_ms);
}

TEST_CASE("transport: those who cannot be reached are all named") {
  if (const auto reason = unavailable("ucx")) {
    RACKRAIL_SKIP(*reason);
  }
  const auto self = make_transport("ucx");
  const auto peer = make_transport("ucx");
  try {
    std::vector<std::byte> damaged = peer->address();
    damaged.back() ^= std::byte{1};
    self->connect(Rank(1), std::vector<std::vector<std::byte>>{
                               {}, self->address(), peer->address(), damaged});
    FAIL("nobody was missed");
  } catch (const MissedPeerError& error) {
    CHECK(error.peer().rank == Rank(0));
    CHECK_FALSE(error.peer().why.empty());
    REQUIRE(error.others().size() == 1);
    CHECK(error.others()[0].rank == Rank(3));
  }
}

TEST_CASE("transport: what a handler throws comes out of progress(), which goes on afterwards") {
  const std::string name = GENERATE(from_range(all_kinds()));
  CAPTURE(name);
  if (const auto reason = unavailable(name)) {
    RACKRAIL_SKIP(*reason);
  }
  Transports transports = joined_transports(name, 2);
  int received = 0;
  transports[1]->set_handlers(
      [&](Rank /*source*/, const SliceHeader& /*header*/, std::span<const std::byte> /*payload*/) {
        if (++received == 1) {
          throw std::domain_error("the first is refused");
        }
      },
      {});
  const auto send = [&](std::uint32_t number) {
    bool is_complete = false;
    const std::vector<std::byte> payload(100);
    transports[0]->send(Rank(1), header_of(Rank(0), number, payload.size()), payload,
                        [&] { is_complete = true; });
    bool has_thrown = false;
    const int before = received;
    const auto end = Clock::now() + 10s;
    while ((received == before || !is_complete) && Clock::now() < end) {
      transports[0]->progress();
      try {
        transports[1]->progress();
      } catch (const std::domain_error&) {
        has_thrown = true;
      }
    }
    return has_thrown;
  };
  CHECK(send(0));
  CHECK_FALSE(send(1));
  CHECK(received == 2);
  close_all(transports);
}

}  // namespace
}  // namespace rackrail::runtime::transport_test

// Two processes with a transport between them and nothing else: what scripts/measure-transport
// holds against ucx_perftest.
//
//   transport_peer <folder> <rank> bandwidth|latency <bytes> <messages> <window> [<warm-up>]
//
// Both ranks (0 and 1) are started with the same words but for the rank, and find each other
// through files in the folder. They move messages as an executor does: progress(), and wait() when
// nothing happened. Rank 0 prints one number:
//   bandwidth   MB/s (10⁶) of `messages` messages to rank 1, at most `window` of them in flight,
//               from the first send until rank 1's answer that all have come
//   latency     µs from one process to the other: half a message there and back
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "runtime/short_spin.hpp"
#include "runtime/time_slice.hpp"
#include "runtime/transport.hpp"

namespace {

using namespace rackrail;
using namespace rackrail::runtime;
using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(120);

struct Options {
  std::filesystem::path folder;
  Rank self;
  bool is_latency = false;
  std::size_t bytes = 0;
  std::size_t messages = 0;
  std::size_t window = 1;
  std::size_t warm_up = 0;
};

std::vector<std::byte> exchange_address(const Options& options, const Transport& transport) {
  const auto name = [&](std::uint32_t rank) {
    return options.folder / ("address-" + std::to_string(rank));
  };
  const std::vector<std::byte> own = transport.address();
  write_file_atomically(name(options.self.value()),
                        {reinterpret_cast<const char*>(own.data()), own.size()});
  const std::filesystem::path other = name(1 - options.self.value());
  const auto end = Clock::now() + kPatience;
  while (!std::filesystem::exists(other)) {
    if (Clock::now() > end) {
      throw RuntimeFailure("the other process did not come");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::string text = read_file(other);
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

class Peer {
 public:
  explicit Peer(const Options& options)
      : options_(options),
        other_(1 - options.self.value()),
        transport_(make_transport("ucx")),
        payload_(options.bytes, std::byte{1}) {
    std::vector<std::vector<std::byte>> addresses(2);
    addresses[options.self.index()] = transport_->address();
    addresses[other_.index()] = exchange_address(options, *transport_);
    transport_->set_handlers(
        [this](Rank, const SliceHeader&, std::span<const std::byte>) { ++received_; },
        [this](Rank, const std::string& why) { lost_ = why; });
    transport_->connect(options.self, addresses);
  }

  /// What rank 0 prints.
  double run() {
    take_short_time_slices();  // as an executor's thread
    take_larger_share();
    if (options_.self == Rank(0)) {
      options_.is_latency ? ping(options_.warm_up) : stream(options_.warm_up);
      const Clock::time_point start = Clock::now();
      options_.is_latency ? ping(options_.messages) : stream(options_.messages);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const auto messages = static_cast<double>(options_.messages);
      send_one({});  // the other may go
      wait_until([this] { return in_flight_ == 0; });
      transport_->close(1_s);
      return options_.is_latency ? seconds / messages / 2 * 1e6
                                 : messages * static_cast<double>(options_.bytes) / seconds / 1e6;
    }
    options_.is_latency ? pong(options_.warm_up) : take(options_.warm_up);
    options_.is_latency ? pong(options_.messages) : take(options_.messages);
    receive(1);
    transport_->close(1_s);
    return 0;
  }

 private:
  template <typename Condition>
  void wait_until(Condition is_done) {
    const auto end = Clock::now() + kPatience;
    while (!is_done()) {
      const ShortSpin::Clock::time_point start = ShortSpin::Clock::now();
      if (transport_->progress() != 0) {
        spin_.happened(start);
      } else {
        transport_->wait(50_ms, spin_);
      }
      if (!lost_.empty() && !is_done()) {
        throw RuntimeFailure("the other process was lost: " + lost_);
      }
      if (Clock::now() > end) {
        throw RuntimeFailure("nothing comes any more");
      }
    }
  }

  void receive(std::size_t count) {
    awaited_ += count;
    wait_until([this] { return received_ >= awaited_; });
  }

  void send_one(std::span<const std::byte> payload) {
    SliceHeader header;
    header.bytes = static_cast<std::uint32_t>(payload.size());
    ++in_flight_;
    transport_->send(other_, header, payload, [this] { --in_flight_; });
  }

  void stream(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      wait_until([this] { return in_flight_ < options_.window; });
      send_one(payload_);
    }
    receive(1);
  }
  void take(std::size_t count) {
    receive(count);
    send_one({});
  }

  void ping(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      send_one(payload_);
      receive(1);
    }
  }
  void pong(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      receive(1);
      send_one(payload_);
    }
  }

  const Options options_;
  const Rank other_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::byte> payload_;
  ShortSpin spin_;
  std::size_t received_ = 0;
  std::size_t awaited_ = 0;
  std::size_t in_flight_ = 0;
  std::string lost_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7 || argc > 8) {
    std::cerr << "transport_peer <folder> <rank> bandwidth|latency <bytes> <messages> <window>"
                 " [<warm-up>]\n";
    return 2;
  }
  try {
    Options options;
    options.folder = argv[1];
    options.self = Rank(static_cast<std::uint32_t>(std::stoul(argv[2])));
    options.is_latency = std::string(argv[3]) == "latency";
    options.bytes = std::stoull(argv[4]);
    options.messages = std::stoull(argv[5]);
    options.window = std::stoull(argv[6]);
    options.warm_up = argc > 7 ? std::stoull(argv[7]) : 0;
    const double result = Peer(options).run();
    if (options.self == Rank(0)) {
      std::cout << result << std::endl;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "transport_peer: " << error.what() << '\n';
    return 1;
  }
}

// Ranks as threads of one process: every rank has a mailbox, and a send copies into the mailbox of
// its destination. For tests, and for trying a plan without any network.
//
// A rank that closes is reported to the others after everything that it had sent, as a socket
// would.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "runtime/transports/factories.hpp"

namespace rackrail::runtime {
namespace {

struct Delivery {
  Rank source;
  bool closed = false;  ///< the source has gone; nothing else is set
  SliceHeader header;
  std::vector<std::byte> payload;
};

class Mailbox {
 public:
  /// False when the owner has closed. `payload` is copied into memory of earlier deliveries.
  bool put(Rank source, const SliceHeader& header, std::span<const std::byte> payload) {
    std::vector<std::byte> copy;
    {
      const std::lock_guard lock(mutex_);
      if (closed_) {
        return false;
      }
      if (!spare_.empty()) {
        copy = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    copy.assign(payload.begin(), payload.end());
    push({.source = source, .closed = false, .header = header, .payload = std::move(copy)});
    return true;
  }

  void put_end(Rank source) {
    push({.source = source, .closed = true, .header = {}, .payload = {}});
  }

  /// All deliveries so far, into an empty `deliveries`.
  void take(std::deque<Delivery>& deliveries) {
    const std::lock_guard lock(mutex_);
    deliveries.swap(deliveries_);
    woken_ = false;
  }

  void give_back(std::vector<std::byte> memory) {
    constexpr std::size_t kMostSpare = 64;
    const std::lock_guard lock(mutex_);
    if (spare_.size() < kMostSpare) {
      spare_.push_back(std::move(memory));
    }
  }

  void wait(Duration at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(at_most.picoseconds() / 1000),
                      [this] { return woken_ || !deliveries_.empty(); });
    woken_ = false;
  }

  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    changed_.notify_all();
  }

  /// Returns whether this call closed it.
  bool close() {
    const std::lock_guard lock(mutex_);
    deliveries_.clear();
    return !std::exchange(closed_, true);
  }

 private:
  void push(Delivery delivery) {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      deliveries_.push_back(std::move(delivery));
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Delivery> deliveries_;
  std::vector<std::vector<std::byte>> spare_;
  bool woken_ = false;
  bool closed_ = false;
};

/// Shared by the ranks; outlives each of them.
using Hub = std::vector<Mailbox>;

class InProcessTransport final : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Hub> hub, Rank self) : hub_(std::move(hub)), self_(self) {}
  ~InProcessTransport() override { leave(); }

  std::string_view name() const override { return "in-process"; }

  std::vector<std::byte> address() const override {
    return std::vector<std::byte>(1, static_cast<std::byte>(self_.value()));
  }

  void set_key(std::uint64_t /*key*/) override {}  // no stranger is in this process
  void connect(Rank self, std::span<const std::vector<std::byte>> addresses) override {
    if (self != self_ || addresses.size() != hub_->size()) {
      throw RuntimeFailure("transport in-process: rank " + std::to_string(self.value()) + " of " +
                           std::to_string(addresses.size()) + " instead of rank " +
                           std::to_string(self_.value()) + " of " + std::to_string(hub_->size()));
    }
  }

  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    on_receive_ = std::move(on_receive);
    on_peer_error_ = std::move(on_peer_error);
  }

  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
            SendCompletion done) override {
    if (!(*hub_)[destination.index()].put(self_, header, payload)) {
      lost_.push_back(destination);
    }
    done();
  }

  std::size_t progress() override {
    std::size_t events = 0;
    own().take(taken_);
    for (Delivery& delivery : taken_) {
      ++events;
      if (delivery.closed) {
        lost_.push_back(delivery.source);
        continue;
      }
      if (on_receive_) {
        on_receive_(delivery.source, delivery.header, delivery.payload);
      }
      own().give_back(std::move(delivery.payload));
    }
    taken_.clear();
    for (const Rank peer : std::exchange(lost_, {})) {
      ++events;
      report(peer);
    }
    return events;
  }

  bool arm() override { return lost_.empty(); }

  void sleep(Duration at_most) override { own().wait(at_most); }

  void wake() override { own().wake(); }

  void close(Duration /*deadline*/) noexcept override { leave(); }

 private:
  Mailbox& own() { return (*hub_)[self_.index()]; }

  void leave() noexcept {
    if (!own().close()) {
      return;
    }
    for (std::size_t rank = 0; rank < hub_->size(); ++rank) {
      if (Rank(rank) != self_) {
        (*hub_)[rank].put_end(self_);
      }
    }
  }

  void report(Rank peer) {
    reported_.resize(hub_->size());
    if (!std::exchange(reported_[peer.index()], true) && on_peer_error_) {
      on_peer_error_(peer, "it closed its connections");
    }
  }

  std::shared_ptr<Hub> hub_;
  Rank self_;
  ReceiveHandler on_receive_;
  PeerErrorHandler on_peer_error_;
  std::deque<Delivery> taken_;
  std::vector<Rank> lost_;  ///< to be reported by progress()
  std::vector<char> reported_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(std::size_t ranks) {
  const auto hub = std::make_shared<Hub>(ranks);
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    transports.push_back(std::make_unique<InProcessTransport>(hub, Rank(rank)));
  }
  return transports;
}

TransportKind in_process_kind() {
  return {.name = "in-process",
          .unavailable = {},
          .detail = "ranks are threads of one process: for tests, train does not take it"};
}

std::unique_ptr<Transport> make_in_process_transport() {
  throw RuntimeFailure("transport in-process: it joins the threads of one process only");
}

}  // namespace rackrail::runtime

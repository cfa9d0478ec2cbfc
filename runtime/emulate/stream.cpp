#include "runtime/emulate/stream.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace rackrail::runtime::emulate {
namespace {

constexpr std::size_t kChunk = 256 << 10;
constexpr int kLookEveryMs = 20;
// The kernel may take a second to tell a bridge that a port is up, and a lost SYN one to be
// repeated.
constexpr std::chrono::seconds kConnectPatience(10);

class Socket {
 public:
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

[[noreturn]] void fail(const std::string& address, const char* what, int error) {
  throw RuntimeFailure(fmt::format("measuring the link to {}: {}: {}", address, what,
                                   error == 0 ? "nobody answers" : std::strerror(error)));
}

int open_socket(const NetworkNamespace& network, const std::string& address) {
  const InNamespace inside(network);
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) {
    fail(address, "no socket", errno);
  }
  return descriptor;
}

bool wait_for(int descriptor, short events, int milliseconds) {
  pollfd waiting{.fd = descriptor, .events = events, .revents = 0};
  return poll(&waiting, 1, milliseconds) > 0;
}

/// Unlike poll, not ended by a signal.
bool wait_for_connection(int listener) {
  const auto deadline = Stream::Clock::now() + kConnectPatience;
  while (Stream::Clock::now() < deadline) {
    if (wait_for(listener, POLLIN, kLookEveryMs)) {
      return true;
    }
  }
  return false;
}

}  // namespace

Stream::Stream(const NetworkNamespace& from, const NetworkNamespace& to,
               const std::string& address) {
  const Socket listener(open_socket(to, address));
  Socket sender(open_socket(from, address));
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &place.sin_addr);
  socklen_t size = sizeof place;
  auto* const generic = reinterpret_cast<sockaddr*>(&place);
  if (bind(listener.get(), generic, size) != 0 || listen(listener.get(), 1) != 0 ||
      getsockname(listener.get(), generic, &size) != 0) {
    fail(address, "listening", errno);
  }
  if (connect(sender.get(), generic, size) != 0 && errno != EINPROGRESS) {
    fail(address, "connecting", errno);
  }
  if (!wait_for_connection(listener.get())) {
    fail(address, "connecting", 0);
  }
  receiver_ = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (receiver_ < 0) {
    fail(address, "accepting", errno);
  }
  sender_ = sender.release();
}

Stream::~Stream() {
  // What is still in the queues shall not disturb the next measurement: a reset drops it.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  for (const int descriptor : {sender_, receiver_}) {
    setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(descriptor);
  }
}

void Stream::send_until(Clock::time_point end) noexcept {
  static const std::array<char, kChunk> kNothing{};
  while (Clock::now() < end) {
    if (send(sender_, kNothing.data(), kNothing.size(), MSG_NOSIGNAL) < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        return;  // the other side sees that less arrived
      }
      wait_for(sender_, POLLOUT, kLookEveryMs);
    }
  }
}

Bandwidth Stream::measure_until(Clock::time_point begin, Clock::time_point end) noexcept {
  // MSG_TRUNC: TCP drops the bytes without copying them; sanitizers take them for written all the
  // same.
  std::array<char, kChunk> unused;
  Clock::time_point first;
  Clock::time_point last;
  std::int64_t bytes = 0;  // after the first arrival
  bool has_begun = false;
  while (true) {
    const ssize_t count = recv(receiver_, unused.data(), unused.size(), MSG_TRUNC);
    const Clock::time_point now = Clock::now();
    if (now >= end || count == 0) {
      break;
    }
    if (count < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        break;
      }
      wait_for(receiver_, POLLIN, kLookEveryMs);
      continue;
    }
    if (now >= begin) {
      bytes += has_begun ? count : 0;
      (has_begun ? last : first) = now;
      has_begun = true;
    }
  }
  const double seconds = std::chrono::duration<double>(last - first).count();
  return bytes > 0 && seconds > 0
             ? Bandwidth(static_cast<std::int64_t>(static_cast<double>(bytes) / seconds))
             : Bandwidth();
}

}  // namespace rackrail::runtime::emulate

// Slices as UCP active messages: over shared memory, TCP and RDMA, whatever UCX finds.
//
// Every message is sent eagerly, so messages of one sender arrive in order and whole, the payload
// is there when the handler runs, and none waits for a rendezvous that a dead peer never finishes.
// Endpoints to all peers are made by connect() in UCX's mode for peer failure, and a hello over
// each of them lets both sides notice when the other one dies, even if they never send a slice. One
// that closes says goodbye.
//
// Memory of a GPU, where UCX was built with CUDA (device_memory.hpp): a payload there is sent in
// the same way, UCX being told whose memory it is, and reads it by GPUDirect or by way of buffers
// of its own. What arrives is in UCX's memory first, eager as it is, and UCX copies it to its
// landing.
//
// Nothing that arrives is believed: a message counts only if it carries this job's session number
// (a hash of all addresses), a known rank other than this one, and the size that it says. A peer
// whose messages are malformed is reported as failed; a stranger's are dropped.
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/transports/factories.hpp"
#include "runtime/ucx/context.hpp"
#include "runtime/ucx/device_memory.hpp"

namespace rackrail::runtime {
namespace {

constexpr unsigned kSliceMessage = 0;
constexpr unsigned kHelloMessage = 1;
constexpr unsigned kGoodbyeMessage = 2;

struct WireHeader {
  std::uint64_t session = 0;
  std::uint32_t source = 0;
  std::uint32_t reserved = 0;
  SliceHeader slice;
};
static_assert(std::is_trivially_copyable_v<WireHeader> && sizeof(WireHeader) == 56);

/// The same on all ranks, and different for every job: addresses contain process and socket
/// numbers.
std::uint64_t session_of(std::span<const std::vector<std::byte>> addresses) {
  std::uint64_t hash = addresses.size();
  for (const std::vector<std::byte>& address : addresses) {
    hash = mix64(hash ^ address.size());
    for (const std::byte byte : address) {
      hash = mix64(hash ^ static_cast<std::uint64_t>(byte));
    }
  }
  return hash;
}

using Clock = std::chrono::steady_clock;

class UcxTransport final : public Transport, public DeviceMessaging {
 public:
  UcxTransport()
      : context_(open_ucx_context()),
        worker_(open_ucx_worker(context_)),
        device_memory_(ucx_device_memory(context_)) {
    waiter_.emplace(worker_);
    set_message_handler(kSliceMessage, on_slice);
    set_message_handler(kHelloMessage, on_hello);
    set_message_handler(kGoodbyeMessage, on_goodbye);
  }

  ~UcxTransport() override { close(Duration()); }

  std::string_view name() const override { return "ucx"; }

  std::vector<std::byte> address() const override {
    ucp_address_t* address = nullptr;
    std::size_t length = 0;
    check_ucx(ucp_worker_get_address(worker_.get(), &address, &length), "asking for its address");
    const auto* bytes = reinterpret_cast<const std::byte*>(address);
    std::vector<std::byte> copy(bytes, bytes + length);
    ucp_worker_release_address(worker_.get(), address);
    return copy;
  }

  void connect(Rank self, std::span<const std::vector<std::byte>> addresses) override {
    if (!peers_.empty() || closed_) {
      throw RuntimeFailure("transport ucx: connected a second time");
    }
    if (self.index() >= addresses.size()) {
      throw RuntimeFailure("transport ucx: rank " + std::to_string(self.value()) + " among " +
                           std::to_string(addresses.size()) + " addresses");
    }
    self_ = self;
    session_ = session_of(addresses);
    std::vector<MissedPeer> missed;
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      Peer& peer = peers_.emplace_back();
      peer.transport = this;
      peer.rank = Rank(rank);
      if (peer.rank == self_) {
        continue;
      }
      if (const ucs_status_t status = open_endpoint(peer, addresses[rank]); status != UCS_OK) {
        missed.push_back({.rank = peer.rank, .why = ucs_status_string(status), .silence = {}});
      }
    }
    if (!missed.empty()) {
      MissedPeer first = std::move(missed.front());
      missed.erase(missed.begin());
      throw MissedPeerError(std::move(first), std::move(missed));
    }
    for (Peer& peer : peers_) {
      if (peer.rank != self_) {
        start(peer, kHelloMessage, SliceHeader{}, {}, UCS_MEMORY_TYPE_HOST, {});
      }
    }
  }

  DeviceMessaging* device_messaging() override { return device_memory_ ? this : nullptr; }

  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    on_receive_ = std::move(on_receive);
    on_peer_error_ = std::move(on_peer_error);
  }

  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
            SendCompletion done) override {
    start(peers_.at(destination.index()), kSliceMessage, header, payload, UCS_MEMORY_TYPE_HOST,
          std::move(done));
  }

  void send_from_device(Rank destination, const SliceHeader& header,
                        std::span<const std::byte> payload, SendCompletion done) override {
    start(peers_.at(destination.index()), kSliceMessage, header, payload, device_memory_.value(),
          std::move(done));
  }

  void set_landing_handler(LandingHandler handler) override {
    on_landing_ = std::move(handler);
    if (on_landing_) {  // UCX must be able to keep what has arrived until it was copied
      set_message_handler(kSliceMessage, on_slice, UCP_AM_FLAG_PERSISTENT_DATA);
    }
  }

  std::size_t progress() override {
    constexpr int kMostRounds = 64;  // then the caller has its turn
    std::size_t events = 0;
    for (int round = 0; round < kMostRounds; ++round) {
      const std::size_t count = ucp_worker_progress(worker_.get()) + land();
      events += count;
      if (count == 0) {
        // Only now, when all that had arrived before the failure is delivered.
        events += report_failures();
        break;
      }
    }
    if (thrown_) {
      std::rethrow_exception(std::exchange(thrown_, nullptr));
    }
    return events;
  }

  void wait(Duration at_most) override {
    if (failures_.empty()) {
      waiter_->wait(at_most);
    }
  }

  void wake() override { waiter_->wake(); }

  void close(Duration deadline) noexcept override {
    if (std::exchange(closed_, true)) {
      return;
    }
    on_receive_ = nullptr;
    on_peer_error_ = nullptr;
    on_landing_ = nullptr;
    for (const Arrived& each : std::exchange(arrived_, {})) {
      ucp_am_data_release(worker_.get(), each.data);
      each.landing.done(false);
    }
    const Clock::time_point end =
        Clock::now() + std::chrono::nanoseconds(deadline.picoseconds() / 1000);
    for (Peer& peer : peers_) {
      if (peer.endpoint && !peer.failed) {
        start(peer, kGoodbyeMessage, SliceHeader{}, {}, UCS_MEMORY_TYPE_HOST, {});
      }
    }
    flush(end);
    for (Peer& peer : peers_) {
      peer.endpoint.reset();
    }
    // Closing ended all sends; their completions are still to be heard.
    constexpr std::chrono::milliseconds kForCompletions(100);
    progress_until(Clock::now() + kForCompletions, [this] { return outstanding_ == 0; });
  }

 private:
  struct Peer {
    UcxTransport* transport = nullptr;
    Rank rank;
    UcpEndpoint endpoint;
    bool failed = false;
  };

  /// What must live as long as a send is under way.
  struct Send {
    Peer* peer = nullptr;
    WireHeader header;
    SendCompletion done;
  };

  /// A message that UCX keeps until it was copied to where it shall lie.
  struct Arrived {
    Peer* peer = nullptr;
    void* data = nullptr;
    Landing landing;
  };

  /// One that is being copied.
  struct Copy {
    UcxTransport* transport = nullptr;
    Peer* peer = nullptr;
    std::function<void(bool)> done;
  };

  void set_message_handler(unsigned id, ucp_am_recv_callback_t handler, std::uint32_t flags = 0) {
    ucp_am_handler_param_t parameters = {};
    parameters.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                            UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    parameters.id = id;
    parameters.flags = flags;
    parameters.cb = handler;
    parameters.arg = this;
    check_ucx(ucp_worker_set_am_recv_handler(worker_.get(), &parameters),
              "setting a message handler");
  }

  [[nodiscard]] ucs_status_t open_endpoint(Peer& peer, const std::vector<std::byte>& address) {
    if (address.empty()) {
      return UCS_ERR_INVALID_ADDR;
    }
    ucp_ep_params_t parameters = {};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    parameters.err_handler.cb = on_endpoint_error;
    parameters.err_handler.arg = &peer;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t status = ucp_ep_create(worker_.get(), &parameters, &endpoint);
    if (status == UCS_ERR_UNREACHABLE) {
      // Shared memory of a UCX that does not do as context.cpp asks it tells nobody of a lost peer.
      // The coordinator does.
      parameters.err_mode = UCP_ERR_HANDLING_MODE_NONE;
      status = ucp_ep_create(worker_.get(), &parameters, &endpoint);
    }
    if (status == UCS_OK) {
      peer.endpoint = UcpEndpoint(endpoint);
    }
    return status;
  }

  void start(Peer& peer, unsigned id, const SliceHeader& slice, std::span<const std::byte> payload,
             ucs_memory_type_t memory, SendCompletion done) {
    if (!peer.endpoint || peer.failed) {
      fail(peer, "not connected");
      if (done) {
        done();
      }
      return;
    }
    Send& send = acquire();
    send.peer = &peer;
    send.header = {.session = session_, .source = self_.value(), .reserved = 0, .slice = slice};
    send.done = std::move(done);
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.flags = UCP_AM_SEND_FLAG_EAGER;
    parameters.memory_type = memory;
    parameters.cb.send = on_sent;
    parameters.user_data = &send;
    ++outstanding_;
    const ucs_status_ptr_t status =
        ucp_am_send_nbx(peer.endpoint.get(), id, &send.header, sizeof send.header, payload.data(),
                        payload.size(), &parameters);
    if (!UCS_PTR_IS_PTR(status)) {
      finish(send, UCS_PTR_STATUS(status));
    }
  }

  /// Has UCX copy what has arrived to where it shall lie: not from its callbacks. Returns how many.
  std::size_t land() {
    const std::vector<Arrived> arrived = std::exchange(arrived_, {});
    for (const Arrived& each : arrived) {
      auto landing = std::make_unique<Copy>(Copy{this, each.peer, each.landing.done});
      ucp_request_param_t parameters = {};
      parameters.op_attr_mask =
          UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
      parameters.memory_type = device_memory_.value();
      parameters.cb.recv_am = on_landed;
      parameters.user_data = landing.get();
      ++outstanding_;
      const ucs_status_ptr_t status =
          ucp_am_recv_data_nbx(worker_.get(), each.data, each.landing.memory.data(),
                               each.landing.memory.size(), &parameters);
      if (UCS_PTR_IS_PTR(status)) {
        static_cast<void>(landing.release());  // on_landed() has it
      } else {
        finish(*landing, UCS_PTR_STATUS(status));
      }
    }
    return arrived.size();
  }

  Send& acquire() {
    if (free_sends_.empty()) {
      return sends_.emplace_back();
    }
    Send& send = *free_sends_.back();
    free_sends_.pop_back();
    return send;
  }

  void finish(Send& send, ucs_status_t status) {
    --outstanding_;
    if (status != UCS_OK) {
      fail(*send.peer, ucs_status_string(status));
    }
    const SendCompletion done = std::exchange(send.done, nullptr);
    free_sends_.push_back(&send);
    if (done) {
      done();
    }
  }

  void finish(const Copy& copy, ucs_status_t status) {
    --outstanding_;
    if (status != UCS_OK) {
      fail(*copy.peer, ucs_status_string(status));
    }
    copy.done(status == UCS_OK);
  }

  void fail(Peer& peer, const char* reason) {
    if (!std::exchange(peer.failed, true)) {
      failures_.emplace_back(peer.rank, reason);
    }
  }

  std::size_t report_failures() {
    const auto failures = std::exchange(failures_, {});
    for (const auto& [rank, reason] : failures) {
      if (on_peer_error_) {
        on_peer_error_(rank, reason);
      }
    }
    return failures.size();
  }

  /// Lets what is under way reach the peers.
  void flush(Clock::time_point end) noexcept {
    std::vector<UcpRequest> flushes;
    for (Peer& peer : peers_) {
      if (peer.endpoint && !peer.failed && Clock::now() < end) {
        ucp_request_param_t parameters = {};
        const ucs_status_ptr_t status = ucp_ep_flush_nbx(peer.endpoint.get(), &parameters);
        if (UCS_PTR_IS_PTR(status)) {
          flushes.emplace_back(status);
        }
      }
    }
    progress_until(end, [&flushes] {
      std::erase_if(flushes, [](const UcpRequest& request) {
        return ucp_request_check_status(request.get()) != UCS_INPROGRESS;
      });
      return flushes.empty();
    });
  }

  template <typename Condition>
  void progress_until(Clock::time_point end, Condition condition) noexcept {
    while (!condition() && Clock::now() < end) {
      if (ucp_worker_progress(worker_.get()) == 0) {
        waiter_->wait(1_ms);
      }
    }
  }

  /// The sender, if the message is what it claims to be.
  Peer* sender_of(const void* header, std::size_t header_length, WireHeader& copy) {
    if (header == nullptr || header_length != sizeof copy) {
      return nullptr;
    }
    __builtin_memcpy(&copy, header, sizeof copy);
    if (copy.session != session_ || copy.source >= peers_.size() || Rank(copy.source) == self_) {
      return nullptr;
    }
    return &peers_[copy.source];
  }

  static ucs_status_t on_slice(void* self, const void* header, std::size_t header_length,
                               void* data, std::size_t length,
                               const ucp_am_recv_param_t* attributes) {
    auto& transport = *static_cast<UcxTransport*>(self);
    WireHeader wire;
    Peer* peer = transport.sender_of(header, header_length, wire);
    if (peer == nullptr) {
      return UCS_OK;
    }
    if (wire.slice.bytes != length || (attributes->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      transport.fail(*peer, "it sent a malformed message");
      return UCS_OK;
    }
    if (transport.on_receive_ && !transport.thrown_) {
      try {
        if (transport.takes_over(*peer, wire.slice, data, length, attributes->recv_attr)) {
          return UCS_INPROGRESS;
        }
        transport.on_receive_(peer->rank, wire.slice,
                              {static_cast<const std::byte*>(data), length});
      } catch (...) {  // must not pass through UCX; progress() throws it
        transport.thrown_ = std::current_exception();
      }
    }
    return UCS_OK;
  }

  /// Whether a message has a landing, to which it is copied later.
  bool takes_over(Peer& peer, const SliceHeader& slice, void* data, std::size_t length,
                  std::uint64_t attributes) {
    if (!on_landing_ || (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) == 0 || length == 0) {
      return false;
    }
    std::optional<Landing> landing = on_landing_(peer.rank, slice);
    if (!landing) {
      return false;
    }
    if (landing->memory.size() != length) {
      fail(peer, "it sent a message of another size than expected");
      landing->done(false);
      return false;
    }
    arrived_.push_back({&peer, data, std::move(*landing)});
    return true;
  }

  static void on_landed(void* request, ucs_status_t status, std::size_t /*length*/,
                        void* user_data) {
    const std::unique_ptr<Copy> copy(static_cast<Copy*>(user_data));
    copy->transport->finish(*copy, status);
    ucp_request_free(request);
  }

  static ucs_status_t on_hello(void* /*self*/, const void* /*header*/,
                               std::size_t /*header_length*/, void* /*data*/,
                               std::size_t /*length*/, const ucp_am_recv_param_t* /*attributes*/) {
    return UCS_OK;
  }

  static ucs_status_t on_goodbye(void* self, const void* header, std::size_t header_length,
                                 void* /*data*/, std::size_t /*length*/,
                                 const ucp_am_recv_param_t* /*attributes*/) {
    auto& transport = *static_cast<UcxTransport*>(self);
    WireHeader wire;
    if (Peer* peer = transport.sender_of(header, header_length, wire); peer != nullptr) {
      transport.fail(*peer, "it closed its connections");
    }
    return UCS_OK;
  }

  static void on_sent(void* request, ucs_status_t status, void* user_data) {
    auto& send = *static_cast<Send*>(user_data);
    send.peer->transport->finish(send, status);
    ucp_request_free(request);
  }

  static void on_endpoint_error(void* argument, ucp_ep_h /*endpoint*/, ucs_status_t status) {
    auto& peer = *static_cast<Peer*>(argument);
    peer.transport->fail(peer, ucs_status_string(status));
  }

  Rank self_;
  std::uint64_t session_ = 0;
  ReceiveHandler on_receive_;
  PeerErrorHandler on_peer_error_;
  LandingHandler on_landing_;
  std::vector<Arrived> arrived_;  ///< not being copied yet
  std::exception_ptr thrown_;
  std::vector<std::pair<Rank, std::string>> failures_;  ///< not reported yet
  std::size_t outstanding_ = 0;
  bool closed_ = false;
  std::deque<Send> sends_;
  std::vector<Send*> free_sends_;
  // Released in the opposite order.
  UcpContext context_;
  UcpWorker worker_;
  std::optional<ucs_memory_type_t> device_memory_;  ///< as UCX calls it; none: it cannot be used
  std::optional<UcxWaiter> waiter_;
  std::deque<Peer> peers_;  ///< by rank; addresses are known to UCX
};

}  // namespace

TransportKind ucx_kind() {
  TransportKind kind{.name = "ucx", .unavailable = {}, .detail = {}};
  try {
    const UcpContext context = open_ucx_context();
    kind.detail = std::string("version ") + ucp_get_version_string() + ":";
    for (const std::string& device : ucx_devices(context)) {
      kind.detail += " " + device;
    }
    if (ucx_device_memory(context)) {
      kind.no_device_memory.reset();
    } else {
      kind.no_device_memory = "UCX " + std::string(ucp_get_version_string()) +
                              " was built without CUDA, or finds no GPU, or UCX_TLS leaves it out";
    }
  } catch (const RuntimeFailure& error) {
    kind.unavailable = error.what();
  }
  return kind;
}

std::unique_ptr<Transport> make_ucx_transport() { return std::make_unique<UcxTransport>(); }

}  // namespace rackrail::runtime

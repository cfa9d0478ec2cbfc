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
// (of its key and all addresses), a known rank other than this one, and the size that it says. A
// peer whose messages are malformed is reported as failed; a stranger's are dropped.
//
// Rails. An adapter that a rail names has a port of its own: a context that sees this device alone,
// and a worker. Ranks tell each other the addresses of these workers over the connection that they
// have anyway, and each rail is an endpoint between two of them, at both ends, whoever sends there.
// What is sent before the peer's address is there waits; where one end has no such device, all of
// it goes over that first connection. A rail that breaks loses the peer. A goodbye goes over every
// connection of a peer and says how many there are, so that the last one is behind everything that
// the peer has sent; an endpoint that ends after its goodbye is no loss. All workers are progressed
// by the one thread, which sleeps on the descriptors of all.
#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "runtime/missed_peer.hpp"
#include "runtime/transports/factories.hpp"
#include "runtime/ucx/context.hpp"
#include "runtime/ucx/device_memory.hpp"
#include "runtime/ucx/landings.hpp"
#include "runtime/ucx/peers.hpp"
#include "runtime/ucx/port.hpp"
#include "runtime/ucx/rail_offers.hpp"
#include "runtime/ucx/rail_search.hpp"
#include "runtime/ucx/wire.hpp"

namespace rackrail::runtime {
namespace {

using Clock = std::chrono::steady_clock;

class UcxTransport;
using Port = UcxPort<UcxTransport>;

class UcxTransport final : public Transport, public DeviceMessaging {
 public:
  UcxTransport() : UcxTransport(open_ucx_context()) {}

  ~UcxTransport() override { close(Duration()); }

  std::string_view name() const override { return "ucx"; }

  std::vector<std::byte> address() const override { return ucx_address(ports_.front().worker()); }
  void set_key(std::uint64_t key) override { key_ = key; }

  void connect(Rank self, std::span<const std::vector<std::byte>> addresses) override {
    if (!peers_.empty() || closed_) {
      throw RuntimeFailure("transport ucx: connected a second time");
    }
    if (self.index() >= addresses.size()) {
      throw RuntimeFailure("transport ucx: rank " + std::to_string(self.value()) + " among " +
                           std::to_string(addresses.size()) + " addresses");
    }
    self_ = self;
    session_ = session_of(key_, addresses);
    std::vector<MissedPeer> missed;
    for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
      Peer& peer = peers_.emplace_back(Rank(rank), failures_);
      Connection& first = peer.add_connection(&ports_.front().worker());
      peer.by_rail.push_back(&first);
      if (peer.rank == self_) {
        continue;
      }
      if (const ucs_status_t status = first.open(addresses[rank]); status != UCS_OK) {
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
        say(peer.connections.front(), kHelloMessage);
      }
    }
  }

  std::vector<std::string> use_rails(std::span<const Rail> rails) override {
    if (rails.empty() && ports_.size() == 1) {
      return {};
    }
    for (Peer& peer : peers_) {
      peer.by_rail.resize(1);
    }
    RailSearch search(ucx_network_devices(ports_.front().context()));
    std::vector<RailOffers> offers(peers_.size());
    for (const Rail& rail : rails) {
      Peer& peer = peers_.at(rail.peer.index());
      Port* port = find_port(rail, search);
      peer.by_rail.resize(std::max<std::size_t>(peer.by_rail.size(), rail.number + 1),
                          &peer.connections.front());
      peer.by_rail[rail.number] =
          &rail_connection(peer, rail, port != nullptr ? &port->worker() : nullptr);
      offers[rail.peer.index()][rail.adapter] =
          port != nullptr ? ucx_address(port->worker()) : std::vector<std::byte>();
    }
    for (Peer& peer : peers_) {
      if (const RailOffers& own = offers[peer.rank.index()]; !own.empty()) {
        say(peer.connections.front(), kOfferMessage, encode_offers(own));
        open_rails(peer);
      }
    }
    return search.notes();
  }

  DeviceMessaging* device_messaging() override { return device_memory_ ? this : nullptr; }

  void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) override {
    on_receive_ = std::move(on_receive);
    on_peer_error_ = std::move(on_peer_error);
  }

  void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
            SendCompletion done) override {
    send_slice(destination, {header, payload, UCS_MEMORY_TYPE_HOST, std::move(done)});
  }

  void learn(std::span<const std::byte> memory) override {
    const std::lock_guard lock(learning_);
    if (!learner_) {
      learner_ = open_ucx_context();
    }
    ucx_learn(learner_, memory);
  }

  void send_from_device(Rank destination, const SliceHeader& header,
                        std::span<const std::byte> payload, SendCompletion done) override {
    send_slice(destination, {header, payload, device_memory_.value(), std::move(done)});
  }

  void set_landing_handler(LandingHandler handler) override {
    on_landing_ = std::move(handler);
    for (Port& port : ports_) {
      set_slice_handler(port);
    }
  }

  /// One thing at a time: an answer to what has arrived does not wait for what comes next.
  std::size_t progress() override {
    std::size_t events = progress_workers() + landings_.start() + take_offers();
    if (events == 0) {
      events = report_failures();  // all that had arrived before them is delivered
    }
    if (thrown_) {
      std::rethrow_exception(std::exchange(thrown_, nullptr));
    }
    return events;
  }

  bool arm() override { return failures_.empty() && waiter_.arm(); }

  void sleep(Duration at_most) override { waiter_.sleep(at_most); }

  void wake() override { waiter_.wake(); }

  void close(Duration deadline) noexcept override {
    if (std::exchange(closed_, true)) {
      return;
    }
    on_receive_ = nullptr;
    on_peer_error_ = nullptr;
    on_landing_ = nullptr;
    landings_.drop();
    const Clock::time_point end =
        Clock::now() + std::chrono::nanoseconds(deadline.picoseconds() / 1000);
    for (Peer& peer : peers_) {
      say_goodbye(peer);
    }
    flush(end);
    for (Peer& peer : peers_) {
      for (Connection& connection : peer.connections) {
        connection.endpoint.reset();
      }
      peer.release_held();
    }
    // Closing ended all sends; their completions are still to be heard.
    constexpr std::chrono::milliseconds kForCompletions(100);
    progress_until(Clock::now() + kForCompletions,
                   [this] { return outstanding_ == 0 && landings_.under_way() == 0; });
  }

 private:
  using Peer = UcxPeer;
  using Connection = UcxConnection;
  using Outgoing = UcxOutgoing;

  /// What must live as long as a send is under way.
  struct Send {
    UcxTransport* transport = nullptr;
    Connection* connection = nullptr;
    WireHeader header;
    std::vector<std::byte> text;  ///< of a message that is the transport's own
    SendCompletion done;
  };

  explicit UcxTransport(UcpContext context)
      : device_memory_(ucx_device_memory(context)), landings_(device_memory_) {
    open_port({}, std::move(context));
  }

  Port& open_port(const std::string& device, UcpContext context) {
    Port& port = ports_.emplace_back(this, device, std::move(context));
    try {
      waiter_.add(port.worker());
    } catch (...) {
      ports_.pop_back();
      throw;
    }
    set_slice_handler(port);
    port.take_messages(kHelloMessage, on_hello);
    port.take_messages(kGoodbyeMessage, on_goodbye);
    port.take_messages(kOfferMessage, on_offer);
    return port;
  }

  /// That of the rail's own adapter, opened where it is not yet; null where it cannot be.
  Port* find_port(const Rail& rail, RailSearch& search) {
    const std::optional<std::string> device = search.find(rail.adapter, rail.devices);
    if (!device) {
      return nullptr;
    }
    for (Port& port : ports_) {
      if (port.device() == *device) {
        return &port;
      }
    }
    try {
      return &open_port(*device, open_ucx_context_on(*device));
    } catch (const RuntimeFailure& error) {
      search.add_missing(rail.adapter, error.what());
      return nullptr;
    }
  }

  void set_slice_handler(Port& port) {
    // UCX must be able to keep what has arrived until it was copied to its landing.
    port.take_messages(kSliceMessage, on_slice, on_landing_ ? UCP_AM_FLAG_PERSISTENT_DATA : 0);
  }

  Connection& rail_connection(Peer& peer, const Rail& rail, const UcpWorker* worker) {
    for (Connection& connection : peer.connections) {
      if (connection.id != 0 && connection.adapter == rail.adapter &&
          connection.peer_adapter == rail.peer_adapter && connection.worker == worker) {
        return connection;
      }
    }
    Connection& connection = peer.add_connection(worker);
    connection.id = connection_id(self_, peer.rank, rail.adapter, rail.peer_adapter);
    connection.adapter = rail.adapter;
    connection.peer_adapter = rail.peer_adapter;
    return connection;
  }

  /// Those for which all is known by now.
  void open_rails(Peer& peer) {
    for (Connection& connection : peer.connections) {
      const auto offer = peer.offers.find(connection.peer_adapter);
      if (connection.id == 0 || connection.worker == nullptr || connection.endpoint ||
          peer.failed || offer == peer.offers.end()) {
        continue;
      }
      if (offer->second.empty() || connection.open(offer->second) != UCS_OK) {
        connection.worker = nullptr;
      } else {
        say(connection, kHelloMessage);
      }
      for (Outgoing& each : std::exchange(connection.held, {})) {
        send_slice(connection, std::move(each));
      }
    }
  }

  std::size_t take_offers() {
    const std::size_t count = has_offers_ ? 1 : 0;
    if (std::exchange(has_offers_, false)) {  // not from UCX's callbacks
      for (Peer& peer : peers_) {
        open_rails(peer);
      }
    }
    return count;
  }

  std::size_t progress_workers() {
    std::size_t count = 0;
    for (Port& port : ports_) {
      count += ucp_worker_progress(port.worker().get());
    }
    return count;
  }

  void send_slice(Rank destination, Outgoing slice) {
    Peer& peer = peers_.at(destination.index());
    const std::uint32_t rail = slice.header.rail;
    send_slice(rail < peer.by_rail.size() ? *peer.by_rail[rail] : peer.connections.front(),
               std::move(slice));
  }

  void send_slice(Connection& rail, Outgoing slice) {
    Connection& connection = rail.worker == nullptr ? rail.peer->connections.front() : rail;
    if (connection.id != 0 && !connection.endpoint && !connection.peer->failed && !closed_) {
      connection.held.push_back(std::move(slice));
      return;
    }
    Send& send = prepare(connection, slice.header);
    send.done = std::move(slice.done);
    start(send, kSliceMessage, slice.payload, slice.memory);
  }

  /// A message of the transport's own.
  void say(Connection& connection, unsigned id, std::vector<std::byte> text = {},
           std::uint32_t number = 0) {
    SliceHeader header;
    header.transfer = number;
    Send& send = prepare(connection, header);
    send.text = std::move(text);
    start(send, id, send.text, UCS_MEMORY_TYPE_HOST);
  }

  void say_goodbye(Peer& peer) {
    if (peer.failed) {
      return;
    }
    const std::uint32_t count = peer.open_connections();
    for (Connection& connection : peer.connections) {
      if (connection.endpoint) {
        say(connection, kGoodbyeMessage, {}, count);
      }
    }
  }

  Send& prepare(Connection& connection, const SliceHeader& slice) {
    Send& send = acquire();
    send.transport = this;
    send.connection = &connection;
    send.header = {
        .session = session_, .source = self_.value(), .connection = connection.id, .slice = slice};
    return send;
  }

  void start(Send& send, unsigned id, std::span<const std::byte> payload,
             ucs_memory_type_t memory) {
    ++outstanding_;
    Connection& connection = *send.connection;
    if (!connection.endpoint || connection.peer->failed) {
      connection.peer->fail("not connected");
      finish(send, UCS_OK);
      return;
    }
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.flags = UCP_AM_SEND_FLAG_EAGER;
    parameters.memory_type = memory;
    parameters.cb.send = on_sent;
    parameters.user_data = &send;
    const ucs_status_ptr_t status =
        ucp_am_send_nbx(connection.endpoint.get(), id, &send.header, sizeof send.header,
                        payload.data(), payload.size(), &parameters);
    if (!UCS_PTR_IS_PTR(status)) {
      finish(send, UCS_PTR_STATUS(status));
    }
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
      send.connection->fail(status);
    }
    const SendCompletion done = std::exchange(send.done, nullptr);
    send.text.clear();
    free_sends_.push_back(&send);
    if (done) {
      done();
    }
  }

  std::size_t report_failures() {
    const auto failures = std::exchange(failures_, {});
    for (const auto& [rank, reason] : failures) {
      peers_[rank.index()].release_held();
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
      for (Connection& connection : peer.connections) {
        if (connection.endpoint && !peer.failed && Clock::now() < end) {
          ucp_request_param_t parameters = {};
          const ucs_status_ptr_t status = ucp_ep_flush_nbx(connection.endpoint.get(), &parameters);
          if (UCS_PTR_IS_PTR(status)) {
            flushes.emplace_back(status);
          }
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
      if (progress_workers() == 0) {
        wait(1_ms);
      }
    }
  }

  /// The sender, if the message is what it claims to be.
  Peer* sender_of(const void* header, std::size_t header_length, WireHeader& copy) {
    if (header == nullptr) {
      return nullptr;
    }
    const std::optional<WireHeader> known = read_header(
        {static_cast<const std::byte*>(header), header_length}, session_, peers_.size(), self_);
    if (!known) {
      return nullptr;
    }
    copy = *known;
    return &peers_[copy.source];
  }

  static ucs_status_t on_slice(void* at, const void* header, std::size_t header_length, void* data,
                               std::size_t length, const ucp_am_recv_param_t* attributes) {
    Port& port = *static_cast<Port*>(at);
    UcxTransport& transport = port.owner();
    WireHeader wire;
    Peer* peer = transport.sender_of(header, header_length, wire);
    if (peer == nullptr) {
      return UCS_OK;
    }
    if (wire.slice.bytes != length || (attributes->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      peer->fail("it sent a malformed message");
      return UCS_OK;
    }
    if (transport.on_receive_ && !transport.thrown_) {
      try {
        if (transport.takes_over(*peer, port, wire.slice, data, length, attributes->recv_attr)) {
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
  bool takes_over(Peer& peer, Port& port, const SliceHeader& slice, void* data, std::size_t length,
                  std::uint64_t attributes) {
    if (!on_landing_ || (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) == 0 || length == 0) {
      return false;
    }
    std::optional<Landing> landing = on_landing_(peer.rank, slice);
    if (!landing) {
      return false;
    }
    if (landing->memory.size() != length) {
      peer.fail("it sent a message of another size than expected");
      landing->done(false);
      return false;
    }
    landings_.add(peer, port.worker(), data, std::move(*landing));
    return true;
  }

  static ucs_status_t on_hello(void* /*at*/, const void* /*header*/, std::size_t /*header_length*/,
                               void* /*data*/, std::size_t /*length*/,
                               const ucp_am_recv_param_t* /*attributes*/) {
    return UCS_OK;
  }

  static ucs_status_t on_goodbye(void* at, const void* header, std::size_t header_length,
                                 void* /*data*/, std::size_t /*length*/,
                                 const ucp_am_recv_param_t* /*attributes*/) {
    UcxTransport& transport = static_cast<Port*>(at)->owner();
    WireHeader wire;
    if (Peer* peer = transport.sender_of(header, header_length, wire); peer != nullptr) {
      for (Connection& connection : peer->connections) {
        connection.has_said_goodbye |= connection.id == wire.connection;
      }
      if (++peer->goodbyes >= wire.slice.transfer) {
        peer->fail("it closed its connections");
      }
    }
    return UCS_OK;
  }

  static ucs_status_t on_offer(void* at, const void* header, std::size_t header_length, void* data,
                               std::size_t length, const ucp_am_recv_param_t* attributes) {
    UcxTransport& transport = static_cast<Port*>(at)->owner();
    WireHeader wire;
    Peer* peer = transport.sender_of(header, header_length, wire);
    if (peer == nullptr) {
      return UCS_OK;
    }
    std::optional<RailOffers> offers;
    if ((attributes->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      offers = decode_offers({static_cast<const std::byte*>(data), length});
    }
    if (!offers) {
      peer->fail("it sent a malformed message");
      return UCS_OK;
    }
    peer->offers = std::move(*offers);
    transport.has_offers_ = true;
    return UCS_OK;
  }

  static void on_sent(void* request, ucs_status_t status, void* user_data) {
    auto& send = *static_cast<Send*>(user_data);
    send.transport->finish(send, status);
    ucp_request_free(request);
  }

  Rank self_;
  std::uint64_t key_ = 0;
  std::uint64_t session_ = 0;
  ReceiveHandler on_receive_;
  PeerErrorHandler on_peer_error_;
  LandingHandler on_landing_;
  std::exception_ptr thrown_;
  UcxFailures failures_;  ///< not reported yet
  std::size_t outstanding_ = 0;
  bool has_offers_ = false;  ///< that were not taken up yet
  bool closed_ = false;
  std::deque<Send> sends_;
  std::vector<Send*> free_sends_;
  std::optional<ucs_memory_type_t> device_memory_;  ///< as UCX calls it; none: it cannot be used
  UcxLandings landings_;
  std::mutex learning_;
  UcpContext learner_;  ///< of its own, as others are used by the thread that calls progress()
  // Released in the opposite order: sends that a peer never took end with their worker.
  UcxWaiter waiter_;
  std::deque<Peer> peers_;  ///< by rank; addresses are known to UCX
  std::deque<Port> ports_;  ///< the first, then those of rails
};

}  // namespace

std::unique_ptr<Transport> make_ucx_transport() { return std::make_unique<UcxTransport>(); }

}  // namespace rackrail::runtime

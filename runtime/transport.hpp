// Moving slices between ranks, whatever the wire is.
//
// A transport belongs to one rank and is used by one thread at a time (whichever does the work of a
// ProgressLoop), except `wake()`, which any thread may call, and `sleep()`. Messages carry a header
// that says what they are; they arrive once, in order per sender and rail, and the payload is only
// valid inside the handler.
//
// To add one: a folder (or file) beside the others with one factory, a line in
// runtime/transports/kinds.def, and it runs through tests/conformance/transport_test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "runtime/short_spin.hpp"

namespace rackrail::runtime {

/// What a slice is: enough for the receiver to place it without any other state.
struct SliceHeader {
  std::uint64_t plan = 0;   ///< first 8 bytes of the plan's digest
  std::uint32_t epoch = 0;  ///< membership epoch
  std::uint32_t step = 0;
  std::uint32_t bucket = 0;
  std::uint32_t transfer = 0;
  std::uint32_t slice = 0;
  std::uint32_t bytes = 0;   ///< of the payload
  std::uint32_t rail = 0;    ///< that it goes over (Rail::number); 0: as the transport chooses
  std::uint32_t call = 0;    ///< PlanExecutor::set_call()
  std::int64_t sent_ns = 0;  ///< when it was given to the transport, by a clock of the sender's
};

/// A way between this rank and a peer that is told from others by an adapter at either end
/// (topology/adapters.hpp). Messages go over it in both directions.
struct Rail {
  Rank peer;
  std::uint32_t number = 1;  ///< among those of the pair, from 1; the same at both ends
  std::string adapter;       ///< of this rank's machine: its name in the plan
  std::string devices;       ///< what the machine may call it, separated by spaces
  std::string peer_adapter;  ///< of the peer's machine: its name in the plan
};

/// Called from progress() for each message that arrived. `payload` dies with the call.
using ReceiveHandler =
    std::function<void(Rank source, const SliceHeader& header, std::span<const std::byte> payload)>;
/// Called from progress() once when a peer cannot be reached any more.
using PeerErrorHandler = std::function<void(Rank peer, const std::string& reason)>;
/// Called from progress() (or from send itself) once the payload may be reused.
using SendCompletion = std::function<void()>;

/// Where the bytes of a message shall lie on a device.
struct Landing {
  std::span<std::byte> memory;  ///< of the device, as large as the message
  /// Called from progress() once the transport leaves the memory alone; whether the bytes are
  /// there. Where they are not, the peer error handler hears of it as well.
  std::function<void(bool has_arrived)> done;
};
/// Called from progress() for each message before the receive handler, which gets those that have
/// no landing.
using LandingHandler = std::function<std::optional<Landing>(Rank source, const SliceHeader&)>;

/// What a transport can do besides where it reads and writes the memory of GPUs. Messages are the
/// same on the wire, so either end may have them in the host's memory. Whoever calls progress() has
/// the device as its thread's current one.
class DeviceMessaging {
 public:
  virtual ~DeviceMessaging() = default;
  DeviceMessaging() = default;
  DeviceMessaging(const DeviceMessaging&) = delete;
  DeviceMessaging& operator=(const DeviceMessaging&) = delete;

  /// Before the first message from or into this memory; from any thread that has the device as its
  /// current one. It may wait until the device has nothing left to do, of which nothing may need
  /// messages of memory that is not known yet. Memory that was freed is not known any more.
  virtual void learn(std::span<const std::byte> memory) = 0;
  /// As Transport::send(), of a payload on the device that is there already. Where it throws, the
  /// send has not begun and `done` is not called.
  virtual void send_from_device(Rank destination, const SliceHeader& header,
                                std::span<const std::byte> payload, SendCompletion done) = 0;
  /// An empty one ends it, without throwing: what has a landing already may still call its done().
  /// Throws RuntimeFailure otherwise, where the transport cannot do it.
  virtual void set_landing_handler(LandingHandler handler) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual std::string_view name() const = 0;
  /// Opaque bytes that let others connect to this rank (exchanged by the coordinator).
  virtual std::vector<std::byte> address() const = 0;
  /// A number that the ranks of one job share and nobody else knows: messages without it count for
  /// nothing. Before connect(); without it who knows all addresses can send as one of the ranks.
  virtual void set_key(std::uint64_t key) = 0;
  /// Addresses of all ranks by rank number. Called once. Throws RuntimeFailure; MissedPeerError
  /// with all those that cannot be reached, where that is known at once.
  virtual void connect(Rank self, std::span<const std::vector<std::byte>> addresses) = 0;
  virtual void set_handlers(ReceiveHandler on_receive, PeerErrorHandler on_peer_error) = 0;

  /// The rails that SliceHeader::rail means from now on; the peers are told the same, with the ends
  /// exchanged, and have the messages that were meant otherwise. After connect(). Messages on a
  /// rail of which one end is not to be found go as those without one. Returns what the user should
  /// know of that, in a line or none.
  virtual std::vector<std::string> use_rails(std::span<const Rail> /*rails*/) { return {}; }

  /// Starts a send; `payload` must stay valid until `done` was called. A failed send is reported
  /// by the peer error handler, and `done` is still called.
  virtual void send(Rank destination, const SliceHeader& header, std::span<const std::byte> payload,
                    SendCompletion done) = 0;
  /// Delivers what has arrived and completes what is done; returns the number of things that
  /// happened. Never blocks.
  virtual std::size_t progress() = 0;
  /// Sleeps until something may have happened, `wake()` was called, or the time is over.
  void wait(Duration at_most) {
    if (arm()) {
      sleep(at_most);
    }
  }
  /// The same where progress() has just found nothing; a short wait is a spin.
  void wait(Duration at_most, ShortSpin& spin) {
    if (spin.goes_on()) {
      spin.pause();
    } else {
      wait(at_most);
    }
  }
  /// From now on sleep() ends when something happens. False: something has happened already.
  virtual bool arm() { return true; }
  /// The rest of wait(); without arm() before it, only wake() and the time end it for certain.
  /// Meanwhile other threads may use the transport, or sleep too.
  virtual void sleep(Duration at_most) = 0;
  virtual void wake() = 0;
  /// None where messages must lie in the host's memory.
  virtual DeviceMessaging* device_messaging() { return nullptr; }
  /// Orderly end within the deadline; afterwards only destruction is allowed. Never throws.
  virtual void close(Duration deadline) noexcept = 0;
};

/// A transport that this build or machine may or may not have.
struct TransportKind {
  std::string name;                        ///< "in-process", "ucx"
  std::optional<std::string> unavailable;  ///< why it cannot be used here, if so
  std::string detail;                      ///< version, devices: for `rackrail info`
  /// Why messages cannot lie in the memory of a GPU, if so.
  std::optional<std::string> no_device_memory = "it takes the host's memory only";
};
std::vector<TransportKind> transport_kinds();
/// Throws ConfigError unless there is a transport of this name, whether or not it can be used here.
void require_transport_name(std::string_view name);
/// Throws RuntimeFailure with the reason when it is unavailable, ConfigError when unknown.
/// ("in-process" is made by make_in_process_transports: it needs its peers.)
std::unique_ptr<Transport> make_transport(std::string_view name);

/// n transports joined to each other inside this process, one per thread-as-rank: for tests.
std::vector<std::unique_ptr<Transport>> make_in_process_transports(std::size_t ranks);

}  // namespace rackrail::runtime

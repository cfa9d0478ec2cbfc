// The ranks that a transport over UCX is connected with: by which connections, what waits for one
// of them, and who is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "runtime/transport.hpp"
#include "runtime/ucx/handles.hpp"
#include "runtime/ucx/rail_offers.hpp"

namespace rackrail::runtime {

struct UcxPeer;

/// Peers that were lost, each once, and why.
using UcxFailures = std::vector<std::pair<Rank, std::string>>;

/// A slice on its way to UCX.
struct UcxOutgoing {
  SliceHeader header;
  std::span<const std::byte> payload;
  ucs_memory_type_t memory = UCS_MEMORY_TYPE_HOST;
  SendCompletion done;
};

/// One of those with a peer: the first, then those of rails. Stays where it is, as UCX knows it.
struct UcxConnection {
  UcxPeer* peer = nullptr;
  const UcpWorker* worker = nullptr;  ///< null: a rail that is not to be had
  std::uint32_t id = 0;               ///< connection_id()
  std::string adapter;                ///< of rails: this rank's and the peer's
  std::string peer_adapter;
  UcpEndpoint endpoint;           ///< none: not yet
  std::deque<UcxOutgoing> held;   ///< until there is one
  bool has_said_goodbye = false;  ///< the peer

  /// To the worker with this address. Afterwards there is an endpoint if the status is UCS_OK, and
  /// its end is a failure.
  [[nodiscard]] ucs_status_t open(const std::vector<std::byte>& address);
  /// The peer is lost, unless it said goodbye here: then nobody waits for what cannot be sent.
  void fail(ucs_status_t status);
};

struct UcxPeer {
  /// `failures` must outlive it.
  UcxPeer(Rank of, UcxFailures& failures) : rank(of), failures_(&failures) {}

  Rank rank;
  std::deque<UcxConnection> connections;
  std::vector<UcxConnection*> by_rail;  ///< by number; the first is that without a rail
  RailOffers offers;
  std::uint32_t goodbyes = 0;
  bool failed = false;

  UcxConnection& add_connection(const UcpWorker* worker);
  /// Those with an endpoint.
  std::uint32_t open_connections() const;
  /// Adds it to the failures, the first time.
  void fail(const std::string& reason);
  /// What waits is done, as nobody will send it.
  void release_held();

 private:
  UcxFailures* failures_;
};

}  // namespace rackrail::runtime

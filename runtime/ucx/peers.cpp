#include "runtime/ucx/peers.hpp"

#include <algorithm>

#include "runtime/ucx/port.hpp"

namespace rackrail::runtime {
namespace {

void on_endpoint_error(void* argument, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxConnection*>(argument)->fail(status);
}

}  // namespace

ucs_status_t UcxConnection::open(const std::vector<std::byte>& address) {
  return open_ucx_endpoint(*worker, address, {.cb = on_endpoint_error, .arg = this}, endpoint);
}

void UcxConnection::fail(ucs_status_t status) {
  if (!has_said_goodbye) {
    const std::string by = id == 0 ? "" : " (" + adapter + " to " + peer_adapter + ")";
    peer->fail(ucs_status_string(status) + by);
  }
}

UcxConnection& UcxPeer::add_connection(const UcpWorker* worker) {
  UcxConnection& connection = connections.emplace_back();
  connection.peer = this;
  connection.worker = worker;
  return connection;
}

std::uint32_t UcxPeer::open_connections() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      connections, [](const UcxConnection& each) { return static_cast<bool>(each.endpoint); }));
}

void UcxPeer::fail(const std::string& reason) {
  if (!std::exchange(failed, true)) {
    failures_->emplace_back(rank, reason);
  }
}

void UcxPeer::release_held() {
  for (UcxConnection& connection : connections) {
    for (const UcxOutgoing& each : std::exchange(connection.held, {})) {
      each.done();
    }
  }
}

}  // namespace rackrail::runtime

// The connection to a coordinator, as workers and others who ask have it.
#pragma once

#include <memory>
#include <optional>

#include "runtime/coordinator/host_port.hpp"
#include "runtime/coordinator/tls.hpp"

namespace grpc {
class Channel;
}

namespace rackrail::runtime {

/// Connects in the background. With `tls` only over TLS, to a coordinator that the same authority
/// has signed.
std::shared_ptr<grpc::Channel> make_channel(const HostPort& coordinator,
                                            const std::optional<TlsCertificates>& tls);

}  // namespace rackrail::runtime

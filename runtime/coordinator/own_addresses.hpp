// Where others find what listens at all addresses of this host.
#pragma once

#include <string>

#include "runtime/coordinator/host_port.hpp"

namespace rackrail::runtime {

/// Where rank 0 listens so that others find it by this name: at all addresses of this host, as the
/// name may lead elsewhere here (Debian's own name for itself is 127.0.1.1 at home). Numbers,
/// loopback and meetings on this host stay as they are.
HostPort everywhere(const HostPort& meeting);

/// For this process: loopback where the address is 0.0.0.0 or ::, else the address itself.
HostPort own_address(const HostPort& listening);

/// "10.0.0.1:4000 192.168.7.2:4000": for processes of other hosts, those of this host's interfaces
/// that are up, without loopback; or the address itself where it is one. Loopback comes last where
/// there is nothing else.
std::string addresses_for_others(const HostPort& listening);

}  // namespace rackrail::runtime

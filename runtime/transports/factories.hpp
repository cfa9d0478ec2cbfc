// What each transport of kinds.def has, for registry.cpp. No header of the hardware behind it is
// seen here; a transport that a build lacks has the same two functions.
#pragma once

#include <memory>

#include "runtime/transport.hpp"

namespace rackrail::runtime {

// x_kind(): name, whether this build and machine have it, and its version and devices.
// make_x_transport(): throws RuntimeFailure where x_kind() names a reason.
#define RACKRAIL_REGISTER(name) \
  TransportKind name##_kind();  \
  std::unique_ptr<Transport> make_##name##_transport();
#include "runtime/transports/kinds.def"
#undef RACKRAIL_REGISTER

}  // namespace rackrail::runtime

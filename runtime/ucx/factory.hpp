// The only door to UCX. Without UCX in the build, unavailable.cpp stands behind it.
#pragma once

#include <memory>

#include "runtime/transport.hpp"

namespace rackrail::runtime {

/// "ucx", whether this build and machine have it, and its version and devices.
TransportKind ucx_kind();
/// Throws RuntimeFailure where ucx_kind() names a reason.
std::unique_ptr<Transport> make_ucx_transport();

}  // namespace rackrail::runtime

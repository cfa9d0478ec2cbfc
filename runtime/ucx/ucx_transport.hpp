// UCX as a transport: shared memory and TCP anywhere, RDMA where UCX finds it (UCX_TLS is
// honoured).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/transport.hpp"

namespace rackrail::runtime {

/// Throws RuntimeFailure when UCX cannot start here or was not built in.
std::unique_ptr<Transport> make_ucx_transport();
/// Why UCX cannot be used in this build, if so.
std::optional<std::string> ucx_unavailable();
/// Version that runs, for `rackrail info`; empty when unavailable.
std::string ucx_detail();

}  // namespace rackrail::runtime

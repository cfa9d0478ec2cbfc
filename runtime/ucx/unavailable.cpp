// The transport of a build that has no UCX.
#include <string>

#include "base/build_config.hpp"
#include "base/error.hpp"
#include "runtime/transports/factories.hpp"

namespace rackrail::runtime {
namespace {

std::string reason() {
  return "this build has no UCX: " + std::string(build_config::kUcxMissingReason);
}

}  // namespace

TransportKind ucx_kind() { return {.name = "ucx", .unavailable = reason(), .detail = {}}; }

std::unique_ptr<Transport> make_ucx_transport() {
  throw RuntimeFailure("transport ucx: " + reason());
}

}  // namespace rackrail::runtime

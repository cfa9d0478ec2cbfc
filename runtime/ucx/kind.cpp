// Whether UCX can be used here, and with what.
#include <string>

#include "base/error.hpp"
#include "runtime/transports/factories.hpp"
#include "runtime/ucx/context.hpp"
#include "runtime/ucx/device_memory.hpp"

namespace rackrail::runtime {

TransportKind ucx_kind() {
  TransportKind kind{.name = "ucx", .unavailable = {}, .detail = {}};
  try {
    const UcpContext context = open_ucx_context();
    kind.detail = std::string("version ") + ucp_get_version_string() + ":";
    for (const std::string& device : ucx_devices(context)) {
      kind.detail += " " + device;
    }
    if (ucx_device_memory(context)) {
      kind.no_device_memory.reset();
    } else {
      kind.no_device_memory = "UCX " + std::string(ucp_get_version_string()) +
                              " was built without CUDA, or finds no GPU, or UCX_TLS leaves it out";
    }
  } catch (const RuntimeFailure& error) {
    kind.unavailable = error.what();
  }
  return kind;
}

}  // namespace rackrail::runtime

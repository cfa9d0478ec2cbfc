#include "base/error.hpp"
#include "runtime/transport.hpp"
#include "runtime/ucx/factory.hpp"

namespace rackrail::runtime {

std::vector<TransportKind> transport_kinds() {
  return {{.name = "in-process", .unavailable = {}, .detail = "ranks are threads of one process"},
          ucx_kind()};
}

std::unique_ptr<Transport> make_transport(std::string_view name) {
  if (name == "ucx") {
    return make_ucx_transport();
  }
  if (name == "in-process") {
    throw RuntimeFailure("transport in-process: it joins the threads of one process only");
  }
  throw ConfigError(ErrorContext{.file = {},
                                 .where = "transport",
                                 .found = "'" + std::string(name) + "'",
                                 .expected = "ucx or in-process"});
}

}  // namespace rackrail::runtime

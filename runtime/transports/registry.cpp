#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "runtime/transports/factories.hpp"

namespace rackrail::runtime {
namespace {

struct Registered {
  std::string_view identifier;
  TransportKind (*kind)();
  std::unique_ptr<Transport> (*make)();

  std::string name() const {
    std::string result(identifier);
    std::replace(result.begin(), result.end(), '_', '-');
    return result;
  }
};

constexpr std::array kAll = {
#define RACKRAIL_REGISTER(name) Registered{#name, name##_kind, make_##name##_transport},
#include "runtime/transports/kinds.def"
#undef RACKRAIL_REGISTER
};

const Registered& registered(std::string_view name) {
  std::string known;
  for (const Registered& each : kAll) {
    if (each.name() == name) {
      return each;
    }
    if (each.name() != "in-process") {  // which joins threads of one process only
      known += (known.empty() ? "" : ", ") + each.name();
    }
  }
  throw ConfigError(ErrorContext{.file = {},
                                 .where = "transport",
                                 .found = "'" + std::string(name) + "'",
                                 .expected = "one of " + known});
}

}  // namespace

std::vector<TransportKind> transport_kinds() {
  std::vector<TransportKind> kinds;
  for (const Registered& each : kAll) {
    kinds.push_back(each.kind());
  }
  return kinds;
}

void require_transport_name(std::string_view name) { (void)registered(name); }

std::unique_ptr<Transport> make_transport(std::string_view name) { return registered(name).make(); }

}  // namespace rackrail::runtime

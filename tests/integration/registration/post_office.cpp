// A transport as somebody would add one; that it cannot be used here is an ordinary answer.
#include "base/error.hpp"
#include "runtime/transports/factories.hpp"

namespace rackrail::runtime {
namespace {
constexpr const char* kReason = "the post office is closed";
}  // namespace

TransportKind post_office_kind() {
  return {.name = "post-office", .unavailable = kReason, .detail = {}};
}

std::unique_ptr<Transport> make_post_office_transport() { throw RuntimeFailure(kReason); }

}  // namespace rackrail::runtime

#include "runtime/ucx/landings.hpp"

#include <memory>
#include <utility>

namespace rackrail::runtime {

void UcxLandings::add(UcxPeer& peer, const UcpWorker& worker, void* data, Landing landing) {
  arrived_.push_back({&peer, &worker, data, std::move(landing)});
}

std::size_t UcxLandings::start() {
  const std::vector<Arrived> arrived = std::exchange(arrived_, {});
  for (const Arrived& each : arrived) {
    auto copy = std::make_unique<Copy>(Copy{this, each.peer, each.landing.done});
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.memory_type = memory_.value();
    parameters.cb.recv_am = on_landed;
    parameters.user_data = copy.get();
    ++under_way_;
    const ucs_status_ptr_t status =
        ucp_am_recv_data_nbx(each.worker->get(), each.data, each.landing.memory.data(),
                             each.landing.memory.size(), &parameters);
    if (UCS_PTR_IS_PTR(status)) {
      static_cast<void>(copy.release());  // on_landed() has it
    } else {
      finish(*copy, UCS_PTR_STATUS(status));
    }
  }
  return arrived.size();
}

void UcxLandings::drop() {
  for (const Arrived& each : std::exchange(arrived_, {})) {
    ucp_am_data_release(each.worker->get(), each.data);
    each.landing.done(false);
  }
}

void UcxLandings::finish(const Copy& copy, ucs_status_t status) {
  --under_way_;
  if (status != UCS_OK) {
    copy.peer->fail(ucs_status_string(status));
  }
  copy.done(status == UCS_OK);
}

void UcxLandings::on_landed(void* request, ucs_status_t status, std::size_t /*length*/,
                            void* user_data) {
  const std::unique_ptr<Copy> copy(static_cast<Copy*>(user_data));
  copy->landings->finish(*copy, status);
  ucp_request_free(request);
}

}  // namespace rackrail::runtime

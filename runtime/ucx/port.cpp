#include "runtime/ucx/port.hpp"

#include "runtime/ucx/sealed_address.hpp"

namespace rackrail::runtime {

void set_ucx_message_handler(const UcpWorker& worker, unsigned id, ucp_am_recv_callback_t handler,
                             void* argument, std::uint32_t flags) {
  ucp_am_handler_param_t parameters = {};
  parameters.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  parameters.id = id;
  parameters.flags = flags;
  parameters.cb = handler;
  parameters.arg = argument;
  check_ucx(ucp_worker_set_am_recv_handler(worker.get(), &parameters), "setting a message handler");
}

ucs_status_t open_ucx_endpoint(const UcpWorker& worker, const std::vector<std::byte>& address,
                               const ucp_err_handler_t& on_error, UcpEndpoint& endpoint) {
  const auto opened = opened_address(address);
  if (!opened) {
    return UCS_ERR_INVALID_ADDR;
  }
  ucp_ep_params_t parameters = {};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(opened->data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler = on_error;
  ucp_ep_h made = nullptr;
  ucs_status_t status = ucp_ep_create(worker.get(), &parameters, &made);
  if (status == UCS_ERR_UNREACHABLE) {
    // Shared memory of a UCX that does not do as context.cpp asks it tells nobody of a lost peer.
    // The coordinator does.
    parameters.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    status = ucp_ep_create(worker.get(), &parameters, &made);
  }
  if (status == UCS_OK) {
    endpoint = UcpEndpoint(made);
  }
  return status;
}

}  // namespace rackrail::runtime

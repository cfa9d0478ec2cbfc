// One move-only owner per kind of UCX handle. Releasing never blocks and never throws; an orderly
// end (flushing) is the business of the transport.
#pragma once

#include <ucp/api/ucp.h>

#include "runtime/unique_handle.hpp"

namespace rackrail::runtime {

struct UcpConfigTraits {
  using Handle = ucp_config_t*;
  static void release(Handle handle) noexcept { ucp_config_release(handle); }
};
using UcpConfig = UniqueHandle<UcpConfigTraits>;

struct UcpContextTraits {
  using Handle = ucp_context_h;
  static void release(Handle handle) noexcept { ucp_cleanup(handle); }
};
using UcpContext = UniqueHandle<UcpContextTraits>;

/// Must go before its context.
struct UcpWorkerTraits {
  using Handle = ucp_worker_h;
  static void release(Handle handle) noexcept { ucp_worker_destroy(handle); }
};
using UcpWorker = UniqueHandle<UcpWorkerTraits>;

/// What a call that may go on in the background returned: a request, or nothing. Releasing a
/// request that is still going on only gives up watching it.
struct UcpRequestTraits {
  using Handle = void*;
  static void release(Handle handle) noexcept { ucp_request_free(handle); }
};
using UcpRequest = UniqueHandle<UcpRequestTraits>;

/// Released by closing it at once: what is under way on it ends with an error, in later calls of
/// ucp_worker_progress. One without error handling cannot be closed like that, and ends with its
/// worker. Must go before its worker.
struct UcpEndpointTraits {
  using Handle = ucp_ep_h;
  static void release(Handle handle) noexcept {
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    const ucs_status_ptr_t status = ucp_ep_close_nbx(handle, &parameters);
    if (UCS_PTR_IS_PTR(status)) {
      ucp_request_free(status);
    }
  }
};
using UcpEndpoint = UniqueHandle<UcpEndpointTraits>;

}  // namespace rackrail::runtime

// What sends by one adapter and receives there: a context that sees this device alone, and a
// worker.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "runtime/ucx/context.hpp"
#include "runtime/ucx/handles.hpp"

namespace rackrail::runtime {

/// `argument` is what the handler gets. Throws RuntimeFailure.
void set_ucx_message_handler(const UcpWorker& worker, unsigned id, ucp_am_recv_callback_t handler,
                             void* argument, std::uint32_t flags);

/// In UCX's mode for peer failure, where what joins the two has one. `address`: as ucx_address()
/// gives it; UCS_ERR_INVALID_ADDR where it is not that. `endpoint` is set where the status is
/// UCS_OK.
[[nodiscard]] ucs_status_t open_ucx_endpoint(const UcpWorker& worker,
                                             const std::vector<std::byte>& address,
                                             const ucp_err_handler_t& on_error,
                                             UcpEndpoint& endpoint);

/// Of an owner who takes what arrives: handlers get the port, which knows him. It stays where it
/// is.
template <typename Owner>
class UcxPort {
 public:
  /// `device`: as UCX_NET_DEVICES takes it; empty: whatever UCX takes. Throws RuntimeFailure.
  UcxPort(Owner* owner, std::string device, UcpContext context)
      : owner_(owner),
        device_(std::move(device)),
        context_(std::move(context)),
        worker_(open_ucx_worker(context_)) {}
  UcxPort(const UcxPort&) = delete;
  UcxPort& operator=(const UcxPort&) = delete;

  Owner& owner() const { return *owner_; }
  const std::string& device() const { return device_; }
  const UcpContext& context() const { return context_; }
  const UcpWorker& worker() const { return worker_; }

  /// Messages of this number go to the handler, whose argument is this port. Throws RuntimeFailure.
  void take_messages(unsigned id, ucp_am_recv_callback_t handler, std::uint32_t flags = 0) {
    set_ucx_message_handler(worker_, id, handler, this, flags);
  }

 private:
  Owner* owner_;
  std::string device_;
  UcpContext context_;  ///< outlives the worker
  UcpWorker worker_;
};

}  // namespace rackrail::runtime

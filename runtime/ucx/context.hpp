// A UCX context and worker with the settings that rackrail wants, and the file descriptors that it
// sleeps on.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "runtime/ucx/handles.hpp"

namespace rackrail::runtime {

/// Throws RuntimeFailure("transport ucx: <what>: <UCX's words>") unless the status is UCS_OK. The
/// words are those of the status and what UCX logged on this thread meanwhile.
void check_ucx(ucs_status_t status, const char* what);

/// Active messages with wake-up. Settings that the user has not made in the environment are made
/// here, in the context's configuration. Throws RuntimeFailure.
UcpContext open_ucx_context();
/// One that reaches other machines by these devices alone, whatever UCX_NET_DEVICES says; separated
/// by commas. Throws RuntimeFailure also where UCX sees none of them.
UcpContext open_ucx_context_on(const std::string& devices);
/// For one thread at a time, whichever. Throws RuntimeFailure.
UcpWorker open_ucx_worker(const UcpContext& context);
/// "tcp/lo", "posix/memory" …: what the context found.
std::vector<std::string> ucx_devices(const UcpContext& context);
/// "eth0", "mlx5_0:1": those that lead to other machines, each once, as UCX_NET_DEVICES names them.
std::vector<std::string> ucx_network_devices(const UcpContext& context);
/// What others open an endpoint with (sealed_address.hpp). Throws RuntimeFailure.
std::vector<std::byte> ucx_address(const UcpWorker& worker);

/// An event that any thread may set and threads sleep on together with workers.
class UcxWaiter {
 public:
  /// Throws RuntimeFailure.
  UcxWaiter();
  ~UcxWaiter();
  UcxWaiter(const UcxWaiter&) = delete;
  UcxWaiter& operator=(const UcxWaiter&) = delete;

  /// Sleeps on this worker, too, which must outlive it. Throws RuntimeFailure.
  void add(const UcpWorker& worker);
  /// From now on sleep() ends when one of the workers has something to do; false: one has already.
  /// Used as the workers are, by one thread at a time.
  bool arm() noexcept;
  /// Until then, or wake() was called, or the time is over. From any thread.
  void sleep(Duration at_most) noexcept;
  void wake() noexcept;

 private:
  std::vector<ucp_worker_h> workers_;
  std::vector<pollfd> descriptors_;  ///< that of wake(), then the workers'
  std::atomic<bool> is_armed_ = true;
};

}  // namespace rackrail::runtime

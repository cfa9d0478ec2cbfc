// A UCX context and worker with the settings that rackrail wants, and the file descriptors that it
// sleeps on.
#pragma once

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
/// For one thread at a time, whichever. Throws RuntimeFailure.
UcpWorker open_ucx_worker(const UcpContext& context);
/// "tcp/lo", "posix/memory" …: what the context found.
std::vector<std::string> ucx_devices(const UcpContext& context);

/// An event that any thread may set and one thread sleeps on together with a worker.
class UcxWaiter {
 public:
  /// Throws RuntimeFailure.
  explicit UcxWaiter(const UcpWorker& worker);
  ~UcxWaiter();
  UcxWaiter(const UcxWaiter&) = delete;
  UcxWaiter& operator=(const UcxWaiter&) = delete;

  /// Sleeps until the worker may have something to do, wake() was called, or the time is over.
  void wait(Duration at_most) noexcept;
  void wake() noexcept;

 private:
  ucp_worker_h worker_;
  int worker_descriptor_ = -1;
  int wake_descriptor_ = -1;
};

}  // namespace rackrail::runtime

// NCCL's functions for ranks that are threads of one process, on host memory: what a program asks
// of NCCL, in which order, and what becomes of it when a peer does not answer.
//
// Non-blocking, as the communicators that rackrail uses: operations are taken at once and carried
// out when the state of a communicator is asked for and all that take part have come. A call that
// NCCL would refuse, or that breaks a rule of its own (a call with a communicator that is in
// progress, a second destruction, a group left open) is refused as NCCL does, with the reason in
// get_last_error.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/nccl/functions.hpp"

namespace rackrail::test {

/// One at a time may be alive; all communicators must have ended before it does.
class FakeNccl {
 public:
  FakeNccl();
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  const runtime::NcclFunctions& functions() const { return functions_; }
  /// The table may be changed, for example to an older NCCL's.
  runtime::NcclFunctions& functions() { return functions_; }

  /// Called with the stream of each operation that is taken.
  void on_enqueue(std::function<void(runtime::NcclStream)> listener);
  /// Calls of the thread that asks, in order: "send 4096 to 1 float" and the like.
  std::vector<std::string> calls() const;
  /// From now on everything that needs this rank of the first communicators fails as a lost
  /// connection does, for whoever asks.
  void kill(int rank);
  /// The next call of this name, on any thread, returns `result`.
  void fail_next(const std::string& call, runtime::NcclResult result);
  /// Communicators that were neither destroyed nor aborted.
  std::size_t open() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
  runtime::NcclFunctions functions_;
};

}  // namespace rackrail::test

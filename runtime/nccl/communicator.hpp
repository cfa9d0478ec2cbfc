// A communicator of NCCL: made, split, shrunk and given up without ever waiting longer than asked.
//
// NCCL blocks where a peer is missing, so communicators are non-blocking. After every call their
// state is polled until it is settled, a deadline has passed, or the job is over for another reason
// (NcclCommunicatorOptions::is_over). In the last two cases the communicator has failed: all calls
// throw the first error, except those that end it. Its kernels may hang until abort() or shrink(),
// or its destructor, makes them quit.
//
// Pitfalls that are taken care of here:
//  - a child that is being split off is written to an address given to NCCL, by a thread of its
//    own, and its state is asked of the parent;
//  - once a rank has aborted a communicator, all must: one that has failed, and a parent that was
//    shrunk, are aborted, never destroyed, which would wait for those that are gone;
//  - several communicators of a device are aborted in one group, since each waits for kernels of
//    the device to end that may wait for another (from NCCL 2.22 on).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "base/units.hpp"
#include "runtime/nccl/functions.hpp"

namespace rackrail::runtime {

class NcclError : public RuntimeFailure {
 public:
  NcclError(const std::string& message, NcclResult code) : RuntimeFailure(message), code_(code) {}
  NcclResult code() const noexcept { return code_; }

 private:
  NcclResult code_;
};

struct NcclCommunicatorOptions {
  Duration deadline = Duration(30'000'000'000'000);  ///< for everything that needs all ranks
  std::optional<int> most_thread_blocks;             ///< of one operation; none: NCCL's choice
  /// Whether nobody needs to wait for the other ranks any more; asked while waiting, must not
  /// throw.
  std::function<bool()> is_over;
};

/// Used by one thread at a time, whose current device is that of the communicator. `functions` must
/// outlive it.
class NcclCommunicator {
 public:
  /// Throws NcclError.
  static NcclId make_id(const NcclFunctions& functions);
  /// With all other ranks. Throws NcclError.
  static NcclCommunicator join(const NcclFunctions& functions, const NcclId& id, int ranks,
                               int self, const NcclCommunicatorOptions& options);

  NcclCommunicator(NcclCommunicator&& other) noexcept;
  NcclCommunicator& operator=(NcclCommunicator&& other) noexcept;
  /// Aborts it, unless it was closed: NCCL has its kernels quit, and waits for its own threads.
  ~NcclCommunicator();

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  NcclHandle handle() const noexcept { return handle_; }
  const NcclFunctions& functions() const noexcept { return *functions_; }

  /// With all ranks of this one: the `size` of them that give the same `color` are together, each
  /// as the number `rank` that it gives. Throws NcclError; this one is aborted then.
  NcclCommunicator split(int color, int rank, int size);
  /// With all ranks but the `lost` ones (ascending), which may be gone: ends what is under way and
  /// leaves the others, renumbered without gaps. This one is aborted. Throws NcclError, also where
  /// NCCL is older than 2.27, or has met the failure itself: 2.28 shrinks for a lost rank that
  /// hangs, and refuses where the connection to it has ended.
  NcclCommunicator shrink(std::span<const int> lost);

  /// What the call that is named returned; waits until it has been carried out (on the host: work
  /// on streams goes on). Throws NcclError.
  void check(NcclResult result, const char* call);
  /// Throws NcclError where NCCL has found something in the meantime, such as a peer that is gone;
  /// never waits.
  void check_health();

  /// Once everything has ended on the streams of all ranks: an orderly end with the others within
  /// the deadline, else an abort. Returns whether it was orderly.
  bool close(Duration deadline) noexcept;
  void abort() noexcept;
  bool is_open() const noexcept { return handle_ != nullptr; }
  bool has_failed() const noexcept { return failure_.has_value(); }

  /// Aborts all of them at once.
  static void abort_all(std::span<NcclCommunicator* const> communicators) noexcept;

 private:
  NcclCommunicator(const NcclFunctions& functions, const NcclCommunicatorOptions& options,
                   NcclHandle handle, int rank, int size)
      : functions_(&functions), options_(options), handle_(handle), rank_(rank), size_(size) {}

  /// Of the state once it is settled; kInProgress at the deadline, or when the job is over.
  NcclResult wait(Duration deadline) const noexcept;
  [[noreturn]] void fail(NcclResult code, const char* call);
  void require_open(const char* call) const;
  /// Of a child that a call has begun to make.
  NcclCommunicator finish_child(NcclResult result, const char* call, const NcclHandle& child,
                                int rank, int size);

  const NcclFunctions* functions_;
  NcclCommunicatorOptions options_;
  NcclHandle handle_ = nullptr;
  int rank_ = 0;
  int size_ = 0;
  std::optional<NcclError> failure_;  ///< the first
};

/// What is called inside goes out as one operation. The group ends with end(), or without a word
/// when an exception passes by.
class NcclGroup {
 public:
  /// Throws NcclError.
  explicit NcclGroup(NcclCommunicator& communicator);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// Of a call inside the group: throws NcclError unless it was taken.
  void add(NcclResult result, const char* call);
  /// Throws NcclError.
  void end();

 private:
  NcclCommunicator& communicator_;
  bool is_open_ = true;
};

}  // namespace rackrail::runtime

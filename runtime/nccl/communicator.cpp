#include "runtime/nccl/communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace rackrail::runtime {
namespace {

using Clock = std::chrono::steady_clock;

NcclConfig config_of(const NcclCommunicatorOptions& options) {
  NcclConfig config;
  config.max_ctas = options.most_thread_blocks.value_or(NcclConfig::kUndefined);
  return config;
}

bool is_over(const NcclCommunicatorOptions& options) {
  return options.is_over && options.is_over();
}

std::string words_for(const NcclFunctions& functions, NcclResult code, const char* call,
                      NcclHandle handle, const NcclCommunicatorOptions& options = {}) {
  if (code == NcclResult::kInProgress) {
    return is_over(options) ? fmt::format("NCCL: {}: given up before all ranks came", call)
                            : fmt::format("NCCL: {}: not all ranks came within {} s", call,
                                          options.deadline.seconds());
  }
  const char* last = functions.get_last_error(handle);
  const bool has_more = last != nullptr && *last != '\0';
  return fmt::format("NCCL: {}: {}{}{}", call, functions.get_error_string(code),
                     has_more ? ": " : "", has_more ? last : "");
}

bool is_error(NcclResult result) {
  return result != NcclResult::kSuccess && result != NcclResult::kInProgress;
}

constexpr Duration kLaunchPatience = 5_s;

/// The state of a communicator once it is settled; kInProgress at the deadline, or when nobody
/// needs to wait any more.
NcclResult settled(const NcclFunctions& functions, NcclHandle handle, Duration deadline,
                   const NcclCommunicatorOptions& options) noexcept {
  constexpr int kBusyTurns = 200;
  const auto end = Clock::now() + std::chrono::nanoseconds(deadline.picoseconds() / 1000);
  for (int turn = 0;; ++turn) {
    NcclResult state = NcclResult::kSuccess;
    const NcclResult asked = functions.comm_get_async_error(handle, &state);
    if (asked != NcclResult::kSuccess || state != NcclResult::kInProgress) {
      return asked != NcclResult::kSuccess ? asked : state;
    }
    if (Clock::now() >= end) {
      return NcclResult::kInProgress;
    }
    if (turn < kBusyTurns) {
      std::this_thread::yield();
    } else if (is_over(options)) {
      return NcclResult::kInProgress;
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

}  // namespace

NcclId NcclCommunicator::make_id(const NcclFunctions& functions) {
  NcclId id;
  if (const NcclResult result = functions.get_unique_id(&id); result != NcclResult::kSuccess) {
    throw NcclError(words_for(functions, result, "ncclGetUniqueId", nullptr), result);
  }
  return id;
}

NcclCommunicator NcclCommunicator::join(const NcclFunctions& functions, const NcclId& id, int ranks,
                                        int self, const NcclCommunicatorOptions& options) {
  constexpr const char* kCall = "ncclCommInitRankConfig";
  NcclConfig config = config_of(options);
  NcclHandle handle = nullptr;
  const NcclResult result = functions.comm_init_rank_config(&handle, ranks, id, self, &config);
  if (handle == nullptr) {
    const NcclResult code = is_error(result) ? result : NcclResult::kInternalError;
    throw NcclError(words_for(functions, code, kCall, nullptr), code);
  }
  NcclCommunicator communicator(functions, options, handle, self, ranks);
  communicator.check(result, kCall);
  return communicator;
}

NcclCommunicator::NcclCommunicator(NcclCommunicator&& other) noexcept
    : functions_(other.functions_),
      options_(other.options_),
      handle_(std::exchange(other.handle_, nullptr)),
      rank_(other.rank_),
      size_(other.size_),
      failure_(std::move(other.failure_)) {}

NcclCommunicator& NcclCommunicator::operator=(NcclCommunicator&& other) noexcept {
  if (this != &other) {
    abort();
    functions_ = other.functions_;
    options_ = other.options_;
    handle_ = std::exchange(other.handle_, nullptr);
    rank_ = other.rank_;
    size_ = other.size_;
    failure_ = std::move(other.failure_);
  }
  return *this;
}

NcclCommunicator::~NcclCommunicator() { abort(); }

NcclCommunicator NcclCommunicator::split(int color, int rank, int size) {
  constexpr const char* kCall = "ncclCommSplit";
  require_open(kCall);
  NcclConfig config = config_of(options_);
  NcclHandle child = nullptr;
  const NcclResult result = functions_->comm_split(handle_, color, rank, &child, &config);
  return finish_child(result, kCall, child, rank, size);
}

NcclCommunicator NcclCommunicator::shrink(std::span<const int> lost) {
  constexpr const char* kCall = "ncclCommShrink";
  if (handle_ == nullptr) {
    require_open(kCall);
  }
  if (functions_->comm_shrink == nullptr) {
    abort();
    throw NcclError("NCCL: it cannot leave out lost ranks, which takes version 2.27",
                    NcclResult::kInvalidUsage);
  }
  std::vector<int> excluded(lost.begin(), lost.end());
  const auto before = std::lower_bound(excluded.begin(), excluded.end(), rank_) - excluded.begin();
  const auto count = static_cast<int>(excluded.size());
  NcclConfig config = config_of(options_);
  NcclHandle child = nullptr;
  // NCCL 2.28 refuses while it launches a sum that was given up, whatever its flag. Whether the job
  // is over does not matter: that is why the sum was given up.
  (void)settled(*functions_, handle_, std::min(kLaunchPatience, options_.deadline), {});
  const NcclResult result =
      functions_->comm_shrink(handle_, excluded.data(), count, &child, &config, kNcclShrinkAbort);
  NcclCommunicator rest =
      finish_child(result, kCall, child, rank_ - static_cast<int>(before), size_ - count);
  abort();
  return rest;
}

// `child` is written by a thread of NCCL's until the parent's state is settled or it is aborted.
NcclCommunicator NcclCommunicator::finish_child(NcclResult result, const char* call,
                                                const NcclHandle& child, int rank, int size) {
  NcclResult state = is_error(result) ? result : wait(options_.deadline);
  if (is_error(state) && !is_error(result) && child != nullptr) {
    state = NcclResult::kSuccess;  // a parent's connection to a lost rank has ended meanwhile
  }
  if (state == NcclResult::kSuccess && child != nullptr) {
    NcclCommunicator made(*functions_, options_, child, rank, size);
    try {  // its own state may be settled later than the parent's
      made.check(NcclResult::kSuccess, call);
    } catch (const NcclError& error) {
      abort();
      failure_ = error;
      throw;
    }
    return made;
  }
  const NcclResult code = state == NcclResult::kSuccess ? NcclResult::kInternalError : state;
  const NcclError error(words_for(*functions_, code, call, handle_, options_), code);
  abort();
  failure_ = error;
  throw error;
}

NcclResult NcclCommunicator::wait(Duration deadline) const noexcept {
  return settled(*functions_, handle_, deadline, options_);
}

void NcclCommunicator::fail(NcclResult code, const char* call) {
  if (!failure_) {
    failure_ = NcclError(words_for(*functions_, code, call, handle_, options_), code);
  }
  throw NcclError(*failure_);
}

void NcclCommunicator::require_open(const char* call) const {
  if (failure_) {
    throw NcclError(*failure_);
  }
  if (handle_ == nullptr) {
    throw NcclError(fmt::format("NCCL: {}: the communicator was ended before", call),
                    NcclResult::kInvalidUsage);
  }
}

void NcclCommunicator::check(NcclResult result, const char* call) {
  require_open(call);
  const NcclResult state = is_error(result) ? result : wait(options_.deadline);
  if (state != NcclResult::kSuccess) {
    fail(state, call);
  }
}

void NcclCommunicator::check_health() {
  require_open("ncclCommGetAsyncError");
  NcclResult state = NcclResult::kSuccess;
  const NcclResult asked = functions_->comm_get_async_error(handle_, &state);
  if (is_error(asked) || is_error(state)) {
    fail(is_error(asked) ? asked : state, "an operation");
  }
}

bool NcclCommunicator::close(Duration deadline) noexcept {
  if (handle_ == nullptr || failure_) {
    abort();
    return false;
  }
  if (is_error(functions_->comm_finalize(handle_)) || wait(deadline) != NcclResult::kSuccess) {
    abort();
    return false;
  }
  static_cast<void>(functions_->comm_destroy(std::exchange(handle_, nullptr)));
  return true;
}

void NcclCommunicator::abort() noexcept {
  if (handle_ != nullptr) {
    static_cast<void>(functions_->comm_abort(std::exchange(handle_, nullptr)));
  }
}

void NcclCommunicator::abort_all(std::span<NcclCommunicator* const> communicators) noexcept {
  const auto open = std::find_if(communicators.begin(), communicators.end(),
                                 [](const NcclCommunicator* c) { return c->is_open(); });
  if (open == communicators.end()) {
    return;
  }
  const NcclFunctions& functions = *(*open)->functions_;
  static_cast<void>(functions.group_start());
  for (NcclCommunicator* communicator : communicators) {
    communicator->abort();
  }
  static_cast<void>(functions.group_end());
}

NcclGroup::NcclGroup(NcclCommunicator& communicator) : communicator_(communicator) {
  communicator.check_health();
  const NcclResult result = communicator.functions().group_start();
  if (is_error(result)) {
    is_open_ = false;
    communicator.check(result, "ncclGroupStart");
  }
}

NcclGroup::~NcclGroup() {
  if (is_open_) {
    static_cast<void>(communicator_.functions().group_end());
  }
}

void NcclGroup::add(NcclResult result, const char* call) {
  if (is_error(result)) {
    is_open_ = false;
    static_cast<void>(communicator_.functions().group_end());
    communicator_.check(result, call);
  }
}

void NcclGroup::end() {
  is_open_ = false;
  communicator_.check(communicator_.functions().group_end(), "ncclGroupEnd");
}

}  // namespace rackrail::runtime

// The functions of NCCL that rackrail calls, as a table that is filled when the program runs.
//
// One build serves machines with and without NCCL, and tests put functions of their own into the
// table. So nothing here includes NCCL's header; where that is there when rackrail is built,
// abi_check.cpp holds these declarations against it. Everything that NCCL calls a stream is
// CUDA's, everything that it calls a buffer lies on the current device.
//
// All communicators are non-blocking: a call returns NcclResult::kInProgress, or success, and goes
// on in a thread of NCCL's; comm_get_async_error says when that is over. Until then only
// comm_get_async_error and comm_abort may be called with the communicator.
#pragma once

#include <climits>
#include <cstddef>

struct ncclComm;
struct CUstream_st;

namespace rackrail::runtime {

using NcclHandle = ::ncclComm*;
using NcclStream = ::CUstream_st*;

/// ncclResult_t
enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

/// ncclDataType_t, ncclRedOp_t: those that are used.
enum class NcclType : int { kUint8 = 1, kFloat32 = 7 };
enum class NcclOperator : int { kSum = 0 };

/// ncclUniqueId: made by one rank, and what the others join it by.
struct NcclId {
  char bytes[128] = {};
};

/// The head of ncclConfig_t as it was in 2.18; NCCL takes as much as `size` says and fills in the
/// rest by `version`. Only what is set differs from NCCL's own choice.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;  ///< thread blocks that may be taken away from computing
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

/// Members are called as in NCCL, without the prefix.
struct NcclFunctions {
  NcclResult (*get_version)(int* version) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclHandle comm) = nullptr;
  NcclResult (*get_unique_id)(NcclId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclHandle* comm, int ranks, NcclId id, int rank,
                                      NcclConfig* config) = nullptr;
  NcclResult (*comm_split)(NcclHandle comm, int color, int key, NcclHandle* child,
                           NcclConfig* config) = nullptr;
  NcclResult (*comm_finalize)(NcclHandle comm) = nullptr;
  NcclResult (*comm_destroy)(NcclHandle comm) = nullptr;
  NcclResult (*comm_abort)(NcclHandle comm) = nullptr;
  NcclResult (*comm_get_async_error)(NcclHandle comm, NcclResult* error) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  NcclResult (*send)(const void* buffer, std::size_t count, NcclType type, int peer,
                     NcclHandle comm, NcclStream stream) = nullptr;
  NcclResult (*recv)(void* buffer, std::size_t count, NcclType type, int peer, NcclHandle comm,
                     NcclStream stream) = nullptr;
  NcclResult (*all_reduce)(const void* from, void* to, std::size_t count, NcclType type,
                           NcclOperator op, NcclHandle comm, NcclStream stream) = nullptr;
  NcclResult (*reduce)(const void* from, void* to, std::size_t count, NcclType type,
                       NcclOperator op, int root, NcclHandle comm, NcclStream stream) = nullptr;
  NcclResult (*reduce_scatter)(const void* from, void* to, std::size_t count_each, NcclType type,
                               NcclOperator op, NcclHandle comm, NcclStream stream) = nullptr;
  NcclResult (*broadcast)(const void* from, void* to, std::size_t count, NcclType type, int root,
                          NcclHandle comm, NcclStream stream) = nullptr;
  NcclResult (*all_gather)(const void* from, void* to, std::size_t count_each, NcclType type,
                           NcclHandle comm, NcclStream stream) = nullptr;
  /// From 2.27 on, else null.
  NcclResult (*comm_shrink)(NcclHandle comm, int* excluded, int excluded_count, NcclHandle* child,
                            NcclConfig* config, int flags) = nullptr;
};

/// comm_shrink: first end what is under way on the parent.
inline constexpr int kNcclShrinkAbort = 1;
/// comm_split: this rank is in no child.
inline constexpr int kNcclNoColor = -1;

}  // namespace rackrail::runtime

// Holds functions.hpp against the NCCL header of this machine; nothing is left of it when it is
// compiled.
#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "runtime/nccl/functions.hpp"

namespace rackrail::runtime {
namespace {

/// Whether two types are passed alike: as pointers, as integers of one size, or as the same bytes.
template <typename A, typename B>
constexpr bool kPassedAlike =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B> &&
    (std::is_integral_v<A> || std::is_enum_v<A>) ==
        (std::is_integral_v<B> || std::is_enum_v<B>)&&std::is_class_v<A> == std::is_class_v<B>;

template <typename Ours, typename Theirs>
struct IsCalledAlike : std::false_type {};
template <typename Result, typename... A, typename TheirResult, typename... B>
struct IsCalledAlike<Result (*)(A...), TheirResult (*)(B...)> {
  static constexpr bool both() {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return (kPassedAlike<A, B> && ...);
    } else {
      return false;
    }
  }
  static constexpr bool value = kPassedAlike<Result, TheirResult> && both();
};

#define RACKRAIL_CHECK_CALL(member, function)                                               \
  static_assert(IsCalledAlike<decltype(NcclFunctions::member), decltype(&function)>::value, \
                #function)
RACKRAIL_CHECK_CALL(get_version, ncclGetVersion);
RACKRAIL_CHECK_CALL(get_error_string, ncclGetErrorString);
RACKRAIL_CHECK_CALL(get_last_error, ncclGetLastError);
RACKRAIL_CHECK_CALL(get_unique_id, ncclGetUniqueId);
RACKRAIL_CHECK_CALL(comm_init_rank_config, ncclCommInitRankConfig);
RACKRAIL_CHECK_CALL(comm_split, ncclCommSplit);
RACKRAIL_CHECK_CALL(comm_finalize, ncclCommFinalize);
RACKRAIL_CHECK_CALL(comm_destroy, ncclCommDestroy);
RACKRAIL_CHECK_CALL(comm_abort, ncclCommAbort);
RACKRAIL_CHECK_CALL(comm_get_async_error, ncclCommGetAsyncError);
RACKRAIL_CHECK_CALL(group_start, ncclGroupStart);
RACKRAIL_CHECK_CALL(group_end, ncclGroupEnd);
RACKRAIL_CHECK_CALL(send, ncclSend);
RACKRAIL_CHECK_CALL(recv, ncclRecv);
RACKRAIL_CHECK_CALL(all_reduce, ncclAllReduce);
RACKRAIL_CHECK_CALL(reduce, ncclReduce);
RACKRAIL_CHECK_CALL(reduce_scatter, ncclReduceScatter);
RACKRAIL_CHECK_CALL(broadcast, ncclBroadcast);
RACKRAIL_CHECK_CALL(all_gather, ncclAllGather);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
RACKRAIL_CHECK_CALL(comm_shrink, ncclCommShrink);
static_assert(kNcclShrinkAbort == NCCL_SHRINK_ABORT);
#endif
#undef RACKRAIL_CHECK_CALL

static_assert(static_cast<int>(NcclResult::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::kUnhandledCudaError) == ncclUnhandledCudaError);
static_assert(static_cast<int>(NcclResult::kSystemError) == ncclSystemError);
static_assert(static_cast<int>(NcclResult::kInternalError) == ncclInternalError);
static_assert(static_cast<int>(NcclResult::kInvalidArgument) == ncclInvalidArgument);
static_assert(static_cast<int>(NcclResult::kInvalidUsage) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);
static_assert(static_cast<int>(NcclType::kUint8) == ncclUint8);
static_assert(static_cast<int>(NcclType::kFloat32) == ncclFloat32);
static_assert(static_cast<int>(NcclOperator::kSum) == ncclSum);
static_assert(kNcclNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);

}  // namespace
}  // namespace rackrail::runtime

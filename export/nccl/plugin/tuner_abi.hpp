// The binary interface between NCCL and a tuner plugin, versions 2 to 7, written from the facts of
// NVIDIA/nccl: src/include/plugin/tuner/tuner_v*.h and src/plugin/tuner*.cc.
//
// NCCL opens the library that NCCL_TUNER_PLUGIN names and looks for one structure, from its newest
// version down: 2.21 and 2.22 know v2, 2.23 v3, 2.24 to 2.27 v4, 2.28 and 2.29 v5, 2.30 v6, later
// ones v7. (2.19 and 2.20 know a v1, which is not here.) Each communicator gets a context of its
// own. Calls of one context do not overlap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rackrail::nccl_tuner {

// Of ncclResult_t.
inline constexpr int kSuccess = 0;
inline constexpr int kSystemError = 2;
inline constexpr int kInternalError = 3;

// Of ncclDebugLogLevel.
inline constexpr int kLogWarn = 2;
inline constexpr int kLogInfo = 3;
inline constexpr unsigned long kLogTuning = 64;  // subsystem NCCL_TUNING

/// level, subsystem, file, line, format …
using Logger = void (*)(int, unsigned long, const char*, int, const char*, ...);

/// ncclFunc_t; later numbers (send, receive, all-to-all) are never asked for a tuner.
enum class Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
enum class Algorithm : int { kTree, kRing, kCollnetDirect, kCollnetChain, kNvls, kNvlsTree, kPat };
enum class Protocol : int { kLl, kLl128, kSimple };

/// Entry of a cost table (`algorithms` rows of `protocols` floats, µs) that may not be chosen.
inline constexpr float kIgnored = -1;

struct NvlDomains {
  int count;
  int fewest_ranks;
  int most_ranks;
};

/// NCCL's own constants, which a plugin may change and this one does not.
struct Constants;

// All return an ncclResult_t.
using Init = int (*)(std::size_t ranks, std::size_t nodes, Logger log, void** context);  ///< to v4
using InitWithId = int (*)(void** context, std::uint64_t communicator, std::size_t ranks,
                           std::size_t nodes, Logger log, NvlDomains* domains,
                           Constants* constants);  ///< from v5
using GetCosts = int (*)(void* context, int function, std::size_t bytes, int operations,
                         float** costs, int algorithms, int protocols, int is_registered,
                         int* channels);  ///< from v4

struct TunerV2 {
  const char* name;
  Init init;
  int (*get_coll_info)(void* context, int function, std::size_t bytes, int collnet, int nvls,
                       int operations, int* algorithm, int* protocol, int* channels);
  int (*destroy)(void* context);
};

struct TunerV3 {
  const char* name;
  Init init;
  int (*get_coll_info)(void* context, int function, std::size_t bytes, int operations,
                       float** costs, int algorithms, int protocols, int* channels);
  int (*destroy)(void* context);
};

struct TunerV4 {
  const char* name;
  Init init;
  GetCosts get_coll_info;
  int (*destroy)(void* context);
};

struct TunerV5 {
  const char* name;
  InitWithId init;
  GetCosts get_coll_info;
  int (*finalize)(void* context);
};

/// Of v7 too, whose constants alone differ.
struct TunerV6 {
  const char* name;
  InitWithId init;
  GetCosts get_coll_info;
  int (*finalize)(void* context);
  int (*get_chunk_size)(void* context, int function, std::size_t bytes, int algorithm, int protocol,
                        int channels, std::size_t* chunk_bytes);
};

}  // namespace rackrail::nccl_tuner

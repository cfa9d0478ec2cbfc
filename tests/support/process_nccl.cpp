// A library of NCCL's functions for ranks that are processes of this machine, on host memory: for
// programs that run on an emulated GPU, whose streams have ended what they were given.
//
// Non-blocking, as the communicators that rackrail uses: a thread carries out what a group was
// given, and until all that take part have come, which a lost one never does, the communicator is
// in progress. That is longer than NCCL's is, which leaves the waiting to the stream: there is
// none. A communicator that is given more before, or destroyed, is refused with ncclInvalidUsage.
//
// Each communicator is a piece of shared memory with a ring of bytes for every pair of ranks. A
// collective is each rank sending all it has to all others, summed in the order of the ranks.
//
// PROCESS_NCCL_DIES_JOINING names the rank whose process is killed where it would join;
// PROCESS_NCCL_SPLITS a file that gets a line "COLOR SIZE" from each rank for each split.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/nccl/functions.hpp"

using rackrail::runtime::NcclConfig;
using rackrail::runtime::NcclHandle;
using rackrail::runtime::NcclId;
using rackrail::runtime::NcclOperator;
using rackrail::runtime::NcclResult;
using rackrail::runtime::NcclStream;
using rackrail::runtime::NcclType;

namespace {

constexpr std::size_t kRingBytes = std::size_t{256} << 10U;
constexpr useconds_t kPause = 50;

/// Bytes from one rank to another.
struct Ring {
  std::atomic<std::size_t> written = 0;
  std::atomic<std::size_t> read = 0;
  char bytes[kRingBytes];

  /// Of so many, how many there was room for.
  std::size_t put(const char* from, std::size_t size) {
    const std::size_t at = written;
    const std::size_t count = std::min(size, kRingBytes - (at - read));
    for (std::size_t i = 0; i < count; ++i) {
      bytes[(at + i) % kRingBytes] = from[i];
    }
    written = at + count;
    return count;
  }
  std::size_t take(char* to, std::size_t size) {
    const std::size_t at = read;
    const std::size_t count = std::min(size, written - at);
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = bytes[(at + i) % kRingBytes];
    }
    read = at + count;
    return count;
  }
};

/// What is still to be moved of one message.
struct Move {
  Ring* ring;
  char* memory;
  std::size_t left;
  bool is_send;

  bool advance() {
    const std::size_t count = is_send ? ring->put(memory, left) : ring->take(memory, left);
    memory += count;
    left -= count;
    return count != 0;
  }
};

/// What a group was given, for one communicator.
struct Work {
  std::vector<Move> moves;
  std::vector<std::function<void()>> afterwards;
};

/// Messages of one pair keep their order. Whether all was done before `is_over`.
bool carry_out(Work& work, const std::atomic<bool>& is_over) {
  bool is_left = true;
  while (is_left) {
    is_left = false;
    bool has_moved = false;
    std::map<std::pair<Ring*, bool>, bool> is_taken;
    for (Move& move : work.moves) {
      bool& taken = is_taken[{move.ring, move.is_send}];
      if (move.left != 0 && !std::exchange(taken, true)) {
        has_moved = move.advance() || has_moved;
        is_left = true;
      }
    }
    if (is_over) {
      return false;
    }
    if (is_left && !has_moved) {
      usleep(kPause);
    }
  }
  for (const auto& act : work.afterwards) {
    act();
  }
  return true;
}

}  // namespace

struct ncclComm {
  ncclComm(std::string the_name, int the_rank, int the_ranks)
      : name(std::move(the_name)), rank(the_rank), ranks(the_ranks) {
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes())) != 0) {
      std::perror("process_nccl: shared memory");
      std::abort();
    }
    memory = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
      std::perror("process_nccl: shared memory");
      std::abort();
    }
  }
  ~ncclComm() {
    is_over = true;
    if (thread.joinable()) {
      thread.join();
    }
    munmap(memory, bytes());
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  /// Until the others have come to the same memory, which needs its name no more then. Two ranks of
  /// one host, which they would share a device of, are refused, as NCCL does.
  void meet(const std::atomic<bool>& is_given_up) {
    Head& head = *static_cast<Head*>(memory);
    const char* host = std::getenv("NCCL_HOSTID");
    head.hosts[rank] = std::hash<std::string>()(host == nullptr ? "" : host);
    ++head.here;
    while (head.here < ranks && !is_given_up) {
      usleep(kPause);
    }
    shm_unlink(name.c_str());  // whoever is first
    for (int r = 0; r < ranks; ++r) {
      if (r != rank && head.hosts[r] == head.hosts[rank]) {
        error = NcclResult::kInvalidUsage;
      }
    }
  }

  /// Has the thread do it.
  NcclResult begin(std::function<void()> act) {
    if (is_busy) {
      return NcclResult::kInvalidUsage;
    }
    if (thread.joinable()) {
      thread.join();
    }
    is_busy = true;
    thread = std::thread([this, act = std::move(act)] {
      act();
      is_busy = false;
    });
    return NcclResult::kInProgress;
  }

  /// Whatever is under way is given up.
  void end_work() {
    is_over = true;
    if (thread.joinable()) {
      thread.join();
    }
    is_over = false;
  }

  std::size_t bytes() const {
    return sizeof(Head) +
           sizeof(Ring) * static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks);
  }
  /// New shared memory is all zeros, which is what an empty ring is.
  Ring* ring(int from, int to) const {
    return reinterpret_cast<Ring*>(static_cast<char*>(memory) + sizeof(Head)) +
           (static_cast<std::ptrdiff_t>(from) * ranks + to);
  }

  static constexpr int kMostRanks = 64;
  struct Head {
    std::atomic<int> here;  ///< how many ranks have come
    std::atomic<std::size_t> hosts[kMostRanks];
  };

  std::string name;
  int rank;
  int ranks;
  int children = 0;
  void* memory = nullptr;
  std::atomic<bool> is_busy = false;
  std::atomic<bool> is_over = false;
  std::atomic<NcclResult> error = NcclResult::kSuccess;
  std::thread thread;
};

namespace {

std::size_t size_of(NcclType type) { return type == NcclType::kFloat32 ? 4 : 1; }

struct Group {
  int depth = 0;
  std::map<NcclHandle, Work> works;
};
thread_local Group group;

void add_send(NcclHandle comm, int peer, const void* from, std::size_t bytes) {
  group.works[comm].moves.push_back({comm->ring(comm->rank, peer),
                                     const_cast<char*>(static_cast<const char*>(from)), bytes,
                                     true});
}
void add_receive(NcclHandle comm, int peer, void* to, std::size_t bytes) {
  group.works[comm].moves.push_back(
      {comm->ring(peer, comm->rank), static_cast<char*>(to), bytes, false});
}

NcclResult end_of_call() {
  if (group.depth != 0) {
    return NcclResult::kSuccess;
  }
  NcclResult result = NcclResult::kSuccess;
  for (auto& [comm, work] : std::exchange(group.works, {})) {
    const NcclResult begun =
        comm->begin([comm = comm, work = std::make_shared<Work>(std::move(work))] {
          carry_out(*work, comm->is_over);
        });
    result = result == NcclResult::kInvalidUsage ? result : begun;
  }
  return result;
}

using Parts = std::vector<std::vector<float>>;

/// What every rank has, at all of them; `act` is called with it by rank.
NcclResult gather_all(NcclHandle comm, const void* from, std::size_t count,
                      std::function<void(const Parts&)> act) {
  const auto parts =
      std::make_shared<Parts>(static_cast<std::size_t>(comm->ranks), std::vector<float>(count));
  const auto own = std::make_shared<std::vector<float>>(count);
  std::memcpy(own->data(), from, count * sizeof(float));
  for (int r = 0; r < comm->ranks; ++r) {
    add_send(comm, r, own->data(), count * sizeof(float));
    add_receive(comm, r, (*parts)[static_cast<std::size_t>(r)].data(), count * sizeof(float));
  }
  group.works[comm].afterwards.emplace_back([parts, own, act = std::move(act)] { act(*parts); });
  return end_of_call();
}

/// Of `count` values from `begin` on.
void sum_into(const Parts& parts, std::size_t begin, std::size_t count, void* to) {
  std::vector<float> sum(count);
  for (const std::vector<float>& part : parts) {
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += part[begin + i];
    }
  }
  std::memcpy(to, sum.data(), count * sizeof(float));
}

}  // namespace

extern "C" {

NcclResult ncclGetVersion(int* version) {
  *version = 22'809;
  return NcclResult::kSuccess;
}
const char* ncclGetErrorString(NcclResult /*result*/) { return "a stand-in"; }
const char* ncclGetLastError(NcclHandle /*comm*/) { return ""; }

NcclResult ncclGetUniqueId(NcclId* id) {
  static std::atomic<int> count = 0;
  std::snprintf(id->bytes, sizeof id->bytes, "/process-nccl-%ld-%d", static_cast<long>(getpid()),
                ++count);
  shm_unlink(id->bytes);  // of a process that had this number before
  return NcclResult::kSuccess;
}
NcclResult ncclCommInitRankConfig(NcclHandle* comm, int ranks, NcclId id, int rank,
                                  NcclConfig* /*config*/) {
  if (ranks > ncclComm::kMostRanks) {
    return NcclResult::kInvalidUsage;
  }
  const char* dies = std::getenv("PROCESS_NCCL_DIES_JOINING");
  if (dies != nullptr && std::to_string(rank) == dies) {
    std::raise(SIGKILL);
  }
  *comm = new ncclComm(id.bytes, rank, ranks);
  return (*comm)->begin([made = *comm] { made->meet(made->is_over); });
}
/// `key` is the rank in the child, as rackrail has it; the child has as many ranks as say its
/// color. It is there, with all of its ranks, once the parent is no longer in progress.
NcclResult ncclCommSplit(NcclHandle comm, int color, int key, NcclHandle* child,
                         NcclConfig* /*config*/) {
  const auto mine = static_cast<float>(color);
  const std::string name =
      comm->name + "-" + std::to_string(comm->children++) + "-" + std::to_string(color);
  return gather_all(comm, &mine, 1, [=](const Parts& colors) {
    const auto size = std::count(colors.begin(), colors.end(), std::vector{mine});
    if (const char* splits = std::getenv("PROCESS_NCCL_SPLITS")) {
      std::ofstream(splits, std::ios::app)
          << std::to_string(color) + " " + std::to_string(size) + "\n";
    }
    *child = new ncclComm(name, key, static_cast<int>(size));
    (*child)->meet(comm->is_over);
  });
}
/// Ends what is under way, as it is asked to; the child is there as one of a split.
NcclResult ncclCommShrink(NcclHandle comm, int* excluded, int excluded_count, NcclHandle* child,
                          NcclConfig* /*config*/, int flags) {
  if (flags != rackrail::runtime::kNcclShrinkAbort) {
    return NcclResult::kInvalidUsage;
  }
  comm->end_work();
  const std::string name = comm->name + "-" + std::to_string(comm->children++) + "-rest";
  const auto before = std::count_if(excluded, excluded + excluded_count,
                                    [comm](int rank) { return rank < comm->rank; });
  const int rank = comm->rank - static_cast<int>(before);
  const int ranks = comm->ranks - excluded_count;
  return comm->begin([=] {
    *child = new ncclComm(name, rank, ranks);
    (*child)->meet(comm->is_over);
  });
}
/// Nobody's memory goes while another still looks at it.
NcclResult ncclCommFinalize(NcclHandle comm) {
  const float nothing = 0;
  return gather_all(comm, &nothing, 1, [](const Parts&) {});
}
NcclResult ncclCommDestroy(NcclHandle comm) {
  if (comm->is_busy) {
    return NcclResult::kInvalidUsage;
  }
  delete comm;
  return NcclResult::kSuccess;
}
NcclResult ncclCommAbort(NcclHandle comm) {
  delete comm;
  return NcclResult::kSuccess;
}
NcclResult ncclCommGetAsyncError(NcclHandle comm, NcclResult* error) {
  *error = comm->is_busy ? NcclResult::kInProgress : comm->error.load();
  return NcclResult::kSuccess;
}

NcclResult ncclGroupStart() {
  ++group.depth;
  return NcclResult::kSuccess;
}
NcclResult ncclGroupEnd() {
  --group.depth;
  return end_of_call();
}

NcclResult ncclSend(const void* buffer, std::size_t count, NcclType type, int peer, NcclHandle comm,
                    NcclStream /*stream*/) {
  add_send(comm, peer, buffer, count * size_of(type));
  return end_of_call();
}
NcclResult ncclRecv(void* buffer, std::size_t count, NcclType type, int peer, NcclHandle comm,
                    NcclStream /*stream*/) {
  add_receive(comm, peer, buffer, count * size_of(type));
  return end_of_call();
}
NcclResult ncclAllReduce(const void* from, void* to, std::size_t count, NcclType /*type*/,
                         NcclOperator /*op*/, NcclHandle comm, NcclStream /*stream*/) {
  return gather_all(comm, from, count, [=](const Parts& parts) { sum_into(parts, 0, count, to); });
}
NcclResult ncclReduce(const void* from, void* to, std::size_t count, NcclType /*type*/,
                      NcclOperator /*op*/, int root, NcclHandle comm, NcclStream /*stream*/) {
  return gather_all(comm, from, count, [=](const Parts& parts) {
    if (comm->rank == root) {
      sum_into(parts, 0, count, to);
    }
  });
}
NcclResult ncclReduceScatter(const void* from, void* to, std::size_t count_each, NcclType /*type*/,
                             NcclOperator /*op*/, NcclHandle comm, NcclStream /*stream*/) {
  const auto count = count_each * static_cast<std::size_t>(comm->ranks);
  return gather_all(comm, from, count, [=](const Parts& parts) {
    sum_into(parts, count_each * static_cast<std::size_t>(comm->rank), count_each, to);
  });
}
NcclResult ncclBroadcast(const void* from, void* to, std::size_t count, NcclType /*type*/, int root,
                         NcclHandle comm, NcclStream /*stream*/) {
  return gather_all(comm, from, count, [=](const Parts& parts) {
    std::memcpy(to, parts[static_cast<std::size_t>(root)].data(), count * sizeof(float));
  });
}
NcclResult ncclAllGather(const void* from, void* to, std::size_t count_each, NcclType /*type*/,
                         NcclHandle comm, NcclStream /*stream*/) {
  return gather_all(comm, from, count_each, [=](const Parts& parts) {
    for (std::size_t r = 0; r < parts.size(); ++r) {
      std::memcpy(static_cast<float*>(to) + r * count_each, parts[r].data(),
                  count_each * sizeof(float));
    }
  });
}
}

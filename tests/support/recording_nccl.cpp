// A library of NCCL's functions that joins nothing, and says in a file which host each process
// takes itself for at the moment when NCCL would look: for tests of what is set before.
// RACKRAIL_RECORDED_NCCL names the file.
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Id {
  char bytes[128];
};

constexpr int kSuccess = 0;
constexpr int kSystemError = 2;

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "-" : value;
}

/// A line: the call, the host, the network interface.
void record(const char* call) {
  if (std::FILE* file = std::fopen(variable("RACKRAIL_RECORDED_NCCL"), "a")) {
    std::fprintf(file, "%s %s %s\n", call, variable("NCCL_HOSTID"), variable("NCCL_SOCKET_IFNAME"));
    std::fclose(file);
  }
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version);
const char* ncclGetErrorString(int result);
const char* ncclGetLastError(void* comm);
int ncclGetUniqueId(Id* id);
int ncclCommInitRankConfig(void** comm, int ranks, Id id, int rank, void* config);

int ncclGetVersion(int* version) {
  *version = 22'809;
  return kSuccess;
}
const char* ncclGetErrorString(int /*result*/) { return "it only records"; }
const char* ncclGetLastError(void* /*comm*/) { return ""; }
int ncclGetUniqueId(Id* id) {
  record("id");
  std::memset(id, 7, sizeof *id);
  return kSuccess;
}
int ncclCommInitRankConfig(void** comm, int /*ranks*/, Id /*id*/, int /*rank*/, void* /*config*/) {
  record("join");
  *comm = nullptr;
  return kSystemError;
}

// Never reached.
#define RACKRAIL_UNUSED(name) \
  int name();                 \
  int name() { return kSystemError; }
RACKRAIL_UNUSED(ncclCommSplit)
RACKRAIL_UNUSED(ncclCommFinalize)
RACKRAIL_UNUSED(ncclCommDestroy)
RACKRAIL_UNUSED(ncclCommAbort)
RACKRAIL_UNUSED(ncclCommGetAsyncError)
RACKRAIL_UNUSED(ncclGroupStart)
RACKRAIL_UNUSED(ncclGroupEnd)
RACKRAIL_UNUSED(ncclSend)
RACKRAIL_UNUSED(ncclRecv)
RACKRAIL_UNUSED(ncclAllReduce)
RACKRAIL_UNUSED(ncclReduce)
RACKRAIL_UNUSED(ncclReduceScatter)
RACKRAIL_UNUSED(ncclBroadcast)
RACKRAIL_UNUSED(ncclAllGather)
#undef RACKRAIL_UNUSED
}

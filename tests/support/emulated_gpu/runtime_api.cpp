// The calls of the CUDA runtime that runtime/cuda/ and runtime/nccl/ make, on host memory.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/emulated_gpu/cuda_runtime_api.h"
#include "tests/support/emulated_gpu/fibers.hpp"

struct EmulatedGraph {
  std::vector<std::function<void()>> work;
};
struct EmulatedGraphExec {
  std::vector<std::function<void()>> work;
};
/// How much of each stream's work, by the number of the stream, is known to have been done.
using Clock = std::map<unsigned, std::uint64_t>;

struct CUstream_st {
  unsigned number = 0;
  Clock clock;
  std::unique_ptr<EmulatedGraph> captured;
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
  Clock clock;
};

namespace {

thread_local Clock host_clock;                // what this thread has waited for
thread_local std::set<CUstream_st*> streams;  // that this thread has made

void learn(Clock& clock, const Clock& other) {
  for (const auto& [stream, work] : other) {
    clock[stream] = std::max(clock[stream], work);
  }
}

}  // namespace

bool emulated_gpu::has_seen_all(cudaStream_t observer) {
  return std::all_of(streams.begin(), streams.end(), [&](CUstream_st* stream) {
    return observer->clock[stream->number] == stream->clock[stream->number];
  });
}

void emulated_gpu::enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr) {
    learn(stream->clock, host_clock);
    ++stream->clock[stream->number];
  }
  if (stream != nullptr && stream->captured != nullptr) {
    stream->captured->work.push_back(std::move(work));
  } else {
    // Threads may stand for ranks: the one machine that there is takes turns.
    static std::mutex turn;
    const std::lock_guard lock(turn);
    work();
  }
}

namespace {

constexpr std::size_t kGuardBytes = 256;
constexpr unsigned char kGuard = 0x5a;
constexpr unsigned char kFresh = 0xc3;  // of floats: −391.53

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

std::mutex mutex;
std::map<unsigned char*, std::size_t> allocations;
std::set<int> contexts;  // devices that some thread has set

int get_primary_context_state(int device, unsigned* flags, int* active) {
  const std::lock_guard lock(mutex);
  *flags = 0;
  *active = contexts.contains(device) ? 1 : 0;
  return 0;
}

bool is_guard(const unsigned char* bytes) {
  for (std::size_t i = 0; i < kGuardBytes; ++i) {
    if (bytes[i] != kGuard) {
      return false;
    }
  }
  return true;
}

}  // namespace

thread_local int emulated_gpu::early_questions = 0;
thread_local int emulated_gpu::memory_calls = 0;
thread_local std::size_t emulated_gpu::largest_allocation = std::numeric_limits<std::size_t>::max();

namespace {

thread_local std::set<const void*> kernels;
thread_local int captures = 0;  // that this thread has begun and not ended

}  // namespace

void emulated_gpu::note_launch(const void* kernel) { kernels.insert(kernel); }
std::size_t emulated_gpu::loaded_kernels() { return kernels.size(); }
void emulated_gpu::forget_kernels() { kernels.clear(); }

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t /*error*/) { return "emulated"; }
const char* cudaGetErrorName(cudaError_t /*error*/) { return "emulated"; }

// One, or as many as EMULATED_GPUS says ("old driver": it cannot tell); all memory is on the first.
cudaError_t cudaGetDeviceCount(int* count) {
  const char* said = std::getenv("EMULATED_GPUS");
  if (said != nullptr && std::string_view(said) == "old driver") {
    return cudaErrorInsufficientDriver;
  }
  *count = said == nullptr ? 1 : std::atoi(said);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  int count = 0;
  cudaGetDeviceCount(&count);
  if (device < 0 || device >= count) {
    return cudaErrorInvalidValue;
  }
  current_device = device;
  const std::lock_guard lock(mutex);
  contexts.insert(device);
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function,
                                             unsigned /*version*/, unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::string_view(name) == "cuDevicePrimaryCtxGetState";
  *function = is_known ? reinterpret_cast<void*>(&get_primary_context_state) : nullptr;
  *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  return cudaSuccess;
}
// So few multiprocessors that grids are smaller than the work, and threads stride over it. MPS is
// there where the environment has its daemon's folder, as if one ran.
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int /*device*/) {
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrMpsEnabled:
      *value = std::getenv("CUDA_MPS_PIPE_DIRECTORY") == nullptr ? 0 : 1;
      return cudaSuccess;
  }
  return cudaErrorInvalidValue;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int device) {
  std::snprintf(address, static_cast<std::size_t>(size), "0000:E%d:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 12'000;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                         int /*priority*/) {
  static std::atomic<unsigned> numbers = 0;
  *stream = new CUstream_st{.number = ++numbers};
  streams.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  streams.erase(stream);
  host_clock.erase(stream->number);  // or it would grow with every stream that there was
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream != nullptr) {
    learn(host_clock, stream->clock);
  }
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  learn(stream->clock, event->clock);
  return cudaSuccess;
}

// A thread that captures must not take or release memory.
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  ++emulated_gpu::memory_calls;
  if (captures != 0) {
    return cudaErrorInvalidValue;
  }
  if (bytes > emulated_gpu::largest_allocation) {
    return cudaErrorMemoryAllocation;
  }
  const std::size_t rounded = (bytes + kGuardBytes - 1) / kGuardBytes * kGuardBytes;
  auto* whole =
      static_cast<unsigned char*>(std::aligned_alloc(kGuardBytes, rounded + 3 * kGuardBytes));
  if (whole == nullptr) {
    return cudaErrorMemoryAllocation;
  }
  unsigned char* begin = whole + kGuardBytes;
  std::memset(whole, kGuard, rounded + 3 * kGuardBytes);
  std::memset(begin, kFresh, bytes);
  const std::lock_guard lock(mutex);
  allocations[begin] = bytes;
  *memory = begin;
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) {
    return cudaSuccess;
  }
  ++emulated_gpu::memory_calls;
  auto* begin = static_cast<unsigned char*>(memory);
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(begin);
  if (found == allocations.end() || !is_guard(begin - kGuardBytes) ||
      !is_guard(begin + found->second)) {
    std::fputs("emulated GPU: something was written beside an allocation\n", stderr);
    std::abort();
  }
  std::free(begin - kGuardBytes);
  allocations.erase(found);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const std::lock_guard lock(mutex);
  const auto* byte = static_cast<const unsigned char*>(pointer);
  *attributes = {cudaMemoryTypeUnregistered, 0};
  for (const auto& [begin, bytes] : allocations) {
    if (byte >= begin && byte < begin + bytes) {
      attributes->type = cudaMemoryTypeDevice;
    }
  }
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeHost(void* memory) { return cudaFree(memory); }

// Not by turns: it may wait for what another thread's streams do.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument) {
  emulated_gpu::enqueue(stream, [] {});
  function(argument);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  if (bytes != 0) {
    emulated_gpu::enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes != 0) {
    emulated_gpu::enqueue(stream, [=] { std::memset(to, value, bytes); });
  }
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new EmulatedEvent;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (stream != nullptr) {
    event->clock = stream->clock;
  }
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (emulated_gpu::early_questions > 0) {
    --emulated_gpu::early_questions;
    last_error = cudaErrorNotReady;
    return cudaErrorNotReady;
  }
  learn(host_clock, event->clock);  // all calls are synchronous, so it has been reached
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t /*event*/) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode /*mode*/) {
  stream->captured = std::make_unique<EmulatedGraph>();
  ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->captured.release();
  --captures;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long /*flags*/) {
  *executable = new EmulatedGraphExec{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const auto& work : executable->work) {
    emulated_gpu::enqueue(stream, work);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

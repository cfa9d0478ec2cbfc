// Events and graphs: owners like those of handles.hpp.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "runtime/cuda/cuda_error.hpp"
#include "runtime/cuda/handles.hpp"

namespace rackrail::runtime {

/// A point in a stream, with its time.
class CudaEvent {
 public:
  CudaEvent() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "cudaEventCreate");
    event_ = UniqueHandle<Traits>(event);
  }

  void record(cudaStream_t stream) const {
    check_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
  }
  /// Waits for the event.
  void synchronize() const {
    check_cuda(cudaEventSynchronize(event_.get()), "cudaEventSynchronize");
  }
  /// From `start` to this one, both of which have been reached.
  double seconds_since(const CudaEvent& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_.get(), event_.get()),
               "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  struct Traits {
    using Handle = cudaEvent_t;
    static void release(Handle handle) noexcept { static_cast<void>(cudaEventDestroy(handle)); }
  };
  UniqueHandle<Traits> event_;
};

/// A point in a stream that other streams wait for. It has no time, which makes it cheaper.
class CudaSignal {
 public:
  CudaSignal() {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
    event_ = UniqueHandle<Traits>(event);
  }

  void record(cudaStream_t stream) const {
    check_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
  }
  /// Whether the point that was recorded last has been reached; true before the first.
  bool has_passed() const {
    const cudaError_t state = cudaEventQuery(event_.get());
    if (state == cudaErrorNotReady) {
      // Which the runtime keeps as the thread's last error, for whoever asks next.
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check_cuda(state, "cudaEventQuery");
    return true;
  }
  /// What is given to `stream` from now on begins after the point that was recorded last.
  void hold_back(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  struct Traits {
    using Handle = cudaEvent_t;
    static void release(Handle handle) noexcept { static_cast<void>(cudaEventDestroy(handle)); }
  };
  UniqueHandle<Traits> event_;
};

/// What was enqueued on a stream, to be enqueued again as a whole.
class CudaGraph {
 public:
  /// Runs enqueue(stream), which must only enqueue, and keeps it instead of executing it.
  template <typename Enqueue>
  CudaGraph(cudaStream_t stream, Enqueue enqueue) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    cudaGraph_t captured = nullptr;
    try {
      enqueue(stream);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream, &captured));
      const UniqueHandle<GraphTraits> released(captured);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
    const UniqueHandle<GraphTraits> graph(captured);
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
    executable_ = UniqueHandle<ExecutableTraits>(executable);
  }

  void launch(cudaStream_t stream) const {
    check_cuda(cudaGraphLaunch(executable_.get(), stream), "cudaGraphLaunch");
  }

 private:
  struct GraphTraits {
    using Handle = cudaGraph_t;
    static void release(Handle handle) noexcept { static_cast<void>(cudaGraphDestroy(handle)); }
  };
  struct ExecutableTraits {
    using Handle = cudaGraphExec_t;
    static void release(Handle handle) noexcept { static_cast<void>(cudaGraphExecDestroy(handle)); }
  };
  UniqueHandle<ExecutableTraits> executable_;
};

}  // namespace rackrail::runtime

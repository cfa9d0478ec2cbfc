#pragma once

// Small traces of the PyTorch profiler, event by event, times in microseconds.

#include <string>

namespace rackrail::test {

class TraceText {
 public:
  /// `arguments` is JSON of members: "\"device\": 0".
  TraceText& event(const std::string& category, const std::string& name, double start,
                   double duration, int thread, const std::string& arguments = "") {
    events_ += std::string(events_.empty() ? "" : ",\n") + R"({"ph": "X", "cat": ")" + category +
               R"(", "name": ")" + name + R"(", "pid": 1, "tid": )" + std::to_string(thread) +
               R"(, "ts": )" + std::to_string(start) + R"(, "dur": )" + std::to_string(duration) +
               R"(, "args": {)" + arguments + "}}";
    return *this;
  }
  /// A kernel and the call that launched it.
  TraceText& kernel(const std::string& name, double launch, double start, double duration,
                    int thread, const std::string& arguments = "") {
    const std::string id = R"("correlation": )" + std::to_string(++correlation_);
    event("cuda_runtime", "cudaLaunchKernel", launch, 1, thread, id);
    return event("kernel", name, start, duration, 7,
                 id + R"(, "device": 0)" + (arguments.empty() ? "" : ", " + arguments));
  }
  TraceText& gradient(const std::string& function, const std::string& dims, double start,
                      int thread) {
    event("cpu_op", "autograd::engine::evaluate_function: " + function, start - 2, 1, thread);
    return event("cpu_op", "torch::autograd::AccumulateGrad", start, 1, thread,
                 R"("Input Dims": [)" + dims + R"(], "Input type": ["float"])");
  }
  std::string text() const {
    return R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
      "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4},
      "traceEvents": [)" +
           events_ + "]}";
  }

 private:
  std::string events_;
  int correlation_ = 0;
};

/// One step of 1 ms of two layers on 4 ranks: forward 100 µs, backward 300 µs, an all-reduce of
/// 4 MB half of which is beside backward, the optimiser 50 µs.
inline TraceText small_step() {
  TraceText trace;
  trace.event("user_annotation", "ProfilerStep#3", 1'000'000, 1'000, 1)
      .event("user_annotation", "DistributedDataParallel.forward", 1'000'010, 100, 1)
      .event("cpu_op", "aten::linear", 1'000'015, 20, 1,
             R"("Input Dims": [[32, 512], [1000, 512], []], "Input type": ["float", "float", ""])")
      .kernel("gemm", 1'000'020, 1'000'100, 100, 1)
      .event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 1'000'199, 10, 2)
      .kernel("gemm_backward", 1'000'200, 1'000'220, 100, 2)
      .gradient("AddmmBackward0", "[1000, 512]", 1'000'210, 2)
      .event("user_annotation", "nccl:all_reduce", 1'000'214, 10, 2,
             R"("Input Dims": [[1000000]], "Input type": ["float"])")
      .kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclWork*)", 1'000'216, 1'000'320, 400, 2)
      .kernel("gemm_backward", 1'000'230, 1'000'320, 200, 2)
      .gradient("AddmmBackward0", "[512]", 1'000'240, 2)
      .event("user_annotation", "Optimizer.step#SGD.step", 1'000'300, 50, 1)
      .kernel("multi_tensor_apply", 1'000'310, 1'000'730, 50, 1);
  return trace;
}

}  // namespace rackrail::test

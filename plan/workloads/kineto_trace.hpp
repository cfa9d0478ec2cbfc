// What a trace of the PyTorch profiler (Kineto, Chrome's trace format) says of training steps.
//
// Of its events these are kept: work on the GPU, the calls that launched it, collectives, gradients
// that were accumulated, and annotations of steps, forward and optimiser. All else is skipped while
// the text is parsed, so memory grows with these events and not with the file.
//
// Times are microseconds from the first event on, as traces have them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/workloads/collective_names.hpp"

namespace rackrail::plan {

struct Span {
  double start = 0;
  double end = 0;
  double length() const { return end - start; }
  bool contains(double time) const { return time >= start && time <= end; }
};

/// A collective as the trace describes it, on the CPU or beside its kernel.
struct TracedCollective {
  Span span{};
  CollectiveKind kind = CollectiveKind::kOther;
  std::int64_t bytes = 0;       ///< as nccl-tests counts them; 0: not known
  std::int64_t group_size = 0;  ///< 0: not known
  std::string dtype{};
};

/// Work on the GPU.
struct TracedKernel {
  Span span{};
  double launch = 0;        ///< when the CPU asked for it; `span.start` where the trace has no call
  std::int64_t thread = 0;  ///< that asked; -1 unknown
  bool is_copy = false;
  std::optional<TracedCollective> collective{};
};

/// One gradient that was accumulated, by the CPU's clock.
struct TracedGradient {
  Span span{};
  std::int64_t thread = 0;
  std::vector<std::int64_t> shape{};
  std::int64_t width = 0;  ///< bytes of an element; 0: shapes were not recorded
  std::string function{};  ///< of autograd that made it: "ConvolutionBackward0"
};

struct TracedAnnotation {
  Span span{};
  std::int64_t thread = 0;
  std::string name{};
};

struct Trace {
  std::vector<TracedKernel> kernels;              ///< by start; those of one GPU
  std::vector<TracedGradient> gradients;          ///< by start
  std::vector<TracedAnnotation> annotations;      ///< steps, forward, optimiser; by start
  std::vector<Span> steps;                        ///< at least one
  std::vector<Span> cpu_work;                     ///< operators, where there is no GPU
  std::vector<TracedCollective> cpu_collectives;  ///< where there is no GPU
  std::vector<double> backward_functions;         ///< when functions of backward began; ascending
  std::int64_t batch = 0;                         ///< 0: not known
  std::int64_t world_size = 0;                    ///< 0: not known
  std::string device;                             ///< "NVIDIA A100-SXM4-40GB"; empty: none
  std::vector<std::string> notes;                 ///< what was assumed, one line each

  Span all_steps() const { return {steps.front().start, steps.back().end}; }
};

/// Whether the text looks like such a trace.
bool is_trace(std::string_view content);

/// Throws ConfigError (file, found, expected).
Trace read_trace(const std::string& file, std::string_view content);

}  // namespace rackrail::plan

// A trace of the PyTorch profiler as a workload: the gradients of one step in the order in which
// they were accumulated, each ready when the last kernel that was launched before it had ended.
//
// Where the trace has no shapes of gradients, the all-reduces of backward stand for them: they are
// the buckets of DistributedDataParallel, ready when they were launched.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <ranges>

#include "base/error.hpp"
#include "plan/device_class.hpp"
#include "plan/workloads/formats.hpp"
#include "plan/workloads/kineto_trace.hpp"

namespace rackrail::plan {
namespace {

Duration duration_of(double microseconds) {
  return Duration(std::llround(std::max(microseconds, 0.0) * 1e6));
}

/// "NVIDIA A100-SXM4-40GB" is an A100.
std::string_view class_of(std::string_view device) {
  const DeviceClass* likeliest = likeliest_device_class(device);
  return likeliest == nullptr ? std::string_view() : likeliest->name;
}

/// One step of a trace.
class StepOfTrace {
 public:
  StepOfTrace(const Trace& trace, const Span& step) : trace_(trace), step_(step) {
    for (const TracedKernel& kernel : trace.kernels) {
      if (step.contains(kernel.launch) && !kernel.collective) {
        kernels_.push_back(&kernel);
      }
    }
    std::ranges::stable_sort(kernels_, {}, [](const TracedKernel* one) { return one->launch; });
  }

  std::vector<const TracedGradient*> gradients() const {
    std::vector<const TracedGradient*> found;
    for (const TracedGradient& one : trace_.gradients) {
      if (step_.contains(one.span.start) && elements_of(one) > 0) {
        found.push_back(&one);
      }
    }
    return found;
  }

  /// In elements of FP32; 0 where its size is not known.
  static std::int64_t elements_of(const TracedGradient& one) {
    std::int64_t elements = 1;
    for (const std::int64_t size : one.shape) {
      if (size < 1 || elements > kLargestTensor / size) {
        return 0;
      }
      elements *= size;
    }
    return elements_of_width(elements, one.width);
  }

  /// When the CPU begins with backward; the end of the step without backward.
  double backward_launch() const {
    const auto first = std::ranges::lower_bound(trace_.backward_functions, step_.start);
    return first == trace_.backward_functions.end() ? step_.end : std::min(*first, step_.end);
  }

  /// When forward begins, where the device has work; on the CPU where it has none.
  double forward_start() const {
    double from = step_.start;
    for (const TracedAnnotation& one : trace_.annotations) {
      if (one.name.find("DataParallel.forward") != std::string::npos &&
          step_.contains(one.span.start)) {
        from = one.span.start;
        break;
      }
    }
    const auto first = std::ranges::find_if(kernels_, [&](const TracedKernel* one) {
      return one->launch >= from && one->launch < backward_launch() && !one->is_copy;
    });
    return first == kernels_.end() ? from : (*first)->span.start;
  }

  /// The first kernel of backward; without one, when the CPU begins with it.
  double backward_start(double first_gradient) const {
    const double from = backward_launch();
    const auto first = std::ranges::find_if(
        kernels_, [&](const TracedKernel* one) { return one->launch >= from; });
    return std::min(first == kernels_.end() ? from : (*first)->span.start, first_gradient);
  }

  /// The end of the last kernel that was launched until then; that time itself on a CPU.
  double done_when_launched_until(double time) {
    while (next_ < kernels_.size() && kernels_[next_]->launch <= time) {
      done_ = std::max(done_, kernels_[next_]->span.end);
      ++next_;
    }
    return kernels_.empty() ? time : std::max(done_, step_.start);
  }

  Duration optimizer() const {
    double time = 0;
    for (const TracedAnnotation& mark : trace_.annotations) {
      if (!mark.name.starts_with("Optimizer.step#") || !step_.contains(mark.span.start)) {
        continue;
      }
      if (kernels_.empty()) {
        time += mark.span.length();
        continue;
      }
      double first = std::numeric_limits<double>::infinity();
      double last = 0;
      for (const TracedKernel* one : kernels_) {
        if (mark.span.contains(one->launch)) {
          first = std::min(first, one->span.start);
          last = std::max(last, one->span.end);
        }
      }
      time += std::max(last - first, 0.0);
    }
    return duration_of(time);
  }

  const Span& span() const { return step_; }

 private:
  const Trace& trace_;
  Span step_;
  std::vector<const TracedKernel*> kernels_;  ///< by launch, without collectives
  std::size_t next_ = 0;
  double done_ = 0;
};

struct ReadyTensor {
  GradientTensor tensor;
  double ready = 0;
};

std::vector<ReadyTensor> accumulated(StepOfTrace& step) {
  std::vector<ReadyTensor> tensors;
  for (const TracedGradient* one : step.gradients()) {
    GradientTensor tensor{.name = fmt::format("{}.{}", tensors.size(),
                                              one->function.empty() ? "gradient" : one->function),
                          .elements = StepOfTrace::elements_of(*one)};
    if (one->shape.size() > 1 && one->width == 4) {
      const std::int64_t rows = one->shape.front();
      tensor.shape = MatrixShape{rows, tensor.elements / rows};
    }
    tensors.push_back({std::move(tensor), step.done_when_launched_until(one->span.end)});
  }
  return tensors;
}

std::vector<ReadyTensor> buckets(const Trace& trace, StepOfTrace& step) {
  std::vector<ReadyTensor> tensors;
  std::vector<const TracedKernel*> kernels;
  for (const TracedKernel& one : trace.kernels) {
    if (one.collective && step.span().contains(one.launch) &&
        one.launch >= step.backward_launch() && one.collective->bytes > 0 &&
        (one.collective->kind == CollectiveKind::kAllReduce ||
         one.collective->kind == CollectiveKind::kReduceScatter)) {
      kernels.push_back(&one);
    }
  }
  std::ranges::stable_sort(kernels, {}, [](const TracedKernel* one) { return one->launch; });
  for (const TracedKernel* one : kernels) {
    tensors.push_back({{.name = fmt::format("bucket.{}", tensors.size()),
                        .elements = elements_of_width(one->collective->bytes, 1)},
                       step.done_when_launched_until(one->launch)});
  }
  return tensors;
}

/// The last of the steps that have the most gradients, and is whole therefore.
std::vector<ReadyTensor> best_step(const Trace& trace, std::optional<StepOfTrace>& best,
                                   bool with_buckets) {
  std::vector<ReadyTensor> kept;
  constexpr std::size_t kLooked = 16;  // of the last steps
  for (const Span& span : trace.steps | std::views::reverse | std::views::take(kLooked)) {
    StepOfTrace step(trace, span);
    std::vector<ReadyTensor> tensors = with_buckets ? buckets(trace, step) : accumulated(step);
    if (tensors.size() > kept.size()) {
      kept = std::move(tensors);
      best.emplace(trace, span);
    }
  }
  return kept;
}

Workload workload_of(const Trace& trace, const std::string& file, const std::string& name) {
  Workload workload;
  workload.notes = trace.notes;
  std::optional<StepOfTrace> step;
  std::vector<ReadyTensor> tensors = best_step(trace, step, false);
  if (tensors.empty()) {
    tensors = best_step(trace, step, true);
    workload.notes.push_back(fmt::format(
        "{}: no shapes of gradients, so the all-reduces of backward stand for them; profile with "
        "record_shapes=True for the gradients themselves",
        file));
  }
  if (tensors.empty()) {
    throw ConfigError(ErrorContext{
        file, "traceEvents", "neither shapes of gradients nor all-reduces of backward",
        "a trace of training steps, profiled with record_shapes=True; 'rackrail explain' tells "
        "where the time of this one goes"});
  }
  if (tensors.size() > kMostTensors) {
    throw ConfigError(ErrorContext{file, "traceEvents", fmt::format("{} gradients", tensors.size()),
                                   fmt::format("at most {}", kMostTensors)});
  }
  double before = step->backward_start(tensors.front().ready);
  workload.forward = duration_of(before - step->forward_start());
  for (ReadyTensor& one : tensors) {
    one.tensor.ready_gap = std::min(duration_of(one.ready - before), kLongestTime);
    before = std::max(before, one.ready);
    workload.tensors.push_back(std::move(one.tensor));
  }
  workload.optimizer = step->optimizer();
  workload.name = name;
  workload.source = fmt::format("trace of the PyTorch profiler {}", name);
  workload.device_class = class_of(trace.device);
  workload.profiled_batch = std::clamp<std::int64_t>(trace.batch, 1, std::int64_t{1} << 32U);
  workload.notes.push_back(
      fmt::format("{}: {} gradients of one step, {}; {}", file, workload.tensors.size(),
                  trace.batch > 0 ? fmt::format("batch {} by the first layer's input", trace.batch)
                                  : "its batch is not known and counts as one sample",
                  workload.device_class.empty()
                      ? fmt::format("times are those of '{}', on every device", trace.device)
                      : fmt::format("times are of {}", workload.device_class)));
  return workload;
}

class KinetoReader : public WorkloadReader {
 public:
  std::string_view format() const override { return "trace of the PyTorch profiler"; }
  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    return is_trace(content);
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& /*options*/) const override {
    return workload_of(read_trace(path.string(), content), path.string(), stem_of(path));
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_kineto_reader() { return std::make_unique<KinetoReader>(); }

}  // namespace rackrail::plan

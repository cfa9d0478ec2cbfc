#include "plan/workloads/kineto_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/workloads/formats.hpp"
#include "plan/workloads/trace_events.hpp"

namespace rackrail::plan {
namespace {

constexpr std::size_t kMostEvents = 20'000'000;
constexpr double kLongest = 1e12;  // microseconds; eleven days

constexpr std::string_view kFunction = "autograd::engine::evaluate_function: ";
constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";

struct Launch {
  double time = 0;
  std::int64_t thread = -1;
};

std::int64_t product(const std::vector<std::int64_t>& dims) {
  std::int64_t elements = 1;
  for (const std::int64_t size : dims) {
    if (size < 0 || size > kLargestTensor || elements > kLargestTensor) {
      return 0;
    }
    elements *= size;
  }
  return elements <= kLargestTensor ? elements : 0;
}

bool is_nccl(std::string_view name) {
  return name.find("nccl") != std::string_view::npos ||
         name.find("rccl") != std::string_view::npos ||
         name.find("cross_device_reduce") != std::string_view::npos;
}

/// "nccl:all_reduce", "gloo:all_reduce".
bool is_collective_annotation(std::string_view name) {
  return name.starts_with("nccl:") || name.starts_with("gloo:") || name.starts_with("mpi:") ||
         name.starts_with("ucc:") || name.starts_with("xccl:");
}

/// What the event's own fields say; the bytes are those that nccl-tests counts.
TracedCollective collective_from(const TraceEvent& event) {
  TracedCollective one;
  one.span = {event.start, event.start + event.duration};
  one.kind = collective_of(event.collective.empty() ? event.name : event.collective);
  if (one.kind == CollectiveKind::kOther && !event.collective.empty()) {
    one.kind = collective_of(event.name);
  }
  one.group_size = std::max<std::int64_t>(event.group_size, 0);
  one.dtype = event.dtype;
  std::int64_t elements =
      std::max(event.in_elements,
               one.kind == CollectiveKind::kReduceScatter ? event.in_elements : event.out_elements);
  if (elements < 0 && is_collective_annotation(event.name) && !event.types.empty()) {
    one.dtype = event.types.front();
    elements = 0;
    for (const auto& dims : event.dims) {
      elements = std::min(elements + product(dims), kLargestTensor);
    }
  }
  const std::optional<std::int64_t> width = width_of_type(one.dtype);
  if (width && elements > 0 && elements <= kLargestTensor) {
    one.bytes = elements * *width;
  }
  return one;
}

/// One collective each; calls within another one of the same thread say more of that.
void merge_nested(const std::vector<TracedCollective>& calls, std::vector<TracedCollective>& all) {
  const std::size_t first = all.size();
  for (const TracedCollective& call : calls) {
    if (all.size() == first || call.span.start >= all.back().span.end) {
      all.push_back(call);
      continue;
    }
    TracedCollective& outer = all.back();
    outer.kind = outer.kind == CollectiveKind::kOther ? call.kind : outer.kind;
    outer.bytes = std::max(outer.bytes, call.bytes);
    outer.group_size = std::max(outer.group_size, call.group_size);
  }
}

class TraceCollector {
 public:
  explicit TraceCollector(const std::string& file) : file_(file) {}

  void take(TraceEvent& event) {
    if (!(std::abs(event.start) < 1e18) || !(event.duration >= 0 && event.duration < kLongest)) {
      return;
    }
    if (!has_origin_) {
      origin_ = event.start;
      has_origin_ = true;
    }
    event.start -= origin_;
    if (!(std::abs(event.start) < kLongest)) {
      throw ConfigError(ErrorContext{
          file_, "", fmt::format("events {:.0f} s apart", std::abs(event.start) * 1e-6),
          fmt::format("a trace of less than {:.0f} s", kLongest * 1e-6)});
    }
    if (event.category == "kernel" || event.category.starts_with("gpu_mem")) {
      take_kernel(event);
    } else if (event.category.ends_with("_runtime") || event.category.ends_with("_driver") ||
               event.category == "Runtime") {
      launches_[event.correlation] = {event.start, event.thread};
    } else if (event.category == "cpu_op" || event.category == "Operator") {
      take_operator(event);
    } else if (event.category == "user_annotation") {
      take_annotation(event);
    }
    if (count_++ > kMostEvents) {
      throw ConfigError(ErrorContext{file_, "", fmt::format("over {} events", kMostEvents),
                                     "a trace of fewer steps"});
    }
  }

  Trace finish(const TraceHead& head);

 private:
  using DeviceKernel = std::pair<std::int64_t, TracedKernel>;

  static Span span_of(const TraceEvent& event) {
    return {event.start, event.start + event.duration};
  }

  void take_kernel(TraceEvent& event) {
    TracedKernel kernel;
    kernel.span = span_of(event);
    kernel.launch = event.start;
    kernel.thread = event.correlation;  // until finish() knows all launches
    kernel.is_copy = event.category != "kernel";
    if (!kernel.is_copy && is_nccl(event.name)) {
      kernel.collective = collective_from(event);
    }
    kernels_.emplace_back(event.device, std::move(kernel));
  }

  void take_operator(TraceEvent& event) {
    if (event.name == kAccumulate) {
      take_gradient(event);
    } else if (event.name.starts_with(kFunction)) {
      if (const std::string name = event.name.substr(kFunction.size()); name != kAccumulate) {
        functions_.push_back({span_of(event), event.thread, name});
      }
    } else if (event.name == "record_param_comms" || is_collective_annotation(event.name)) {
      take_call(event);
      return;
    } else if (event.name == "aten::conv2d" || event.name == "aten::embedding" ||
               event.name == "aten::linear") {
      take_batch(event);
    }
    if (!event.name.starts_with("c10d::")) {
      cpu_work_.push_back(span_of(event));
    }
  }

  void take_gradient(const TraceEvent& event) {
    const std::string type = event.types.empty() ? "" : event.types.front();
    if (!event.types.empty() && type.empty()) {
      return;  // of a tensor that is none
    }
    TracedGradient gradient;
    gradient.span = span_of(event);
    gradient.thread = event.thread;
    if (!event.dims.empty()) {
      gradient.shape = event.dims.front();
      gradient.width = width_of_type(type).value_or(0);
    }
    gradients_.push_back(std::move(gradient));
  }

  void take_annotation(TraceEvent& event) {
    if (is_collective_annotation(event.name)) {
      take_call(event);
      return;
    }
    const std::string_view name = event.name;
    if (name.starts_with("ProfilerStep#") || name.starts_with("Optimizer.step#") ||
        name.find("DataParallel.forward") != std::string_view::npos) {
      annotations_.push_back({span_of(event), event.thread, std::move(event.name)});
    }
  }

  void take_call(const TraceEvent& event) {
    TracedCollective call = collective_from(event);
    if (call.kind != CollectiveKind::kOther || call.bytes > 0) {
      calls_[event.thread].push_back(std::move(call));
    }
  }

  /// The first dimension of what goes into the first layer, if the trace has it.
  void take_batch(const TraceEvent& event) {
    const std::size_t input = event.name == "aten::embedding" ? 1 : 0;
    if (event.dims.size() <= input || event.dims[input].size() < 2 ||
        (has_batch_ && event.start >= batch_time_)) {
      return;
    }
    has_batch_ = true;
    batch_time_ = event.start;
    batch_ = event.dims[input].front();
  }

  void keep_one_device();
  void link_launches();
  /// What the call that launched a collective says where its kernel does not.
  void describe(TracedKernel& kernel) const;
  void name_functions();
  void find_steps(Trace& trace) const;
  bool has_steps(Trace& trace, std::string_view prefix) const;

  const std::string& file_;
  bool has_origin_ = false;
  double origin_ = 0;
  std::size_t count_ = 0;
  std::vector<DeviceKernel> kernels_;
  std::unordered_map<std::int64_t, Launch> launches_;
  std::map<std::int64_t, std::vector<TracedCollective>> calls_;  ///< by thread
  std::vector<TracedGradient> gradients_;
  std::vector<TracedAnnotation> annotations_;
  std::vector<TracedAnnotation> functions_;
  std::vector<Span> cpu_work_;
  bool has_batch_ = false;
  double batch_time_ = 0;
  std::int64_t batch_ = 0;
  std::vector<std::string> notes_;
};

void TraceCollector::keep_one_device() {
  std::map<std::int64_t, std::size_t> counts;
  for (const auto& [device, kernel] : kernels_) {
    ++counts[device];
  }
  if (counts.size() < 2) {
    return;
  }
  const std::int64_t kept =
      std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; })->first;
  std::erase_if(kernels_, [kept](const DeviceKernel& one) { return one.first != kept; });
  notes_.push_back(fmt::format("{}: of {} GPUs in the trace the busiest is looked at, {}", file_,
                               counts.size(), kept));
}

void TraceCollector::describe(TracedKernel& kernel) const {
  TracedCollective& one = *kernel.collective;
  const auto calls = calls_.find(kernel.thread);
  if (one.bytes > 0 || calls == calls_.end()) {
    return;
  }
  // The last call that had begun when the kernel was launched and had not ended.
  const auto& list = calls->second;
  auto after = std::ranges::upper_bound(
      list, kernel.launch, {}, [](const TracedCollective& call) { return call.span.start; });
  constexpr int kLooked = 8;  // an annotation and what it is nested in
  for (int looked = 0; looked < kLooked && after != list.begin(); ++looked) {
    const TracedCollective& call = *--after;
    if (!call.span.contains(kernel.launch)) {
      continue;
    }
    one.kind = call.kind != CollectiveKind::kOther ? call.kind : one.kind;
    if (call.bytes > 0 && one.bytes == 0) {
      one.bytes = call.bytes;
      one.dtype = call.dtype;
    }
    one.group_size = std::max(one.group_size, call.group_size);
  }
}

void TraceCollector::link_launches() {
  for (auto& [thread, list] : calls_) {
    std::ranges::sort(list, {}, [](const TracedCollective& call) { return call.span.start; });
  }
  for (auto& [device, kernel] : kernels_) {
    const auto launch = launches_.find(kernel.thread);
    kernel.thread = -1;
    if (launch != launches_.end() && launch->first >= 0) {
      kernel.launch = launch->second.time;
      kernel.thread = launch->second.thread;
    }
    if (kernel.collective) {
      describe(kernel);
    }
  }
}

void TraceCollector::name_functions() {
  std::ranges::sort(functions_, {}, [](const TracedAnnotation& one) { return one.span.start; });
  std::map<std::int64_t, std::string> last;
  std::size_t next = 0;
  for (TracedGradient& gradient : gradients_) {
    while (next < functions_.size() && functions_[next].span.start <= gradient.span.start) {
      last[functions_[next].thread] = functions_[next].name;
      ++next;
    }
    gradient.function = last[gradient.thread];
  }
}

bool TraceCollector::has_steps(Trace& trace, std::string_view prefix) const {
  std::vector<Span> marks;
  for (const TracedAnnotation& one : annotations_) {
    if (one.name.starts_with(prefix)) {
      marks.push_back(one.span);
    }
  }
  if (prefix.starts_with("Optimizer")) {
    // From the end of one to the end of the next. Several optimisers of a step stand close.
    for (std::size_t i = 1; i < marks.size(); ++i) {
      trace.steps.push_back({marks[i - 1].end, marks[i].end});
    }
    return !trace.steps.empty();
  }
  trace.steps = std::move(marks);
  return !trace.steps.empty();
}

void TraceCollector::find_steps(Trace& trace) const {
  if (has_steps(trace, "ProfilerStep#")) {
    return;
  }
  if (has_steps(trace, "Optimizer.step#")) {
    trace.notes.push_back(fmt::format(
        "{}: no ProfilerStep, so a step is from one Optimizer.step to the next", file_));
    return;
  }
  Span all{1e300, -1e300};
  const auto widen = [&all](const Span& span) {
    all.start = std::min(all.start, span.start);
    all.end = std::max(all.end, span.end);
  };
  for (const TracedKernel& kernel : trace.kernels) {
    widen(kernel.span);
  }
  for (const Span& span : trace.cpu_work) {
    widen(span);
  }
  trace.steps = {all};
  trace.notes.push_back(fmt::format(
      "{}: neither ProfilerStep nor Optimizer.step, so all of it counts as one step", file_));
}

Trace TraceCollector::finish(const TraceHead& head) {
  keep_one_device();
  link_launches();
  const auto by_start = [](const auto& one) { return one.span.start; };
  std::ranges::sort(gradients_, {}, by_start);
  std::ranges::sort(annotations_, {}, by_start);
  name_functions();
  Trace trace;
  trace.notes = std::move(notes_);
  for (auto& [device, kernel] : kernels_) {
    trace.kernels.push_back(std::move(kernel));
  }
  std::ranges::sort(trace.kernels, {}, by_start);
  trace.gradients = std::move(gradients_);
  for (const TracedAnnotation& one : functions_) {
    trace.backward_functions.push_back(one.span.start);
  }
  if (trace.kernels.empty()) {
    trace.cpu_work = std::move(cpu_work_);
    for (auto& [thread, list] : calls_) {
      merge_nested(list, trace.cpu_collectives);
    }
    std::ranges::sort(trace.cpu_collectives, {}, by_start);
  }
  if (trace.kernels.empty() && trace.cpu_work.empty()) {
    throw ConfigError(
        ErrorContext{file_, "traceEvents", "no work of a GPU and no operators",
                     "a trace of the PyTorch profiler, with activities CPU and CUDA"});
  }
  find_steps(trace);
  trace.annotations = std::move(annotations_);
  trace.batch = has_batch_ ? batch_ : 0;
  trace.world_size = std::max<std::int64_t>(head.world_size, 0);
  trace.device = head.device;
  return trace;
}

}  // namespace

bool is_trace(std::string_view content) {
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return false;
  }
  return content[first] == '{' ? content.find("\"traceEvents\"") != std::string_view::npos
                               : content[first] == '[' && is_json_with(content, "ph");
}

Trace read_trace(const std::string& file, std::string_view content) {
  TraceCollector collector(file);
  const TraceHead head =
      for_each_event(file, content, [&collector](TraceEvent& event) { collector.take(event); });
  return collector.finish(head);
}

}  // namespace rackrail::plan

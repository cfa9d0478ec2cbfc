#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "plan/device_class.hpp"
#include "plan/workloads/formats.hpp"
#include "plan/workloads/transformer.hpp"

namespace rackrail::plan {
namespace {

// The device that times are counted for. Its matrix units do BF16, in which transformers are
// trained, at twice the TF32 rate of the table (A100 data sheet: 312 and 156 TFLOP/s).
constexpr std::string_view kDevice = "A100";
constexpr double kHalfPrecision = 2;
// Of that peak: 41.5 to 56 % with selective recomputation (Korthikanti et al., table 5), 38 to 43 %
// for Llama 3 405B (arXiv 2407.21783, table 4).
constexpr double kUtilisation = 0.4;
// Adam reads and writes parameter and moments and reads the gradient, in FP32.
constexpr double kOptimizerBytes = 28;
constexpr double kMemoryUtilisation = 0.8;
// BF16 parameter; FP32 parameter and the two moments of Adam (Rajbhandari et al., arXiv
// 1910.02054); the gradient comes on top.
constexpr std::int64_t kStateBytes = 2 + 12;

constexpr std::int64_t kUsualSequence = 4096;
constexpr std::int64_t kLongestSequence = std::int64_t{1} << 24U;

struct Dtype {
  std::string_view name;
  std::string_view long_name;
  std::int64_t width;
};
constexpr std::array kDtypes{Dtype{"fp32", "float32", 4}, Dtype{"bf16", "bfloat16", 2},
                             Dtype{"fp16", "float16", 2}};

const Dtype& dtype_of(const WorkloadOptions& options) {
  if (options.dtype.empty()) {
    return kDtypes.front();
  }
  const auto found = std::ranges::find_if(kDtypes, [&](const Dtype& one) {
    return one.name == options.dtype || one.long_name == options.dtype;
  });
  if (found == kDtypes.end()) {
    throw ConfigError(ErrorContext{"<command line>", "--dtype", fmt::format("'{}'", options.dtype),
                                   "fp32, bf16 or fp16"});
  }
  return *found;
}

std::int64_t sequence_of(const Transformer& model, const std::string& file,
                         const WorkloadOptions& options) {
  const auto refuse = [&](const std::string& expected) {
    throw ConfigError(
        ErrorContext{"<command line>", "--sequence", std::to_string(*options.sequence), expected});
  };
  if (model.fixed_sequence > 0) {
    if (options.sequence) {
      refuse(fmt::format("none: {} says what a sample is, {} tokens", file, model.fixed_sequence));
    }
    return model.fixed_sequence;
  }
  const std::int64_t most = model.positions > 0 ? model.positions : kLongestSequence;
  if (!options.sequence) {
    return std::min(kUsualSequence, most);
  }
  if (*options.sequence < 1 || *options.sequence > most) {
    refuse(fmt::format("from 1 to {}, the positions that {} has", most, file));
  }
  return *options.sequence;
}

class StepCost {
 public:
  explicit StepCost(std::int64_t tokens)
      : tokens_(static_cast<double>(tokens)),
        rate_(kUtilisation * kHalfPrecision * find_device_class(kDevice)->matrix_tflops * 1e12) {}

  /// FLOPs of one sample's forward.
  double forward(const ModelPart& part) const {
    const double scores = 2 * tokens_ * tokens_ * static_cast<double>(part.score_width);
    const double product =
        part.columns > 0 ? 2 * tokens_ * part.uses * static_cast<double>(part.elements()) : 0;
    return product + scores;
  }

  Duration time(double flops, const std::string& file, const char* what, Duration most) const {
    const double picoseconds = flops / rate_ * 1e12;
    if (!(picoseconds <= static_cast<double>(most.picoseconds()))) {
      throw ConfigError(ErrorContext{
          file, what, fmt::format("{:.3g} FLOP of one sequence, {:.3g} s", flops, flops / rate_),
          fmt::format("at most {}: a shorter --sequence", to_string(most))});
    }
    return Duration(std::llround(picoseconds));
  }

 private:
  double tokens_;
  double rate_;
};

void add_gradients(const Transformer& model, const StepCost& cost, std::int64_t width,
                   const std::string& file, Workload& workload) {
  double waiting = 0;  // backward FLOPs since the gradient before
  for (const ModelPart& part : std::views::reverse(model.parts)) {
    waiting += 2 * cost.forward(part);
    if (!part.has_gradient()) {
      continue;
    }
    GradientTensor tensor{.name = part.name,
                          .elements = elements_of_width(part.elements(), width),
                          .ready_gap = cost.time(waiting, file, part.name.c_str(), kLongestTime)};
    if (part.columns > 0 && width == 4) {
      tensor.shape = MatrixShape{part.rows, part.columns};
    }
    workload.tensors.push_back(std::move(tensor));
    waiting = 0;
  }
  workload.backward_tail = cost.time(waiting, file, "backward", kLongestTime);
}

std::string with_commas(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (auto place = std::ssize(digits) - 3; place > 0; place -= 3) {
    digits.insert(static_cast<std::size_t>(place), ",");
  }
  return digits;
}

void add_notes(const Transformer& model, const std::string& file, std::int64_t parameters,
               std::int64_t sequence, const Dtype& dtype, double forward, Workload& workload) {
  const auto note = [&](const std::string& text) {
    workload.notes.push_back(fmt::format("{}: {}", file, text));
  };
  note(
      fmt::format("{} with {} parameters; a sample is {} tokens{}, {:.3g} FLOP a step; gradients "
                  "are {} (--dtype)",
                  model.type, with_commas(parameters), sequence,
                  model.fixed_sequence > 0 ? "" : " (--sequence)", 3 * forward, dtype.name));
  note(fmt::format(
      "times are counted, not measured: FLOPs at {:g} % of the {:g} TFLOP/s that an "
      "{} does in BF16, scaled to other devices; activations without scores; "
      "optimiser Adam",
      100 * kUtilisation, kHalfPrecision * find_device_class(kDevice)->matrix_tflops, kDevice));
  if (model.experts > 0) {
    note(
        fmt::format("every rank holds all {} experts of a layer and reduces their gradients; a "
                    "token computes with {} of them",
                    model.experts, model.experts_per_token));
  }
  if (dtype.width != 4) {
    workload.notes.push_back(width_note(file, Bytes(parameters * dtype.width)));
  }
  for (const std::string& text : model.notes) {
    note(text);
  }
}

}  // namespace

Workload workload_of(const Transformer& model, const std::string& file, const std::string& name,
                     const WorkloadOptions& options) {
  const Dtype& dtype = dtype_of(options);
  const std::int64_t sequence = sequence_of(model, file, options);
  const StepCost cost(sequence);
  double forward = 0;
  std::int64_t parameters = 0;
  for (const ModelPart& part : model.parts) {
    forward += cost.forward(part);
    parameters += part.has_gradient() ? part.elements() : 0;
  }
  Workload workload;
  workload.name = name;
  workload.source = fmt::format("counted from the config.json of {}, {} tokens, gradients in {}",
                                name, sequence, dtype.name);
  workload.device_class = kDevice;
  workload.profiled_batch = 1;
  workload.fixed_share = 0;  // FLOPs grow with the batch
  workload.forward = cost.time(forward, file, "forward", kLongestTime);
  add_gradients(model, cost, dtype.width, file, workload);
  const double rate = kMemoryUtilisation *
                      static_cast<double>(find_device_class(kDevice)->memory.bytes_per_second());
  workload.optimizer =
      Duration(std::llround(kOptimizerBytes * static_cast<double>(parameters) / rate * 1e12));
  workload.memory_fixed = Bytes(parameters * (kStateBytes + dtype.width));
  workload.memory_per_sample =
      Bytes(std::llround(model.activation_bytes_per_token * static_cast<double>(sequence)));
  add_notes(model, file, parameters, sequence, dtype, forward, workload);
  return workload;
}

}  // namespace rackrail::plan

#include "plan/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "plan/device_class.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {
namespace {

constexpr std::int64_t kSmallTensor = std::int64_t{64} * 1024;

/// Whether one word of a parameter's name says that it belongs to a normalisation layer: "norm1",
/// "LayerNorm", "bn2", "ln_f", "ln_1".
bool names_norm(std::string_view word) {
  std::string lower(word);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower.find("norm") != std::string::npos) {
    return true;
  }
  if (!lower.starts_with("bn") && !lower.starts_with("ln")) {
    return false;
  }
  return std::all_of(lower.begin() + 2, lower.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0 || c == '_' || c == 'f'; });
}

/// Time of a V100's step that a device needs for the same step; the rule is in the header.
double relative_step_time(const topology::DeviceFigures& device) {
  const DeviceClass& reference = *find_device_class("V100");
  return 0.5 * reference.matrix_tflops / device.matrix_tflops +
         0.5 * (reference.memory / device.memory);
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

bool GradientTensor::is_protected() const {
  if (elements < kSmallTensor) {
    return true;
  }
  std::string_view rest = name;
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view word = rest.substr(0, dot);
    if (names_norm(word)) {
      return true;
    }
    if (dot == std::string_view::npos) {
      return word == "bias";
    }
    rest.remove_prefix(dot + 1);
  }
}

std::int64_t Workload::elements() const {
  std::int64_t sum = 0;
  for (const GradientTensor& tensor : tensors) {
    sum = detail::checked_add(sum, tensor.elements);
  }
  return sum;
}

Duration Workload::backward() const {
  Duration sum = backward_tail;
  for (const GradientTensor& tensor : tensors) {
    sum += tensor.ready_gap;
  }
  return sum;
}

CodecError Workload::sourced_codec_error(const Codec& codec) const {
  const auto measured = codec_errors.find(to_string(codec));
  return measured == codec_errors.end() ? usual_error(codec)
                                        : CodecError{measured->second, ErrorSource::kModelFile};
}

std::string Workload::digest() const {
  std::string text;
  for (const GradientTensor& tensor : tensors) {
    // The length keeps two lists apart whatever characters the names have.
    text += fmt::format("{} {} {}\n", tensor.name.size(), tensor.name, tensor.elements);
  }
  return sha256_hex(text);
}

std::filesystem::path workload_path(const std::string& name_or_path,
                                    const std::filesystem::path& configs) {
  std::error_code ignored;
  std::filesystem::path path = name_or_path;
  if (std::filesystem::exists(path, ignored)) {
    return path;
  }
  const auto shipped = shipped_workloads(configs);
  if (std::find(shipped.begin(), shipped.end(), name_or_path) == shipped.end()) {
    throw ConfigError(
        ErrorContext{.file = name_or_path,
                     .where = {},
                     .found = "no such file",
                     .expected = fmt::format("a workload file, or one of: {}", joined(shipped))});
  }
  return configs / "models" / (name_or_path + ".yaml");
}

std::vector<std::string> shipped_workloads(const std::filesystem::path& configs) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(configs / "models", ignored)) {
    if (entry.path().extension() == ".yaml") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<double> compute_scale(std::string_view from_class, std::string_view to_class) {
  if (from_class == to_class) {
    return 1.0;
  }
  const DeviceClass* from = likeliest_device_class(from_class);
  const DeviceClass* to = likeliest_device_class(to_class);
  if (from == nullptr || to == nullptr) {
    return std::nullopt;
  }
  return relative_step_time(*to) / relative_step_time(*from);
}

namespace {

/// None where there is nothing to go by.
const topology::DeviceFigures* known_figures(const topology::Node& node) {
  const bool is_known = node.figures != nullptr || node.kind == topology::NodeKind::kGpu ||
                        likeliest_device_class(node.device_class) != nullptr;
  return is_known ? &device_figures_of(node) : nullptr;
}

/// By how much longer a rank computes than the profile says.
double class_factor(const Workload& workload, const topology::Node& node) {
  if (workload.device_class.empty() || node.device_class.empty() ||
      workload.device_class == node.device_class) {
    return 1;
  }
  const DeviceClass* from = likeliest_device_class(workload.device_class);
  const topology::DeviceFigures* to = known_figures(node);
  if (from == nullptr || to == nullptr) {
    std::vector<std::string> known;
    for (const DeviceClass& c : device_classes()) {
      known.push_back(c.name);
    }
    throw ConfigError(ErrorContext{
        .file = {},
        .where = fmt::format("compute times of '{}'", workload.name),
        .found = fmt::format("no scale from device class '{}' to '{}'", workload.device_class,
                             node.device_class),
        .expected = fmt::format("the same class at both ends, or of: {}", joined(known))});
  }
  return relative_step_time(*to) / relative_step_time(*from);
}

}  // namespace

ComputeTimes compute_times(const Workload& workload, std::string_view device_class,
                           std::int64_t local_batch) {
  topology::Node node;
  node.device_class = device_class;
  return compute_times(workload, node, local_batch);
}

ComputeTimes compute_times(const Workload& workload, const topology::Node& node,
                           std::int64_t local_batch) {
  if (local_batch < 1) {
    throw ConfigError(ErrorContext{.file = {},
                                   .where = "local batch",
                                   .found = fmt::format("{} samples", local_batch),
                                   .expected = "at least 1"});
  }
  const double on_device = class_factor(workload, node);
  const double samples =
      static_cast<double>(local_batch) / static_cast<double>(workload.profiled_batch);
  const double factor = (workload.fixed_share + (1 - workload.fixed_share) * samples) * on_device;

  ComputeTimes times;
  times.forward = scaled(workload.forward, factor);
  times.optimizer = scaled(workload.optimizer, on_device);
  times.ready.reserve(workload.tensors.size());
  Duration since_start;
  for (const GradientTensor& tensor : workload.tensors) {
    since_start += tensor.ready_gap;
    times.ready.push_back(scaled(since_start, factor));
  }
  times.backward = scaled(since_start + workload.backward_tail, factor);
  return times;
}

}  // namespace rackrail::plan

// Execution traces of PyTorch ("schema": "1.1.0-chakra.0.0.4" and others): operators with the
// shapes of their inputs, but without times. The gradients are the inputs of AccumulateGrad, those
// of the last step that has most of them; steps end with Optimizer.step.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "plan/workloads/collective_names.hpp"
#include "plan/workloads/formats.hpp"

namespace rackrail::plan {
namespace {

using nlohmann::json;

const json* member(const json& object, const char* key) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string text_of(const json* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

/// The first of `inputs.shapes` (schema 1.1) or `input_shapes` (1.0), and the same of types.
const json* first_input(const json& node, const char* inner, const char* outer) {
  const json* inputs = member(node, "inputs");
  const json* list = inputs != nullptr ? member(*inputs, inner) : nullptr;
  list = list != nullptr ? list : member(node, outer);
  return list != nullptr && list->is_array() && !list->empty() ? &list->front() : nullptr;
}

/// "float" of "Tensor(float)".
std::string element_type(const std::string& type) {
  const std::size_t open = type.find('(');
  const std::size_t close = type.find(')', std::min(open, type.size()));
  return close == std::string::npos ? "" : type.substr(open + 1, close - open - 1);
}

/// No elements where the trace does not say.
GradientTensor gradient_of(const json& node, std::size_t number) {
  GradientTensor tensor;
  const json* shape = first_input(node, "shapes", "input_shapes");
  const std::optional<std::int64_t> width =
      width_of_type(element_type(text_of(first_input(node, "types", "input_types"))));
  if (shape == nullptr || !shape->is_array() || !width) {
    return tensor;
  }
  std::int64_t elements = 1;
  for (const json& size : *shape) {
    const std::int64_t count = size.is_number_integer() ? size.get<std::int64_t>() : 0;
    if (count < 1 || elements > kLargestTensor / count) {
      return tensor;
    }
    elements *= count;
  }
  if (shape->size() > 1 && *width == 4) {
    const auto rows = shape->front().get<std::int64_t>();
    tensor.shape = MatrixShape{rows, elements / rows};
  }
  tensor.name = fmt::format("gradient.{}", number);
  tensor.elements = elements_of_width(elements, *width);
  return tensor;
}

std::vector<GradientTensor> gradients_of(const json& nodes) {
  std::vector<GradientTensor> best;
  std::vector<GradientTensor> step;
  const auto end_step = [&] {
    if (!step.empty() && step.size() >= best.size()) {
      best = std::move(step);
    }
    step.clear();
  };
  for (const json& node : nodes) {
    const std::string name = text_of(member(node, "name"));
    if (name.starts_with("Optimizer.step#")) {
      end_step();
    } else if (name == "torch::autograd::AccumulateGrad") {
      GradientTensor tensor = gradient_of(node, step.size());
      if (tensor.elements > 0 && step.size() < kMostTensors) {
        step.push_back(std::move(tensor));
      }
    }
  }
  end_step();
  return best;
}

class PytorchTraceReader : public WorkloadReader {
 public:
  std::string_view format() const override { return "execution trace of PyTorch"; }
  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    return is_json_with(content, "schema") && is_json_with(content, "nodes");
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& /*options*/) const override {
    const std::string file = path.string();
    const json root = json::parse(content, nullptr, false);
    const json* nodes = member(root, "nodes");
    if (nodes == nullptr || !nodes->is_array()) {
      throw ConfigError(ErrorContext{file, "nodes", "no list, or broken JSON",
                                     "a whole execution trace of PyTorch"});
    }
    const std::string schema = text_of(member(root, "schema"));
    Workload workload;
    workload.tensors = gradients_of(*nodes);
    if (workload.tensors.empty()) {
      throw ConfigError(ErrorContext{file, fmt::format("nodes of schema '{:.40}'", schema),
                                     "no AccumulateGrad with shape and type",
                                     "the trace of a training step"});
    }
    workload.name = stem_of(path);
    workload.source = fmt::format("execution trace of PyTorch {}", workload.name);
    workload.notes.push_back(fmt::format(
        "{}: schema {:.40}: {} gradients of one step; it has no times, so a step here is only "
        "communication; a trace of the profiler (Kineto) has them",
        file, schema, workload.tensors.size()));
    return workload;
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_pytorch_et_reader() {
  return std::make_unique<PytorchTraceReader>();
}

}  // namespace rackrail::plan

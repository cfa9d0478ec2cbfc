// YAML, as configs/models/*.yaml: the fields of Workload by name, every time and size with its
// unit, and `tensors`, a list of [name, elements, ready gap], or [name, elements, ready gap, [rows,
// columns]] where the shape of a matrix is known.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/yaml.hpp"
#include "plan/device_class.hpp"
#include "plan/workloads/formats.hpp"

namespace rackrail::plan {
namespace {

std::string line_of(const YAML::Mark& mark) { return fmt::format("line {}", mark.line + 1); }

/// One value of the file with what is needed to complain about it.
class Value {
 public:
  Value(const std::string& file, std::string field, const YAML::Node& node)
      : file_(file), field_(std::move(field)), node_(node) {}

  [[noreturn]] void fail(std::string found, std::string expected) const {
    throw ConfigError(ErrorContext{.file = file_,
                                   .where = fmt::format("{}, {}", line_of(node_.Mark()), field_),
                                   .found = std::move(found),
                                   .expected = std::move(expected)});
  }

  std::string text(std::string_view expected = "a text") const {
    if (!node_.IsScalar()) {
      fail(node_.IsNull()       ? "nothing"
           : node_.IsSequence() ? "a list"
                                : "a map",
           std::string(expected));
    }
    return node_.Scalar();
  }

  std::string name() const {
    std::string value = text("a name");
    if (value.empty()) {
      fail("an empty text", "a name");
    }
    return value;
  }

  std::int64_t count(std::int64_t least, std::int64_t most) const {
    const std::string expected = fmt::format("a whole number from {} to {}", least, most);
    const std::string cell = text(expected);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || end != cell.data() + cell.size() || value < least || value > most) {
      fail(fmt::format("'{}'", cell), expected);
    }
    return value;
  }

  double number(double above, double most) const {
    return number_where([=](double v) { return v > above && v <= most; },
                        fmt::format("a number above {} and up to {}", above, most));
  }

  double share() const {
    return number_where([](double v) { return v >= 0 && v <= 1; }, "a share from 0 to 1");
  }

  Duration duration() const {
    return quantity([](const std::string& t) { return parse_duration(t); }, "a time with its unit",
                    kLongestTime);
  }

  Bytes bytes() const {
    return quantity([](const std::string& t) { return parse_bytes(t); }, "a size with its unit",
                    Bytes(std::int64_t{1} << 50U));
  }

  const YAML::Node& node() const { return node_; }
  /// A value within this one; `what` is added to the field's name.
  Value part(const char* what, const YAML::Node& node) const {
    return Value(file_, field_ + what, node);
  }

 private:
  double number_where(const std::function<bool(double)>& allowed,
                      const std::string& expected) const {
    const std::string cell = text(expected);
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc{} || end != cell.data() + cell.size() || !std::isfinite(value) ||
        !allowed(value)) {
      fail(fmt::format("'{}'", cell), expected);
    }
    return value;
  }

  template <typename Parse, typename Quantity>
  Quantity quantity(Parse parse, const char* what, Quantity most) const {
    const std::string cell = text(what);
    Quantity value;
    try {
      value = parse(cell);
    } catch (const ConfigError& e) {
      fail(e.context().found, e.context().expected);
    }
    if (value > most) {
      fail(fmt::format("'{}'", cell), fmt::format("at most {}", to_string(most)));
    }
    return value;
  }

  const std::string& file_;
  std::string field_;
  YAML::Node node_;
};

MatrixShape read_shape(const std::string& file, const std::string& field, const YAML::Node& node,
                       std::int64_t elements) {
  const Value value(file, field, node);
  if (!node.IsSequence() || node.size() != 2) {
    value.fail("another form", "[rows, columns]");
  }
  const MatrixShape shape{value.part(" rows", node[0]).count(1, kLargestTensor),
                          value.part(" columns", node[1]).count(1, kLargestTensor)};
  if (elements % shape.rows != 0 || elements / shape.rows != shape.columns) {
    value.fail(fmt::format("{} times {}", shape.rows, shape.columns),
               fmt::format("a matrix of the tensor's {} elements", elements));
  }
  return shape;
}

void read_tensors(const std::string& file, const Value& list, Workload& workload) {
  if (!list.node().IsSequence() || list.node().size() == 0) {
    list.fail("no list", "a list of [name, elements, ready gap]");
  }
  if (list.node().size() > kMostTensors) {
    list.fail(fmt::format("{} tensors", list.node().size()),
              fmt::format("at most {}", kMostTensors));
  }
  std::size_t index = 0;
  for (const YAML::Node& entry : list.node()) {
    const std::string field = fmt::format("tensors[{}]", index++);
    if (!entry.IsSequence() || entry.size() < 3 || entry.size() > 4) {
      Value(file, field, entry)
          .fail(entry.IsSequence() ? fmt::format("{} items", entry.size()) : "no list",
                "[name, elements, ready gap], or a list of rows and columns as the fourth");
    }
    workload.tensors.push_back(
        {.name = Value(file, field + " name", entry[0]).name(),
         .elements = Value(file, field + " elements", entry[1]).count(1, kLargestTensor),
         .ready_gap = Value(file, field + " ready gap", entry[2]).duration()});
    if (entry.size() == 4) {
      GradientTensor& tensor = workload.tensors.back();
      tensor.shape = read_shape(file, field + " shape", entry[3], tensor.elements);
    }
  }
}

constexpr double kLargestNoise = 1e15;

void read_noise_curve(const Value& list, Workload& workload) {
  double last = 0;
  for (const YAML::Node& entry : list.node()) {
    if (!entry.IsSequence() || entry.size() != 2) {
      list.fail("an entry of another form", "a number, or a list of [progress, noise scale]");
    }
    const NoiseAt at{list.part(" progress", entry[0]).number(last, kLargestNoise),
                     list.part("", entry[1]).number(0, kLargestNoise)};
    workload.noise_curve.push_back(at);
    last = at.progress;
  }
  if (workload.noise_curve.empty()) {
    list.fail("an empty list", "a number, or a list of [progress, noise scale]");
  }
  workload.noise_scale = mean_noise_scale(workload.noise_curve);
}

void read_codec_errors(const Value& map, Workload& workload) {
  constexpr double kLargestError = 10;  // of codecs that scale what they keep
  if (!map.node().IsMap()) {
    map.fail("no map", "a map from codecs to relative errors: { int8: 0.01 }");
  }
  for (const auto& pair : map.node()) {
    const Value key = map.part(" codec", pair.first);
    std::string codec;
    try {
      codec = to_string(parse_codec(key.text("the name of a codec")));
    } catch (const ConfigError& e) {
      key.fail(e.context().found, e.context().expected);
    }
    const double error = map.part((" " + codec).c_str(), pair.second).number(0, kLargestError);
    if (!workload.codec_errors.emplace(codec, error).second) {
      key.fail(fmt::format("'{}' a second time", codec), "each codec once");
    }
  }
}

/// A key of the file: whether it must be there, and what its value fills in.
struct Field {
  std::string_view key;
  bool required;
  void (*read)(const Value&, Workload&);
};

constexpr std::int64_t kLargestBatch = std::int64_t{1} << 32U;

constexpr std::array kFields{
    Field{"name", true, [](const Value& v, Workload& w) { w.name = v.name(); }},
    Field{"source", false, [](const Value& v, Workload& w) { w.source = v.text(); }},
    Field{"device_class", false,
          [](const Value& v, Workload& w) {
            w.device_class = std::string(device_class_name(v.text()));
          }},
    Field{"profiled_batch", true,
          [](const Value& v, Workload& w) { w.profiled_batch = v.count(1, kLargestBatch); }},
    Field{"forward", true, [](const Value& v, Workload& w) { w.forward = v.duration(); }},
    Field{"backward_tail", false,
          [](const Value& v, Workload& w) { w.backward_tail = v.duration(); }},
    Field{"optimizer", false, [](const Value& v, Workload& w) { w.optimizer = v.duration(); }},
    Field{"fixed_share", false, [](const Value& v, Workload& w) { w.fixed_share = v.share(); }},
    Field{"memory_per_sample", false,
          [](const Value& v, Workload& w) { w.memory_per_sample = v.bytes(); }},
    Field{"memory_fixed", false, [](const Value& v, Workload& w) { w.memory_fixed = v.bytes(); }},
    Field{"noise_scale", false,
          [](const Value& v, Workload& w) {
            if (v.node().IsSequence()) {
              read_noise_curve(v, w);
            } else {
              w.noise_scale = v.number(0, kLargestNoise);
            }
          }},
    Field{"codec_errors", false, read_codec_errors},
    Field{"base_learning_rate", false,
          [](const Value& v, Workload& w) {
            w.base_learning_rate = v.number(0, 1e6);
            w.has_learning_rate = true;
          }},
    Field{"base_batch", false,
          [](const Value& v, Workload& w) { w.base_batch = v.count(1, kLargestBatch); }},
};

std::string known_keys() {
  std::string keys;
  for (const Field& field : kFields) {
    keys += fmt::format("{}, ", field.key);
  }
  return keys + "tensors";
}

/// The largest unit in which the time is a whole number: reads back exactly.
std::string exact_text(Duration time) {
  constexpr std::array<std::pair<std::int64_t, const char*>, 4> kUnits{
      {{1'000'000'000'000, "s"}, {1'000'000'000, "ms"}, {1'000'000, "us"}, {1'000, "ns"}}};
  for (const auto& [factor, unit] : kUnits) {
    if (time.picoseconds() % factor == 0) {
      return fmt::format("{} {}", time.picoseconds() / factor, unit);
    }
  }
  return fmt::format("{} ps", time.picoseconds());
}

/// Text as a YAML scalar on one line, in quotes only where it needs them.
std::string quoted(const std::string& text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";
  const bool starts_plain = !text.empty() && text.front() != '-' && text.front() != '.';
  if (starts_plain && text.find_first_not_of(kPlain) == std::string::npos && text != "null" &&
      text != "Null" && text != "NULL") {
    return text;
  }
  YAML::Emitter emitter;
  emitter << YAML::DoubleQuoted << text;
  return emitter.c_str();
}

}  // namespace

Workload parse_workload_yaml(const std::string& content, const std::string& file) {
  const YAML::Node root = load_yaml(content, file);
  if (!root.IsMap()) {
    throw ConfigError(ErrorContext{file, "line 1", root.IsNull() ? "nothing" : "no map",
                                   fmt::format("a workload: a map with name, profiled_batch, "
                                               "forward, tensors, or a CSV with the header '{}' or "
                                               "'{}'",
                                               kProfileHeader, kLayerHeader)});
  }
  Workload workload;
  std::set<std::string> seen;
  for (const auto& pair : root) {
    const std::string key = Value(file, "key", pair.first).text("the name of a field");
    const Value value(file, key, pair.second);
    if (!seen.insert(key).second) {
      throw ConfigError(ErrorContext{file, line_of(pair.first.Mark()),
                                     fmt::format("'{}' a second time", key), "each key once"});
    }
    if (key == "tensors") {
      read_tensors(file, value, workload);
      continue;
    }
    const auto field = std::find_if(kFields.begin(), kFields.end(),
                                    [&key](const Field& f) { return f.key == key; });
    if (field == kFields.end()) {
      throw ConfigError(ErrorContext{file, line_of(pair.first.Mark()),
                                     fmt::format("unknown key '{}'", key),
                                     fmt::format("one of: {}", known_keys())});
    }
    field->read(value, workload);
  }
  for (const Field& field : kFields) {
    if (field.required && !seen.contains(std::string(field.key))) {
      throw ConfigError(ErrorContext{file, "top level", fmt::format("no '{}'", field.key), "one"});
    }
  }
  if (workload.tensors.empty()) {
    throw ConfigError(ErrorContext{file, "top level", "no 'tensors'", "a list of them"});
  }
  return workload;
}

namespace {

/// Whether some line begins with a field's name and a colon, in a flow map or JSON, too.
bool has_known_key(std::string_view content) {
  constexpr std::string_view kAround = " \t\r{,\"'";
  while (!content.empty()) {
    const std::size_t end = content.find('\n');
    std::string_view line = content.substr(0, end);
    line.remove_prefix(std::min(line.find_first_not_of(kAround), line.size()));
    const auto begins = [line](std::string_view key) {
      const std::string_view rest = line.starts_with(key) ? line.substr(key.size()) : "";
      const std::size_t colon = rest.find_first_not_of(" \"'");
      return colon != std::string_view::npos && rest[colon] == ':';
    };
    if (begins("tensors") ||
        std::ranges::any_of(kFields, [&](const Field& field) { return begins(field.key); })) {
      return true;
    }
    content.remove_prefix(end == std::string_view::npos ? content.size() : end + 1);
  }
  return false;
}

class YamlReader : public WorkloadReader {
 public:
  std::string_view format() const override { return kYamlFormat; }
  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    return path.extension() == ".yaml" || path.extension() == ".yml" || has_known_key(content);
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& /*options*/) const override {
    return parse_workload_yaml(content, path.string());
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_yaml_reader() { return std::make_unique<YamlReader>(); }

std::string to_yaml(const Workload& workload) {
  std::string text;
  const auto line = [&text](std::string_view key, const std::string& value) {
    text += fmt::format("{}: {}\n", key, value);
  };
  line("name", quoted(workload.name));
  line("source", quoted(workload.source));
  line("device_class", quoted(workload.device_class));
  line("profiled_batch", std::to_string(workload.profiled_batch));
  line("forward", exact_text(workload.forward));
  line("backward_tail", exact_text(workload.backward_tail));
  line("optimizer", exact_text(workload.optimizer));
  line("fixed_share", fmt::format("{}", workload.fixed_share));
  if (workload.memory_per_sample) {
    line("memory_per_sample", to_exact_string(*workload.memory_per_sample));
  }
  if (workload.memory_fixed) {
    line("memory_fixed", to_exact_string(*workload.memory_fixed));
  }
  if (!workload.noise_curve.empty()) {
    std::string curve;
    for (const NoiseAt& at : workload.noise_curve) {
      curve += fmt::format("{}[{}, {}]", curve.empty() ? "" : ", ", at.progress, at.noise_scale);
    }
    line("noise_scale", "[" + curve + "]");
  } else if (workload.noise_scale) {
    line("noise_scale", fmt::format("{}", *workload.noise_scale));
  }
  if (!workload.codec_errors.empty()) {
    std::string errors;
    for (const auto& [codec, error] : workload.codec_errors) {
      errors += fmt::format("{}{}: {:.3g}", errors.empty() ? "" : ", ", quoted(codec), error);
    }
    line("codec_errors", "{ " + errors + " }");
  }
  if (workload.has_learning_rate || workload.base_learning_rate != Workload{}.base_learning_rate) {
    line("base_learning_rate", fmt::format("{}", workload.base_learning_rate));
  }
  line("base_batch", std::to_string(workload.base_batch));
  text += "tensors:  # [name, elements, gap since the gradient before it]\n";
  for (const GradientTensor& tensor : workload.tensors) {
    const std::string shape =
        tensor.shape ? fmt::format(", [{}, {}]", tensor.shape->rows, tensor.shape->columns) : "";
    text += fmt::format("  - [{}, {}, {}{}]\n", quoted(tensor.name), tensor.elements,
                        exact_text(tensor.ready_gap), shape);
  }
  return text;
}

}  // namespace rackrail::plan

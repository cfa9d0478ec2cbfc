// Chakra execution traces (protobuf): nodes of compute and communication with dependencies.
//
// A trace says neither which nodes are backward nor which collectives are of gradients. Here
// all-reduces and reduce-scatters are; each is ready when the longest path of durations to it ends,
// collectives themselves costing nothing. Paths are those of data dependencies, which order the
// nodes of converted PyTorch traces; control dependencies count where a trace has no others. A
// third of that time until the last one counts as forward, as backward computes two products for
// each one of forward.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "plan/workloads/chakra.pb.h"
#include "plan/workloads/formats.hpp"

namespace rackrail::plan {
namespace {

constexpr std::size_t kMostNodes = 20'000'000;

/// A node of any version.
struct TraceNode {
  std::uint64_t id = 0;
  std::string name;
  std::vector<std::uint64_t> dependencies;
  std::vector<std::uint64_t> callers;  ///< control dependencies; may be cyclic in traces of PyTorch
  double microseconds = 0;             ///< of compute; communication has none
  bool is_collective = false;
  bool sums = false;  ///< an all-reduce or reduce-scatter
  std::int64_t bytes = 0;
};

/// The next message; none when its length does not fit the rest.
std::optional<std::string_view> next_frame(std::string_view& rest) {
  std::uint64_t length = 0;
  for (unsigned shift = 0; shift < 35 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    length |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if (byte < 0x80) {
      if (length > rest.size()) {
        return std::nullopt;
      }
      const std::string_view frame = rest.substr(0, length);
      rest.remove_prefix(length);
      return frame;
    }
  }
  return std::nullopt;
}

/// Graphs of the first version begin with a node, whose first field is a number.
bool begins_with_node(std::string_view frame) {
  constexpr char kFirstFieldVarint = 1 << 3;
  return !frame.empty() && frame.front() == kFirstFieldVarint;
}

template <typename Message>
std::optional<Message> parsed(std::string_view frame) {
  Message message;
  if (!message.ParseFromArray(frame.data(), static_cast<int>(frame.size()))) {
    return std::nullopt;
  }
  return message;
}

std::int64_t whole(const chakra::Attribute& attribute) {
  switch (attribute.value_case()) {
    case chakra::Attribute::kInt32Val:
      return attribute.int32_val();
    case chakra::Attribute::kInt64Val:
      return attribute.int64_val();
    case chakra::Attribute::kUint32Val:
      return attribute.uint32_val();
    case chakra::Attribute::kUint64Val:
      return static_cast<std::int64_t>(attribute.uint64_val());
    case chakra::Attribute::kSint32Val:
      return attribute.sint32_val();
    case chakra::Attribute::kSint64Val:
      return attribute.sint64_val();
    case chakra::Attribute::kFixed32Val:
      return attribute.fixed32_val();
    case chakra::Attribute::kFixed64Val:
      return static_cast<std::int64_t>(attribute.fixed64_val());
    case chakra::Attribute::kBoolVal:
      return attribute.bool_val() ? 1 : 0;
    default:
      return -1;
  }
}

TraceNode node_of(const chakra::Node& message) {
  constexpr std::uint32_t kComputes = 4;
  constexpr std::uint32_t kCollective = 7;
  constexpr std::int64_t kAllReduce = 0;
  constexpr std::int64_t kReduceScatter = 7;
  TraceNode node{.id = message.id(), .name = message.name()};
  node.dependencies.assign(message.data_dependencies().begin(), message.data_dependencies().end());
  node.callers.assign(message.control_dependencies().begin(), message.control_dependencies().end());
  if (message.type() == kComputes) {
    node.microseconds = static_cast<double>(message.duration_microseconds());
  }
  std::int64_t kind = kAllReduce;  // what absence means
  bool is_on_cpu = false;
  for (const chakra::Attribute& attribute : message.attributes()) {
    if (attribute.name() == "comm_type") {
      kind = whole(attribute);
    } else if (attribute.name() == "comm_size") {
      node.bytes = whole(attribute);
    } else if (attribute.name() == "is_cpu_op") {
      is_on_cpu = whole(attribute) == 1;
    }
  }
  node.is_collective = message.type() == kCollective && !is_on_cpu;
  node.sums = node.is_collective && (kind == kAllReduce || kind == kReduceScatter);
  return node;
}

TraceNode node_of(const chakra::GraphNode& message) {
  constexpr std::uint32_t kComputes = 3;
  constexpr std::uint32_t kCollective = 6;
  constexpr std::uint32_t kAllReduce = 1;
  constexpr std::uint32_t kReduceScatter = 4;
  TraceNode node{.id = message.id(), .name = message.name()};
  node.dependencies.assign(message.parents().begin(), message.parents().end());
  if (message.type() == kComputes) {
    node.microseconds = static_cast<double>(message.run_time_microseconds());
  }
  node.is_collective = message.type() == kCollective;
  node.sums = node.is_collective &&
              (message.collective() == kAllReduce || message.collective() == kReduceScatter);
  node.bytes = message.bytes();
  return node;
}

struct ChakraTrace {
  std::string version;
  std::vector<TraceNode> nodes;
};

ChakraTrace parse(const std::string& file, std::string_view content) {
  const auto fail = [&file](std::size_t message) {
    throw ConfigError(ErrorContext{file, fmt::format("message {}", message), "a broken message",
                                   "a node of Chakra's schema 1.0 or one before it"});
  };
  ChakraTrace trace;
  std::string_view rest = content;
  const bool is_graph = begins_with_node(next_frame(rest).value_or(""));
  rest = content;
  for (std::size_t number = 0; !rest.empty(); ++number) {
    const std::optional<std::string_view> frame = next_frame(rest);
    if (!frame || number > kMostNodes) {
      fail(number);
    }
    if (is_graph) {
      const auto message = parsed<chakra::GraphNode>(*frame);
      message ? trace.nodes.push_back(node_of(*message)) : fail(number);
    } else if (number == 0) {
      const auto metadata = parsed<chakra::Metadata>(*frame);
      const std::string version = metadata ? metadata->version() : "";
      const bool is_text = !version.empty() && !has_control_character(version);
      trace.version = is_text ? version.substr(0, 40) : "without a version";
    } else {
      const auto message = parsed<chakra::Node>(*frame);
      message ? trace.nodes.push_back(node_of(*message)) : fail(number);
    }
  }
  trace.version = is_graph ? "of eg_def.proto" : trace.version;
  if (std::ranges::all_of(trace.nodes, [](const TraceNode& n) { return n.dependencies.empty(); })) {
    for (TraceNode& node : trace.nodes) {
      node.dependencies = std::move(node.callers);
    }
  }
  return trace;
}

/// When each node can begin, by its dependencies and their durations alone.
std::vector<double> earliest_starts(const std::string& file, const std::vector<TraceNode>& nodes) {
  std::unordered_map<std::uint64_t, std::size_t> index;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    index.emplace(nodes[i].id, i);
  }
  std::vector<std::vector<std::size_t>> after(nodes.size());
  std::vector<std::size_t> missing(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::uint64_t id : nodes[i].dependencies) {
      if (const auto found = index.find(id); found != index.end() && found->second != i) {
        after[found->second].push_back(i);
        ++missing[i];
      }
    }
  }
  std::vector<double> starts(nodes.size());
  std::vector<std::size_t> ready;
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (missing[i] == 0) ready.push_back(i);
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::size_t i = ready.back();
    ready.pop_back();
    ++done;
    for (const std::size_t next : after[i]) {
      starts[next] = std::max(starts[next], starts[i] + nodes[i].microseconds);
      if (--missing[next] == 0) ready.push_back(next);
    }
  }
  if (done < nodes.size()) {
    const auto stuck = std::ranges::find_if(missing, [](std::size_t count) { return count > 0; });
    throw ConfigError(ErrorContext{
        file, fmt::format("node {}", nodes[static_cast<std::size_t>(stuck - missing.begin())].id),
        "a cycle of dependencies", "none"});
  }
  return starts;
}

std::string readable(const std::string& name) {
  std::string text;
  for (const char c : name.substr(0, 60)) {
    text += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  return text;
}

Workload workload_of(const ChakraTrace& trace, const std::string& file, const std::string& name) {
  const std::vector<double> starts = earliest_starts(file, trace.nodes);
  std::vector<std::size_t> sums;
  double others = 0;
  for (std::size_t i = 0; i < trace.nodes.size(); ++i) {
    const TraceNode& node = trace.nodes[i];
    const bool has_size = node.bytes > 0 && node.bytes <= kLargestTensor;
    if (node.sums && has_size) {
      sums.push_back(i);
    } else if (node.is_collective && has_size) {
      others += static_cast<double>(node.bytes);
    }
  }
  if (sums.empty() || sums.size() > kMostTensors) {
    throw ConfigError(ErrorContext{
        file, "",
        fmt::format("a Chakra trace ({}) with {} all-reduces and reduce-scatters that have a size",
                    trace.version, sums.size()),
        fmt::format("from 1 to {}", kMostTensors)});
  }
  std::ranges::stable_sort(sums, {}, [&](std::size_t i) { return starts[i]; });
  Workload workload;
  const double all = starts[sums.back()];
  double before = all / 3;
  workload.forward = duration_of_nanoseconds(1e3 * before, file, "forward");
  for (const std::size_t i : sums) {
    const double ready = std::max(starts[i], before);
    workload.tensors.push_back(
        {.name = fmt::format("{}.{}", trace.nodes[i].id, readable(trace.nodes[i].name)),
         .elements = elements_of_width(trace.nodes[i].bytes, 1),
         .ready_gap = duration_of_nanoseconds(1e3 * (ready - before), file, "backward")});
    before = ready;
  }
  workload.name = name;
  workload.source = fmt::format("Chakra execution trace {}", name);
  workload.notes.push_back(fmt::format(
      "{}: Chakra trace {}: {} all-reduces and reduce-scatters count as gradients of one step of "
      "one sample, ready at the end of the longest path to them; a third of that time is forward",
      file, trace.version, sums.size()));
  if (others > 0) {
    workload.notes.push_back(
        fmt::format("{}: {:.3g} GB of other collectives are not planned", file, others / 1e9));
  }
  return workload;
}

class ChakraReader : public WorkloadReader {
 public:
  std::string_view format() const override { return "Chakra execution trace"; }
  bool is_text() const override { return false; }
  bool accepts(const std::filesystem::path& /*path*/, std::string_view content) const override {
    std::string_view rest = content;
    const std::optional<std::string_view> first = next_frame(rest);
    const std::optional<std::string_view> second = next_frame(rest);
    return first && second && begins_with_node(*second) && parsed<chakra::Metadata>(*first) &&
           parsed<chakra::Node>(*second);
  }
  Workload read(const std::filesystem::path& path, const std::string& content,
                const WorkloadOptions& /*options*/) const override {
    const std::string file = path.string();
    return workload_of(parse(file, content), file, stem_of(path));
  }
};

}  // namespace

std::unique_ptr<WorkloadReader> make_chakra_et_reader() { return std::make_unique<ChakraReader>(); }

}  // namespace rackrail::plan

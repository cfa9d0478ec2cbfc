// ASTRA-sim's network file for its analytical model:
//
//   topology: [ Switch, Ring ]      # Ring, Switch or FullyConnected, the innermost first
//   npus_count: [ 8, 4 ]
//   bandwidth: [ 400, 50 ]          # GB/s of a link in one direction
//   latency: [ 936.25, 1000 ]       # ns of a link
//
// NPUs that differ in one coordinate only are joined as that dimension says. With several
// dimensions, the innermost is the inside of a host.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "base/config_tree.hpp"
#include "topology/racks.hpp"
#include "topology/readers/fabric.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

constexpr std::int64_t kMostNpus = 65'536;
constexpr std::size_t kMostDimensions = 16;

struct Dimension {
  enum class Shape { kRing, kSwitch, kFullyConnected };
  Shape shape = Shape::kRing;
  std::size_t count = 1;
  Bandwidth bandwidth;
  Duration latency;
};

Dimension::Shape read_shape(const ConfigValue& value) {
  if (value.text() == "Ring") return Dimension::Shape::kRing;
  if (value.text() == "Switch") return Dimension::Shape::kSwitch;
  if (value.text() == "FullyConnected") return Dimension::Shape::kFullyConnected;
  value.fail("Ring, Switch or FullyConnected");
}

std::vector<Dimension> read_dimensions(const ConfigValue& root) {
  root.allow_only({"topology", "npus_count", "bandwidth", "latency"});
  const std::vector<ConfigValue>& shapes = root.require("topology").elements();
  if (shapes.empty() || shapes.size() > kMostDimensions) {
    root.require("topology")
        .fail(fmt::format("{} dimensions", shapes.size()), fmt::format("1 to {}", kMostDimensions));
  }
  for (const char* key : {"npus_count", "bandwidth", "latency"}) {
    const ConfigValue& values = root.require(key);
    if (values.elements().size() != shapes.size()) {
      values.fail(fmt::format("{} values", values.elements().size()),
                  fmt::format("{}, one for each dimension of 'topology'", shapes.size()));
    }
  }
  std::vector<Dimension> dimensions;
  std::int64_t npus = 1;
  for (std::size_t d = 0; d < shapes.size(); ++d) {
    Dimension one;
    one.shape = read_shape(shapes[d]);
    const ConfigValue& count = root.require("npus_count").elements()[d];
    one.count = static_cast<std::size_t>(count.count(1, kMostNpus));
    npus *= static_cast<std::int64_t>(one.count);
    if (npus > kMostNpus)
      count.fail(fmt::format("{} NPUs", npus), fmt::format("at most {}", kMostNpus));
    one.bandwidth = scaled(1_GBps, root.require("bandwidth").elements()[d].ratio(1e-6, 1e6));
    one.latency = scaled(1_ns, root.require("latency").elements()[d].ratio(0, 1e12));
    dimensions.push_back(one);
  }
  return dimensions;
}

class GridBuilder {
 public:
  GridBuilder(std::string name, std::vector<Dimension> dimensions)
      : topology_(std::move(name)), dimensions_(std::move(dimensions)) {}

  Topology build() {
    std::size_t npus = 1;
    for (const Dimension& one : dimensions_) npus *= one.count;
    require_buildable(parts(npus));
    for (std::size_t i = 0; i < npus; ++i) {
      Node node;
      node.name = fmt::format("gpu{}", i);
      node.kind = NodeKind::kGpu;
      node.host = host_of(i);
      topology_.add_rank(topology_.add_node(std::move(node)));
    }
    std::size_t stride = 1;
    for (std::size_t d = 0; d < dimensions_.size(); stride *= dimensions_[d++].count) {
      const std::size_t count = dimensions_[d].count;
      std::size_t group = 0;
      for (std::size_t i = 0; i < npus; ++i) {
        if (i / stride % count == 0 && count > 1) join_group(d, i, stride, group++);
      }
    }
    name_racks(topology_);
    return std::move(topology_);
  }

 private:
  std::int64_t parts(std::size_t npus) const {
    std::size_t parts = npus;
    for (const Dimension& one : dimensions_) {
      const bool is_full = one.shape == Dimension::Shape::kFullyConnected;
      parts += npus * (is_full ? one.count : 3);
    }
    return static_cast<std::int64_t>(parts);
  }

  std::string host_of(std::size_t npu) const {
    return dimensions_.size() > 1 ? fmt::format("host{}", npu / dimensions_[0].count) : "";
  }

  void join_group(std::size_t d, std::size_t first, std::size_t stride, std::size_t group) {
    const Dimension& one = dimensions_[d];
    const auto npu = [&](std::size_t k) { return NodeId(first + k * stride); };
    if (one.shape == Dimension::Shape::kSwitch) {
      const NodeId hub = add_switch(d, first, group);
      for (std::size_t k = 0; k < one.count; ++k) join(d, npu(k), hub);
    } else if (one.shape == Dimension::Shape::kRing) {
      const std::size_t links = one.count == 2 ? 1 : one.count;
      for (std::size_t k = 0; k < links; ++k) join(d, npu(k), npu((k + 1) % one.count));
    } else {
      for (std::size_t k = 0; k < one.count; ++k) {
        for (std::size_t j = 0; j < k; ++j) join(d, npu(j), npu(k));
      }
    }
  }

  bool is_inside_host(std::size_t d) const { return d == 0 && dimensions_.size() > 1; }

  NodeId add_switch(std::size_t d, std::size_t npu, std::size_t group) {
    Node node;
    node.name = fmt::format("{}{}.{}", is_inside_host(d) ? "nvswitch" : "switch", d, group);
    node.kind = is_inside_host(d) ? NodeKind::kNvSwitch : NodeKind::kSwitch;
    if (is_inside_host(d)) node.host = host_of(npu);
    return topology_.add_node(std::move(node));
  }

  void join(std::size_t d, NodeId a, NodeId b) {
    Link link;
    link.from = a;
    link.to = b;
    link.bandwidth = dimensions_[d].bandwidth;
    link.latency = dimensions_[d].latency;
    link.kind = is_inside_host(d) ? LinkKind::kNvlink : LinkKind::kOther;
    link.tier = fmt::format("dimension{}", d);
    topology_.add_duplex_link(std::move(link));
  }

  Topology topology_;
  std::vector<Dimension> dimensions_;
};

class AstraSimReader : public Reader {
 public:
  std::string_view format() const override { return "astra-sim"; }

  bool accepts(const std::filesystem::path&, std::string_view content) const override {
    const auto has_key = [content](const std::string& key) {
      return content.starts_with(key) || content.find("\n" + key) != content.npos;
    };
    return has_key("topology:") && has_key("npus_count:");
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    refuse_overlay(path, options);
    const ConfigValue root = ConfigValue::parse(path.string(), std::string(content));
    if (!root.is_map()) root.fail("a map with 'topology' and 'npus_count'");
    std::vector<Dimension> dimensions = read_dimensions(root);
    std::vector<std::string> notes;
    if (dimensions.size() > 1)
      notes.emplace_back("the innermost dimension is read as the inside of hosts");
    return {GridBuilder(path.stem().string(), std::move(dimensions)).build(), notes, {path}};
  }
};

}  // namespace

std::unique_ptr<Reader> make_astra_sim_reader() { return std::make_unique<AstraSimReader>(); }

}  // namespace rackrail::topology

#include "tests/unit/topology/graphs.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "base/file.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::topology::test {

namespace fs = std::filesystem;

NodeId add_switch(Topology& topology, const std::string& name, NodeKind kind) {
  Node node;
  node.name = name;
  node.kind = kind;
  return topology.add_node(std::move(node));
}

NodeId add_gpu(Topology& topology, const std::string& name, const std::string& host,
               const std::string& rack) {
  Node node;
  node.name = name;
  node.kind = NodeKind::kGpu;
  node.host = host;
  node.rack = rack;
  const NodeId id = topology.add_node(std::move(node));
  topology.add_rank(id);
  return id;
}

namespace {
Link link_between(NodeId a, NodeId b, Bandwidth bandwidth, Duration latency) {
  Link link;
  link.from = a;
  link.to = b;
  link.bandwidth = bandwidth;
  link.latency = latency;
  return link;
}
}  // namespace

LinkId join(Topology& topology, NodeId a, NodeId b, Bandwidth bandwidth, Duration latency) {
  return topology.add_duplex_link(link_between(a, b, bandwidth, latency));
}

LinkId join_one_way(Topology& topology, NodeId a, NodeId b, Bandwidth bandwidth, Duration latency) {
  return topology.add_link(link_between(a, b, bandwidth, latency));
}

Topology star(const std::vector<Bandwidth>& rates) {
  Topology topology("star");
  const NodeId hub = add_switch(topology, "hub");
  for (std::size_t i = 0; i < rates.size(); ++i) {
    join(topology, add_gpu(topology, "gpu" + std::to_string(i)), hub, rates[i]);
  }
  return topology;
}

Topology grid(int width, int height, bool wraps, Bandwidth rate) {
  Topology topology("grid");
  for (int i = 0; i < width * height; ++i) add_gpu(topology, "gpu" + std::to_string(i));
  const auto at = [&](int x, int y) { return NodeId((y % height) * width + x % width); };
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      if (wraps || x + 1 < width) join(topology, at(x, y), at(x + 1, y), rate);
      if (wraps || y + 1 < height) join(topology, at(x, y), at(x, y + 1), rate);
    }
  }
  return topology;
}

Topology ring(int count, Bandwidth rate) {
  Topology topology("ring");
  for (int i = 0; i < count; ++i) add_gpu(topology, "gpu" + std::to_string(i));
  for (int i = 0; i < count; ++i) join(topology, NodeId(i), NodeId((i + 1) % count), rate);
  return topology;
}

Topology boxes(int count, std::int64_t unit) {
  Topology topology("boxes");
  const NodeId spines[] = {add_switch(topology, "spine0"), add_switch(topology, "spine1")};
  for (int b = 0; b < count; ++b) {
    const std::string box = "box" + std::to_string(b);
    Node nvswitch;
    nvswitch.name = "nvswitch" + std::to_string(b);
    nvswitch.kind = NodeKind::kNvSwitch;
    nvswitch.host = box;
    const NodeId hub = topology.add_node(std::move(nvswitch));
    for (int g = 0; g < 8; ++g) {
      const NodeId gpu =
          add_gpu(topology, "gpu" + std::to_string(b) + "." + std::to_string(g), box);
      join(topology, gpu, hub, Bandwidth(300 * unit));
      if (count > 1) join(topology, gpu, spines[g % 2], Bandwidth(25 * unit));
    }
  }
  return topology;
}

TextFile::TextFile(const std::string& name, const std::string& content) : name_(name) {
  static std::atomic<int> number{0};
  folder_ = fs::temp_directory_path() /
            ("rackrail-topology-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  write_file_atomically(folder_ / name_, content);
}

TextFile::~TextFile() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

fs::path shared_inputs() {
  const char* shared = std::getenv("RACKRAIL_SHARED");
  return (shared != nullptr ? fs::path(shared)
                            : rackrail::test::source_dir().parent_path() / "shared") /
         "inputs";
}

Bandwidth rate_between(const Topology& topology, const std::string& from, const std::string& to) {
  Bandwidth rate;
  for (const LinkId link : topology.links_out_of(*topology.find_node(from))) {
    if (topology.node(topology.link(link).to).name == to) {
      rate = rate + topology.link(link).bandwidth;
    }
  }
  return rate;
}

bool has_note(const ReadResult& result, const std::string& text) {
  for (const std::string& note : result.notes) {
    if (note.find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace rackrail::topology::test

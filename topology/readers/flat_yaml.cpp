// The flat form: every vertex and link by itself. What to_flat_yaml writes reads back as the same
// topology, to the digest. Where no vertex has a key `rack`, racks are told by what hangs on which
// switches (racks.hpp); an empty one says that there are none.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/config_tree.hpp"
#include "base/parse_units.hpp"
#include "topology/racks.hpp"
#include "topology/readers/cluster_spec.hpp"
#include "topology/readers/formats.hpp"

namespace rackrail::topology {
namespace {

/// A YAML scalar that reads back as `text`, quoted unless it is plainly harmless.
std::string quoted(const std::string& text) {
  const auto is_harmless = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  const bool starts_as_word = !text.empty() && ((text.front() >= 'a' && text.front() <= 'z') ||
                                                (text.front() >= 'A' && text.front() <= 'Z'));
  const bool is_null = text == "null" || text == "Null" || text == "NULL";
  if (starts_as_word && !is_null && std::all_of(text.begin(), text.end(), is_harmless)) {
    return text;
  }
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

/// Whether racks have to be said not to be there, so that no reader finds some.
bool must_deny_racks(const Topology& topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (!topology.node(NodeId(v)).rack.empty()) return false;
  }
  return !racks_by_structure(topology).empty();
}

std::string node_line(const Topology& topology, NodeId id, bool denies_racks) {
  const Node& node = topology.node(id);
  std::string line =
      fmt::format("  - {{name: {}, kind: {}", quoted(node.name), to_string(node.kind));
  const auto add = [&line](const char* key, const std::string& text) {
    if (!text.empty()) line += fmt::format(", {}: {}", key, quoted(text));
  };
  add("host", node.host);
  add("rack", node.rack);
  if (denies_racks) line += ", rack: \"\"";
  if (const std::optional<Rank> rank = topology.rank_of(id)) {
    line += fmt::format(", rank: {}", rank->value());
    if (const std::optional<LinkId> processor = topology.processor_of(*rank)) {
      line += fmt::format(", processor: {}", processor->value());
    }
  }
  add("device_class", node.device_class);
  if (node.memory) line += fmt::format(", memory: {}", to_exact_string(*node.memory));
  if (node.host_staging != Bandwidth(0)) {
    line += fmt::format(", host_staging: {}", to_exact_string(node.host_staging));
  }
  if (node.multicasts) line += ", multicasts: true";
  if (node.reduces) line += ", reduces: true";
  return line + "}\n";
}

std::string link_line(const Topology& topology, const Link& link, bool is_duplex) {
  std::string line = fmt::format(
      "  - {{from: {}, to: {}, bandwidth: {}, latency: {}, kind: {}",
      quoted(topology.node(link.from).name), quoted(topology.node(link.to).name),
      to_exact_string(link.bandwidth), to_exact_string(link.latency), to_string(link.kind));
  if (!link.tier.empty()) line += fmt::format(", tier: {}", quoted(link.tier));
  if (link.overhead != Duration(0)) {
    line += fmt::format(", overhead: {}", to_exact_string(link.overhead));
  }
  if (link.receive_overhead != Duration(0)) {
    line += fmt::format(", receive_overhead: {}", to_exact_string(link.receive_overhead));
  }
  if (link.flow_bandwidth != Bandwidth(0)) {
    line += fmt::format(", flow_bandwidth: {}", to_exact_string(link.flow_bandwidth));
  }
  if (link.burst != Bytes(0)) line += fmt::format(", burst: {}", to_exact_string(link.burst));
  if (link.cpu_share != 0) line += fmt::format(", cpu_share: {}", link.cpu_share);
  if (!link.adapter.empty()) line += fmt::format(", adapter: {}", quoted(link.adapter));
  if (is_duplex) line += ", duplex: true";
  return line + "}\n";
}

/// Those that a cluster file describes; of one class all vertices have the same figures.
std::string device_class_lines(const Topology& topology) {
  std::map<std::string, const DeviceFigures*> classes;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const Node& node = topology.node(topology.node_of(Rank(r)));
    if (node.figures != nullptr) classes.emplace(node.device_class, node.figures.get());
  }
  std::string text = classes.empty() ? "" : "device_classes:\n";
  for (const auto& [name, figures] : classes) {
    text += fmt::format(
        "  {}: {{matrix_tflops: {}, memory_bandwidth: {}, codec_memory: {}, launch: {}, wake: {}",
        quoted(name), figures->matrix_tflops, to_exact_string(figures->memory),
        to_exact_string(figures->codec_memory), to_exact_string(figures->launch),
        to_exact_string(figures->wake));
    if (figures->memory_size) {
      text += fmt::format(", memory: {}", to_exact_string(*figures->memory_size));
    }
    text += "}\n";
  }
  return text;
}

Node read_node(const ConfigValue& entry, const DeviceEntries& devices) {
  entry.allow_only({"name", "kind", "host", "rack", "rank", "processor", "device_class", "memory",
                    "host_staging", "multicasts", "reduces"});
  Node node;
  node.name = entry.require("name").name();
  const ConfigValue& kind = entry.require("kind");
  const std::optional<NodeKind> known = parse_node_kind(kind.text());
  if (!known) {
    kind.fail("one of gpu, cpu, pcie, nic, nvswitch, host, tor, spine, core, switch");
  }
  node.kind = *known;
  if (const ConfigValue* v = entry.find("host")) node.host = v->text();
  if (const ConfigValue* v = entry.find("rack")) node.rack = v->text();
  if (const ConfigValue* v = entry.find("device_class")) {
    node.device_class = v->text();
    const auto found = devices.find(node.device_class);
    if (found != devices.end()) {
      node.memory = found->second.memory;
      node.figures = found->second.figures;
    }
  }
  if (const ConfigValue* v = entry.find("memory")) node.memory = v->bytes();
  if (const ConfigValue* v = entry.find("host_staging")) node.host_staging = v->bandwidth();
  if (const ConfigValue* v = entry.find("multicasts")) node.multicasts = v->flag();
  if (const ConfigValue* v = entry.find("reduces")) node.reduces = v->flag();
  return node;
}

NodeId end_of(const Topology& topology, const ConfigValue& name) {
  const std::optional<NodeId> node = topology.find_node(name.name());
  if (!node) name.fail("the name of a vertex listed under 'nodes'");
  return *node;
}

void read_link(Topology& topology, const ConfigValue& entry) {
  entry.allow_only({"from", "to", "bandwidth", "latency", "kind", "tier", "overhead",
                    "receive_overhead", "flow_bandwidth", "burst", "cpu_share", "adapter",
                    "duplex"});
  Link link;
  link.from = end_of(topology, entry.require("from"));
  link.to = end_of(topology, entry.require("to"));
  if (link.from == link.to) entry.require("to").fail("another vertex than 'from'");
  link.bandwidth = entry.require("bandwidth").bandwidth();
  link.latency = entry.require("latency").duration();
  if (const ConfigValue* v = entry.find("kind")) {
    const std::optional<LinkKind> known = parse_link_kind(v->text());
    if (!known) v->fail("one of nvlink, pcie, socket, host-link, uplink, shared, other");
    link.kind = *known;
  }
  if (const ConfigValue* v = entry.find("tier")) link.tier = v->text();
  if (const ConfigValue* v = entry.find("overhead")) link.overhead = v->duration();
  if (const ConfigValue* v = entry.find("receive_overhead")) link.receive_overhead = v->duration();
  if (const ConfigValue* v = entry.find("flow_bandwidth")) link.flow_bandwidth = v->bandwidth();
  if (const ConfigValue* v = entry.find("burst")) link.burst = v->bytes();
  if (const ConfigValue* v = entry.find("cpu_share")) link.cpu_share = v->share();
  if (const ConfigValue* v = entry.find("adapter")) link.adapter = v->text();
  const ConfigValue* duplex = entry.find("duplex");
  if (duplex != nullptr && duplex->flag()) {
    topology.add_duplex_link(std::move(link));
  } else {
    topology.add_link(std::move(link));
  }
}

/// Ranks by their given numbers, or, where no vertex has one, all GPUs and hosts in order.
void add_ranks(Topology& topology, const std::vector<ConfigValue>& nodes) {
  std::map<std::int64_t, std::size_t> numbered;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (const ConfigValue* rank = nodes[i].find("rank")) {
      if (!numbered.emplace(rank->count(0, 1'000'000), i).second) {
        rank->fail("each rank once");
      }
    }
  }
  for (const auto& [rank, index] : numbered) {
    if (topology.add_rank(NodeId(index)).value() != rank) {
      nodes[index].require("rank").fail("ranks from 0 without a gap");
    }
  }
  for (std::size_t i = 0; numbered.empty() && i < nodes.size(); ++i) {
    const NodeKind kind = topology.node(NodeId(i)).kind;
    if (kind == NodeKind::kGpu || kind == NodeKind::kHost) topology.add_rank(NodeId(i));
  }
}

}  // namespace

Topology read_flat_yaml(const ConfigValue& root) {
  root.allow_only({"name", "device_classes", "nodes", "links"});
  const DeviceEntries devices = read_device_classes(root.find("device_classes"));
  Topology topology(root.find("name") != nullptr ? root.find("name")->text() : "");
  const std::vector<ConfigValue>& nodes = root.require("nodes").elements();
  for (const ConfigValue& entry : nodes) {
    Node node = read_node(entry, devices);
    if (topology.find_node(node.name)) entry.require("name").fail("each name once");
    topology.add_node(std::move(node));
  }
  add_ranks(topology, nodes);
  if (const ConfigValue* links = root.find("links")) {
    for (const ConfigValue& entry : links->elements()) {
      read_link(topology, entry);
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const ConfigValue* processor = nodes[i].find("processor");
    if (processor == nullptr) continue;
    const std::optional<Rank> rank = topology.rank_of(NodeId(i));
    if (!rank) processor->fail("a processor of a rank only");
    if (topology.link_count() == 0) processor->fail("no processor, since there are no links");
    const auto last = static_cast<std::int64_t>(topology.link_count()) - 1;
    topology.set_processor(*rank, LinkId(static_cast<std::size_t>(processor->count(0, last))));
  }
  const bool says_racks = std::any_of(nodes.begin(), nodes.end(), [](const ConfigValue& entry) {
    return entry.find("rack") != nullptr;
  });
  if (!says_racks) name_racks(topology);
  return topology;
}

std::string to_flat_yaml(const Topology& topology) {
  std::string text =
      fmt::format("name: {}\n{}nodes:\n", quoted(topology.name()), device_class_lines(topology));
  const bool denies_racks = must_deny_racks(topology);
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    text += node_line(topology, NodeId(v), denies_racks && v == 0);
  }
  if (topology.node_count() == 0) text.insert(text.size() - 1, " []");
  text += topology.link_count() == 0 ? "links: []\n" : "links:\n";
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const bool is_duplex =
        l + 1 < topology.link_count() && is_reverse_of(topology.link(LinkId(l + 1)), link);
    text += link_line(topology, link, is_duplex);
    l += is_duplex ? 1 : 0;
  }
  return text;
}

}  // namespace rackrail::topology

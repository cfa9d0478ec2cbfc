// GraphML: vertices and edges with attributes of any name. Those for bandwidth, latency and kind
// are guessed by their names, and a note says which were taken.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <pugixml.hpp>
#include <set>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"
#include "topology/racks.hpp"
#include "topology/readers/formats.hpp"
#include "topology/readers/network_overlay.hpp"

namespace rackrail::topology {
namespace {

constexpr std::size_t kMostElements = 1'000'000;

/// An attribute by which a quantity is said, and the unit of bare numbers.
struct Guess {
  std::string_view attribute;
  std::string_view unit;  ///< empty: the text has it
};
constexpr std::array<Guess, 14> kBandwidths{{{"bandwidth", ""},
                                             {"bw", ""},
                                             {"capacity", ""},
                                             {"rate", ""},
                                             {"speed", ""},
                                             {"bandwidth_gbps", "Gbit/s"},
                                             {"bandwidth_mbps", "Mbit/s"},
                                             {"bandwidth_bps", "bit/s"},
                                             {"bw_gbps", "Gbit/s"},
                                             {"capacity_gbps", "Gbit/s"},
                                             {"speed_gbps", "Gbit/s"},
                                             {"gbps", "Gbit/s"},
                                             {"linkspeedraw", "bit/s"},
                                             {"linkspeed", ""}}};
constexpr std::array<Guess, 6> kLatencies{{{"latency", ""},
                                           {"delay", ""},
                                           {"latency_us", "us"},
                                           {"latency_ns", "ns"},
                                           {"latency_ms", "ms"},
                                           {"delay_ms", "ms"}}};
constexpr std::array<std::string_view, 3> kKinds{"kind", "type", "role"};

using Attributes = std::map<std::string, std::string, LessInAnyCase>;

std::optional<NodeKind> kind_called(const std::string& text) {
  const auto begins = [&text](std::string_view word) {
    return is_same_in_any_case(std::string_view(text).substr(0, word.size()), word);
  };
  if (begins("gpu") || begins("npu") || begins("accelerator")) return NodeKind::kGpu;
  if (begins("host") || begins("server")) return NodeKind::kHost;
  if (begins("tor") || begins("leaf")) return NodeKind::kTor;
  if (begins("spine")) return NodeKind::kSpine;
  if (begins("core")) return NodeKind::kCore;
  if (begins("nvswitch")) return NodeKind::kNvSwitch;
  if (begins("switch") || begins("router")) return NodeKind::kSwitch;
  return std::nullopt;
}

class GraphmlParser {
 public:
  GraphmlParser(std::string file, std::string name, const ReadOptions& options)
      : file_(std::move(file)), options_(options), topology_(std::move(name)) {}

  ReadResult read(std::string_view content) {
    pugi::xml_document document;
    const pugi::xml_parse_result parsed = document.load_buffer(content.data(), content.size());
    if (!parsed) {
      fail(fmt::format("byte {}", parsed.offset), parsed.description(), "XML");
    }
    const pugi::xml_node root = document.child("graphml");
    const pugi::xml_node graph = root.child("graph");
    if (!graph) fail("", "no <graph> in <graphml>", "GraphML");
    for (const pugi::xml_node key : root.children("key")) {
      const std::string name = key.attribute("attr.name").value();
      names_[key.attribute("id").value()] = name.empty() ? key.attribute("id").value() : name;
    }
    add_vertices(graph);
    const bool is_directed =
        std::string_view(graph.attribute("edgedefault").value()) == "directed" &&
        has_way_back(graph);
    std::size_t number = 0;
    for (const pugi::xml_node edge : graph.children("edge")) {
      add_edge(edge, ++number, edge.attribute("directed").as_bool(is_directed));
    }
    name_racks(topology_);
    add_notes();
    result_.topology = std::move(topology_);
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& found,
                         const std::string& expected) const {
    throw ConfigError(ErrorContext{file_, where, found, expected});
  }

  Attributes attributes_of(const pugi::xml_node& element) const {
    Attributes attributes;
    for (const pugi::xml_node data : element.children("data")) {
      const auto name = names_.find(data.attribute("key").value());
      const std::string_view text = trimmed(data.child_value());
      if (name != names_.end() && !text.empty()) attributes.emplace(name->second, text);
    }
    return attributes;
  }

  void add_vertices(const pugi::xml_node& graph) {
    std::vector<NodeId> unknown;
    for (const pugi::xml_node vertex : graph.children("node")) {
      const std::string id = vertex.attribute("id").value();
      if (id.empty() || places_.contains(id)) {
        fail("", fmt::format("a node with the id '{}'", id), "one id for each node");
      }
      if (places_.size() >= kMostElements) fail("", "more nodes", fmt::format("{}", kMostElements));
      const Attributes attributes = attributes_of(vertex);
      std::optional<NodeKind> kind = kind_called(id);
      for (const std::string_view key : kKinds) {
        const auto said = attributes.find(key);
        if (said == attributes.end()) continue;
        const std::optional<NodeKind> exact = parse_node_kind(said->second);
        if (exact || kind_called(said->second)) kind = exact ? exact : kind_called(said->second);
      }
      Node node;
      node.name = name_of(id, attributes);
      if (!kind) kind = kind_called(node.name);
      node.kind = kind.value_or(NodeKind::kSwitch);
      if (const auto host = attributes.find("host"); host != attributes.end()) {
        node.host = host->second;
      }
      const NodeId place = topology_.add_node(node);
      places_.emplace(id, place);
      if (node.kind == NodeKind::kGpu || node.kind == NodeKind::kHost) topology_.add_rank(place);
      if (!kind) unknown.push_back(place);
    }
    if (topology_.rank_count() > 0) return;
    for (const NodeId place : unknown) {
      Node node = topology_.node(place);
      node.kind = NodeKind::kHost;
      topology_.set_node_properties(place, node);
      topology_.add_rank(place);
    }
    if (!unknown.empty()) {
      result_.notes.emplace_back(
          "no vertex is called a GPU or host: those that are not called switches are ranks");
    }
  }

  /// The label, where no other vertex has it.
  std::string name_of(const std::string& id, const Attributes& attributes) const {
    for (const char* key : {"name", "label"}) {
      const auto label = attributes.find(key);
      if (label != attributes.end() && !topology_.find_node(label->second)) return label->second;
    }
    return id;
  }

  template <typename Parse>
  auto quantity(const Attributes& attributes, std::span<const Guess> guesses, Parse parse,
                std::string& taken, const std::string& where)
      -> std::optional<decltype(parse(""))> {
    for (const Guess& guess : guesses) {
      const auto said = attributes.find(guess.attribute);
      if (said == attributes.end()) continue;
      std::string text = said->second;
      const bool is_bare = text.find_first_not_of("0123456789.eE+-") == text.npos;
      if (is_bare && !guess.unit.empty()) text += " " + std::string(guess.unit);
      taken = said->first;
      try {
        return parse(text);
      } catch (const ConfigError& e) {
        fail(where + ", " + said->first, e.context().found, e.context().expected);
      }
    }
    return std::nullopt;
  }

  /// Whether some edge has one back, or each vertex is left and reached. Editors call graphs
  /// directed that nobody drew arrows in: then each edge stands once, and is a cable.
  bool has_way_back(const pugi::xml_node& graph) {
    std::set<std::pair<std::string_view, std::string_view>> ends;
    std::set<std::string_view> left;
    std::set<std::string_view> reached;
    for (const pugi::xml_node edge : graph.children("edge")) {
      const std::string_view from = edge.attribute("source").value();
      const std::string_view to = edge.attribute("target").value();
      if (from != to && ends.contains({to, from})) return true;
      ends.emplace(from, to);
      left.insert(from);
      reached.insert(to);
    }
    if (left == reached) return true;
    result_.notes.emplace_back(
        "edgedefault is 'directed', but no edge has one back: each is taken for both directions");
    return false;
  }

  void add_edge(const pugi::xml_node& edge, std::size_t number, bool is_directed) {
    const std::string where = fmt::format("edge {}", number);
    const auto from = places_.find(edge.attribute("source").value());
    const auto to = places_.find(edge.attribute("target").value());
    if (from == places_.end() || to == places_.end()) {
      fail(where,
           fmt::format("'{}' to '{}'", edge.attribute("source").value(),
                       edge.attribute("target").value()),
           "ids of two nodes");
    }
    if (from->second == to->second) {
      ++loops_;
      return;
    }
    const Attributes attributes = attributes_of(edge);
    Link link;
    link.from = from->second;
    link.to = to->second;
    link.tier = "link";
    const std::optional<Bandwidth> rate =
        quantity(attributes, kBandwidths, parse_bandwidth, bandwidth_from_, where);
    const auto said = options_.tier_bandwidths.find(link.tier);
    if (!rate && said == options_.tier_bandwidths.end()) {
      fail(where, "no bandwidth",
           "an attribute 'bandwidth' as '100 Gbit/s', or '--tier-bandwidth link=100Gbit/s'");
    }
    link.bandwidth = rate ? *rate : said->second;
    const std::optional<Duration> latency = quantity(
        attributes, kLatencies, [](const std::string& text) { return parse_duration(text); },
        latency_from_, where);
    if (!latency) ++without_latency_;
    link.latency = latency.value_or(kUplinkLatency);
    if (is_directed) {
      topology_.add_link(std::move(link));
    } else {
      topology_.add_duplex_link(std::move(link));
    }
  }

  void add_notes() {
    if (!bandwidth_from_.empty() || !latency_from_.empty()) {
      result_.notes.push_back(
          fmt::format("attributes taken: {} for bandwidth, {} for latency",
                      bandwidth_from_.empty() ? "none" : "'" + bandwidth_from_ + "'",
                      latency_from_.empty() ? "none" : "'" + latency_from_ + "'"));
    }
    if (without_latency_ > 0) {
      result_.notes.push_back(fmt::format("{} assumed as latency of {}", to_string(kUplinkLatency),
                                          counted(without_latency_, "edge")));
    }
    if (loops_ > 0) {
      result_.notes.push_back(
          fmt::format("{} from a vertex to itself left out", counted(loops_, "edge")));
    }
  }

  std::string file_;
  const ReadOptions& options_;
  Topology topology_;
  std::map<std::string, std::string> names_;  ///< of attributes, by key
  std::map<std::string, NodeId> places_;
  std::string bandwidth_from_;
  std::string latency_from_;
  std::int64_t without_latency_ = 0;
  std::int64_t loops_ = 0;
  ReadResult result_;
};

class GraphmlReader : public Reader {
 public:
  std::string_view format() const override { return "graphml"; }

  bool accepts(const std::filesystem::path& path, std::string_view content) const override {
    return trimmed(content).starts_with('<') &&
           (path.extension() == ".graphml" || content.find("<graphml") != content.npos);
  }

  ReadResult read(const std::filesystem::path& path, std::string_view content,
                  const ReadOptions& options) const override {
    refuse_overlay(path, options);
    ReadResult result = GraphmlParser(path.string(), path.stem().string(), options).read(content);
    result.inputs.push_back(path);
    return result;
  }
};

}  // namespace

std::unique_ptr<Reader> make_graphml_reader() { return std::make_unique<GraphmlReader>(); }

}  // namespace rackrail::topology

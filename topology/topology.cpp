#include "topology/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/graph/strong_components.hpp>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "base/text.hpp"

namespace rackrail::topology {
namespace {

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Node, Link>;
using Edge = Graph::edge_descriptor;

/// Names for an error message: all of a short list, the first few and the number of a long one.
std::string sample_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  if (names.size() <= kShown) {
    return fmt::format("{}", fmt::join(names, ", "));
  }
  return fmt::format("{} and {} more", fmt::join(names.begin(), names.begin() + kShown, ", "),
                     names.size() - kShown);
}

}  // namespace

// The properties of vertices and links live in the Boost graph. Beside it stand what Boost does not
// give in the form the interface needs: links by number, the links of a vertex as contiguous
// numbers, and vertices by name.
struct Topology::Impl {
  std::string name;
  Graph graph;
  std::vector<Edge> edges;  // by LinkId
  std::vector<std::vector<LinkId>> out;
  std::vector<std::vector<LinkId>> in;
  std::unordered_map<std::string, NodeId> by_name;
  std::vector<NodeId> ranks;                      // by Rank
  std::vector<std::optional<Rank>> rank_of_node;  // by NodeId
  std::vector<std::optional<LinkId>> processors;  // by Rank
  std::optional<MeasuredProcessor> measured_processor;

  Impl() = default;
  Impl(const Impl& other)
      : name(other.name),
        by_name(other.by_name),
        ranks(other.ranks),
        rank_of_node(other.rank_of_node),
        processors(other.processors),
        measured_processor(other.measured_processor) {
    // Edge descriptors point into the graph that made them, so the edges are added anew, in order.
    for (std::size_t v = 0; v < other.out.size(); ++v) {
      boost::add_vertex(other.graph[v], graph);
    }
    out.resize(other.out.size());
    in.resize(other.out.size());
    edges.reserve(other.edges.size());
    for (const Edge& edge : other.edges) {
      append(other.graph[edge]);
    }
  }
  Impl(Impl&&) = delete;
  Impl& operator=(const Impl&) = delete;
  Impl& operator=(Impl&&) = delete;
  ~Impl() = default;

  /// Where a complaint points: this cluster, and a part of it. Who read a file knows its name.
  std::string place(const std::string& part = "") const {
    return fmt::format("cluster '{}'{}{}", name, part.empty() ? "" : ", ", part);
  }

  LinkId append(const Link& link) {
    const LinkId id(edges.size());
    edges.push_back(boost::add_edge(link.from.index(), link.to.index(), link, graph).first);
    out[link.from.index()].push_back(id);
    in[link.to.index()].push_back(id);
    return id;
  }

  void check_node(NodeId id) const {
    if (id.index() >= out.size()) {
      throw ConfigError(ErrorContext{"", place(), fmt::format("vertex number {}", id.value()),
                                     fmt::format("a number below {}", out.size())});
    }
  }

  void check_link(LinkId id) const {
    if (id.index() >= edges.size()) {
      throw ConfigError(ErrorContext{"", place(), fmt::format("link number {}", id.value()),
                                     fmt::format("a number below {}", edges.size())});
    }
  }

  void check_rates(const std::string& where, Bandwidth bandwidth, Duration latency) const {
    if (bandwidth <= Bandwidth(0)) {
      throw ConfigError(ErrorContext{"", place(where), "bandwidth " + to_exact_string(bandwidth),
                                     "a bandwidth above 0"});
    }
    if (latency < Duration(0)) {
      throw ConfigError(ErrorContext{"", place(where), "latency " + to_exact_string(latency),
                                     "a latency of 0 or more"});
    }
  }
};

Topology::Topology() : impl_(std::make_unique<Impl>()) {}
Topology::Topology(std::string name) : Topology() { impl_->name = std::move(name); }
Topology::Topology(const Topology& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(const Topology& other) {
  if (this != &other) {
    impl_ = std::make_unique<Impl>(*other.impl_);
  }
  return *this;
}
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::~Topology() = default;

const std::string& Topology::name() const { return impl_->name; }
void Topology::set_name(std::string name) { impl_->name = std::move(name); }

NodeId Topology::add_node(Node node) {
  const NodeId id(impl_->out.size());
  if (node.name.empty()) {
    throw ConfigError(ErrorContext{"", impl_->place(fmt::format("vertex number {}", id.value())),
                                   "no name", "a name"});
  }
  if (has_control_character(node.name)) {  // tables and lines of text would break
    throw ConfigError(ErrorContext{"", impl_->place(), fmt::format("a vertex '{}'", node.name),
                                   "a name without control characters"});
  }
  if (!impl_->by_name.emplace(node.name, id).second) {
    throw ConfigError(ErrorContext{"", impl_->place(),
                                   fmt::format("a second vertex '{}'", node.name),
                                   "names that are unique"});
  }
  boost::add_vertex(std::move(node), impl_->graph);
  impl_->out.emplace_back();
  impl_->in.emplace_back();
  impl_->rank_of_node.emplace_back();
  return id;
}

Rank Topology::add_rank(NodeId node) {
  impl_->check_node(node);
  std::optional<Rank>& slot = impl_->rank_of_node[node.index()];
  if (slot) {
    throw ConfigError(ErrorContext{
        "", impl_->place(), fmt::format("vertex '{}' as a rank twice", this->node(node).name),
        "each vertex at most once"});
  }
  slot = Rank(impl_->ranks.size());
  impl_->ranks.push_back(node);
  impl_->processors.emplace_back();
  return *slot;
}

LinkId Topology::add_link(Link link) {
  impl_->check_node(link.from);
  impl_->check_node(link.to);
  const std::string where = fmt::format("link {}→{}", node(link.from).name, node(link.to).name);
  if (link.from == link.to) {
    throw ConfigError(ErrorContext{"", impl_->place(where), "a link from a vertex to itself",
                                   "two different ends"});
  }
  if (has_control_character(link.tier)) {
    throw ConfigError(ErrorContext{"", impl_->place(where), fmt::format("a tier '{}'", link.tier),
                                   "a name without control characters"});
  }
  impl_->check_rates(where, link.bandwidth, link.latency);
  for (const Duration overhead : {link.overhead, link.receive_overhead}) {
    if (overhead < Duration(0)) {
      throw ConfigError(ErrorContext{"", impl_->place(where),
                                     "overhead " + to_exact_string(overhead),
                                     "an overhead of 0 or more"});
    }
  }
  if (link.flow_bandwidth < Bandwidth(0)) {
    throw ConfigError(ErrorContext{"", impl_->place(where),
                                   "flow_bandwidth " + to_exact_string(link.flow_bandwidth),
                                   "a rate above 0, or none"});
  }
  if (link.burst < Bytes(0)) {
    throw ConfigError(ErrorContext{"", impl_->place(where), "burst " + to_exact_string(link.burst),
                                   "a burst of 0 or more"});
  }
  if (!(link.cpu_share >= 0 && link.cpu_share <= 1)) {
    throw ConfigError(ErrorContext{"", impl_->place(where),
                                   fmt::format("cpu_share {}", link.cpu_share),
                                   "a share from 0 to 1"});
  }
  if (link.tier.empty()) {
    link.tier = to_string(link.kind);
  }
  return impl_->append(link);
}

LinkId Topology::add_duplex_link(Link link) {
  const LinkId first = add_link(link);
  std::swap(link.from, link.to);
  add_link(std::move(link));
  return first;
}

void Topology::set_link_rate(LinkId link, Bandwidth bandwidth, Duration latency) {
  impl_->check_link(link);
  impl_->check_rates("link " + link_name(link), bandwidth, latency);
  Link& stored = impl_->graph[impl_->edges[link.index()]];
  stored.bandwidth = bandwidth;
  stored.latency = latency;
}

void Topology::remove_bursts() {
  for (const auto& edge : impl_->edges) {
    impl_->graph[edge].burst = Bytes(0);
  }
}

void Topology::set_node_properties(NodeId node, const Node& properties) {
  impl_->check_node(node);
  Node& stored = impl_->graph[node.index()];
  std::string name = std::move(stored.name);
  stored = properties;
  stored.name = std::move(name);
}

std::size_t Topology::node_count() const { return impl_->out.size(); }
std::size_t Topology::link_count() const { return impl_->edges.size(); }
std::size_t Topology::rank_count() const { return impl_->ranks.size(); }
const Node& Topology::node(NodeId id) const { return impl_->graph[id.index()]; }
const Link& Topology::link(LinkId id) const { return impl_->graph[impl_->edges[id.index()]]; }

namespace {

/// From one vertex to another, in the order of their numbers.
std::vector<LinkId> links_between(const Topology& topology, NodeId from, NodeId to) {
  const auto out = topology.links_out_of(from);
  const auto in = topology.links_into(to);
  std::vector<LinkId> between;
  for (const LinkId id : out.size() < in.size() ? out : in) {
    if (topology.link(id).from == from && topology.link(id).to == to) {
      between.push_back(id);
    }
  }
  return between;
}

}  // namespace

std::string Topology::link_name(LinkId id) const {
  const Link& l = link(id);
  std::string name = node(l.from).name + "→" + node(l.to).name;
  const std::vector<LinkId> parallel = links_between(*this, l.from, l.to);
  if (parallel.size() > 1) {
    const auto place = std::find(parallel.begin(), parallel.end(), id) - parallel.begin();
    name += fmt::format("#{}", place + 1);
  }
  return name;
}

std::span<const LinkId> Topology::links_out_of(NodeId id) const { return impl_->out[id.index()]; }
std::span<const LinkId> Topology::links_into(NodeId id) const { return impl_->in[id.index()]; }

NodeId Topology::node_of(Rank rank) const {
  if (rank.index() >= impl_->ranks.size()) {
    throw ConfigError(ErrorContext{"", impl_->place(), fmt::format("rank {}", rank.value()),
                                   fmt::format("a rank below {}", impl_->ranks.size())});
  }
  return impl_->ranks[rank.index()];
}

std::optional<Rank> Topology::rank_of(NodeId node) const {
  return impl_->rank_of_node[node.index()];
}

std::optional<NodeId> Topology::find_node(std::string_view name) const {
  const auto found = impl_->by_name.find(std::string(name));
  return found == impl_->by_name.end() ? std::nullopt : std::optional(found->second);
}

std::optional<LinkId> Topology::processor_of(Rank rank) const {
  return impl_->processors[rank.index()];
}

void Topology::set_processor(Rank rank, LinkId link) {
  if (rank.index() >= rank_count() || link.index() >= link_count()) {
    throw ConfigError(ErrorContext{
        "", impl_->place(),
        fmt::format("link number {} as processor of rank {}", link.value(), rank.value()),
        "a link and a rank that exist"});
  }
  impl_->processors[rank.index()] = link;
}

const std::optional<MeasuredProcessor>& Topology::measured_processor() const {
  return impl_->measured_processor;
}

void Topology::set_measured_processor(std::optional<MeasuredProcessor> processor) {
  impl_->measured_processor = std::move(processor);
}

std::string Topology::digest() const {
  // Names are preceded by their length, so that no two topologies share a text.
  std::string text;
  const auto add = [&text](std::string_view field) {
    fmt::format_to(std::back_inserter(text), "{}:{} ", field.size(), field);
  };
  for (std::size_t v = 0; v < node_count(); ++v) {
    const Node& n = node(NodeId(v));
    text += "node ";
    for (const std::string& field : {n.name, n.host, n.rack, n.device_class}) {
      add(field);
    }
    const std::optional<Rank> rank = rank_of(NodeId(v));
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {}\n", to_string(n.kind),
                   n.memory ? to_exact_string(*n.memory) : "-", n.multicasts, n.reduces,
                   rank ? std::to_string(rank->value()) : "-");
    if (n.host_staging != Bandwidth(0)) {
      fmt::format_to(std::back_inserter(text), "staging {} {}\n", v,
                     to_exact_string(n.host_staging));
    }
  }
  for (std::size_t l = 0; l < link_count(); ++l) {
    const Link& k = link(LinkId(l));
    text += "link ";
    add(k.tier);
    fmt::format_to(std::back_inserter(text), "{} {} {} {} {} {} {}\n", k.from.value(), k.to.value(),
                   to_exact_string(k.bandwidth), to_exact_string(k.latency), to_string(k.kind),
                   to_exact_string(k.overhead), k.cpu_share);
    if (k.receive_overhead != Duration(0)) {
      fmt::format_to(std::back_inserter(text), "receive {} {}\n", l,
                     to_exact_string(k.receive_overhead));
    }
    if (k.flow_bandwidth != Bandwidth(0)) {
      fmt::format_to(std::back_inserter(text), "flow {} {}\n", l,
                     to_exact_string(k.flow_bandwidth));
    }
    if (k.burst != Bytes(0)) {
      fmt::format_to(std::back_inserter(text), "burst {} {}\n", l, to_exact_string(k.burst));
    }
  }
  for (std::size_t r = 0; r < rank_count(); ++r) {
    if (const std::optional<LinkId> processor = processor_of(Rank(r))) {
      fmt::format_to(std::back_inserter(text), "processor {} {}\n", r, processor->value());
    }
  }
  return sha256_hex(text);
}

void Topology::require_connected() const {
  if (rank_count() < 2) {
    return;
  }
  // Ranks that reach each other are the ranks of one strongly connected component. Resources of a
  // machine are no ways.
  const Graph& graph = impl_->graph;
  const auto is_way = [&graph](const Edge& edge) { return graph[edge].kind != LinkKind::kShared; };
  const boost::filtered_graph<Graph, std::function<bool(Edge)>> ways(graph, is_way);
  std::vector<int> component(node_count());
  boost::strong_components(ways, boost::make_iterator_property_map(
                                     component.begin(), boost::get(boost::vertex_index, graph)));
  const int first = component[impl_->ranks.front().index()];
  std::vector<std::string> together;
  std::vector<std::string> apart;
  for (const NodeId v : impl_->ranks) {
    (component[v.index()] == first ? together : apart).push_back(node(v).name);
  }
  if (!apart.empty()) {
    std::vector<bool> is_linked(node_count());
    for (std::size_t l = 0; l < link_count(); ++l) {
      is_linked[link(LinkId(l)).from.index()] = is_linked[link(LinkId(l)).to.index()] = true;
    }
    const auto alone =
        std::ranges::find_if(impl_->ranks, [&](const NodeId v) { return !is_linked[v.index()]; });
    throw ConfigError(
        ErrorContext{"", impl_->place(),
                     fmt::format("two parts without a way there and back: {} | {}{}",
                                 sample_of(together), sample_of(apart),
                                 alone == impl_->ranks.end()
                                     ? std::string()
                                     : fmt::format(" (no link names '{}')", node(*alone).name)),
                     "every rank to reach every other"});
  }
}

std::vector<LinkId> links_named(const Topology& topology, const std::string& typed) {
  std::string name = typed;
  if (const std::size_t at = name.find("->"); at != std::string::npos) {
    name.replace(at, 2, "→");
  }
  std::vector<LinkId> named;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    const std::string& from = topology.node(link.from).name;
    const std::string& to = topology.node(link.to).name;
    const bool is_between =
        name.starts_with(from) && std::string_view(name).substr(from.size()).starts_with("→" + to);
    if (is_between && (name == from + "→" + to || name == topology.link_name(LinkId(i)))) {
      named.emplace_back(i);
    }
  }
  return named;
}

std::optional<LinkId> way_back(const Topology& topology, LinkId id) {
  const Link& link = topology.link(id);
  const std::vector<LinkId> there = links_between(topology, link.from, link.to);
  const std::vector<LinkId> back = links_between(topology, link.to, link.from);
  const auto place =
      static_cast<std::size_t>(std::find(there.begin(), there.end(), id) - there.begin());
  return place < back.size() ? std::optional(back[place]) : std::nullopt;
}

Duration burst_time(const Link& link) { return link.burst / link.bandwidth; }

Duration longest_burst_time(const Topology& topology) {
  Duration longest;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    longest = std::max(longest, burst_time(topology.link(LinkId(l))));
  }
  return longest;
}

}  // namespace rackrail::topology

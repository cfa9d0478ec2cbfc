#include "topology/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/parse_units.hpp"

namespace rackrail::topology {

namespace {

// The graph keeps the structure; links are also numbered in the order in which they were added, so
// that a LinkId finds its edge in constant time.
using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS, Node, LinkId>;

constexpr const char* kWhere = "topology";

}  // namespace

struct Topology::Impl {
  std::string name;
  Graph graph;
  std::vector<Link> links;
  std::vector<std::vector<LinkId>> out;
  std::vector<std::vector<LinkId>> in;
  std::vector<NodeId> ranks;
  std::unordered_map<std::string, NodeId> by_name;
  std::unordered_map<NodeId, Rank> rank_by_node;
  std::vector<std::optional<LinkId>> processors;
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
  if (node.name.empty()) {
    throw ConfigError(ErrorContext{"", kWhere, "a vertex without a name", "a unique name"});
  }
  const NodeId id(impl_->out.size());
  if (!impl_->by_name.emplace(node.name, id).second) {
    throw ConfigError(
        ErrorContext{"", kWhere, fmt::format("two vertices '{}'", node.name), "unique names"});
  }
  boost::add_vertex(std::move(node), impl_->graph);
  impl_->out.emplace_back();
  impl_->in.emplace_back();
  return id;
}

Rank Topology::add_rank(NodeId node) {
  const Rank rank(impl_->ranks.size());
  if (!impl_->rank_by_node.emplace(node, rank).second) {
    throw ConfigError(ErrorContext{"", kWhere,
                                   fmt::format("'{}' as two ranks", this->node(node).name),
                                   "one rank per vertex"});
  }
  impl_->ranks.push_back(node);
  impl_->processors.emplace_back();
  return rank;
}

LinkId Topology::add_link(Link link) {
  if (link.from.index() >= node_count() || link.to.index() >= node_count()) {
    throw ConfigError(ErrorContext{"", kWhere, "a link to a vertex that does not exist",
                                   "two vertices of the topology"});
  }
  if (link.from == link.to) {
    throw ConfigError(ErrorContext{"", kWhere,
                                   fmt::format("a link from '{}' to itself", node(link.from).name),
                                   "two different vertices"});
  }
  if (link.bandwidth.bytes_per_second() <= 0 || link.latency < Duration()) {
    throw ConfigError(
        ErrorContext{"", fmt::format("link {}→{}", node(link.from).name, node(link.to).name),
                     fmt::format("{}, latency {}", rackrail::to_string(link.bandwidth),
                                 rackrail::to_string(link.latency)),
                     "a positive bandwidth and a latency of 0 or more"});
  }
  const LinkId id(impl_->links.size());
  impl_->out[link.from.index()].push_back(id);
  impl_->in[link.to.index()].push_back(id);
  boost::add_edge(link.from.index(), link.to.index(), id, impl_->graph);
  impl_->links.push_back(std::move(link));
  return id;
}

LinkId Topology::add_duplex_link(Link link) {
  Link back = link;
  std::swap(back.from, back.to);
  const LinkId first = add_link(std::move(link));
  add_link(std::move(back));
  return first;
}

void Topology::set_link_rate(LinkId link, Bandwidth bandwidth, Duration latency) {
  if (bandwidth.bytes_per_second() <= 0) {
    throw ConfigError(
        ErrorContext{"", "link " + link_name(link), "a bandwidth of zero", "a positive bandwidth"});
  }
  Link& changed = impl_->links.at(link.index());
  changed.bandwidth = bandwidth;
  changed.latency = latency;
}

void Topology::set_node_properties(NodeId node, const Node& properties) {
  Node& changed = impl_->graph[node.index()];
  std::string name = changed.name;
  changed = properties;
  changed.name = std::move(name);
}

std::size_t Topology::node_count() const { return impl_->out.size(); }
std::size_t Topology::link_count() const { return impl_->links.size(); }
std::size_t Topology::rank_count() const { return impl_->ranks.size(); }
const Node& Topology::node(NodeId id) const { return impl_->graph[id.index()]; }
const Link& Topology::link(LinkId id) const { return impl_->links[id.index()]; }

std::string Topology::link_name(LinkId id) const {
  return node(link(id).from).name + "→" + node(link(id).to).name;
}

std::span<const LinkId> Topology::links_out_of(NodeId id) const { return impl_->out[id.index()]; }
std::span<const LinkId> Topology::links_into(NodeId id) const { return impl_->in[id.index()]; }
NodeId Topology::node_of(Rank rank) const { return impl_->ranks.at(rank.index()); }

std::optional<Rank> Topology::rank_of(NodeId node) const {
  const auto it = impl_->rank_by_node.find(node);
  return it == impl_->rank_by_node.end() ? std::nullopt : std::optional(it->second);
}

std::optional<NodeId> Topology::find_node(std::string_view name) const {
  const auto it = impl_->by_name.find(std::string(name));
  return it == impl_->by_name.end() ? std::nullopt : std::optional(it->second);
}

std::optional<LinkId> Topology::processor_of(Rank rank) const {
  return impl_->processors.at(rank.index());
}
void Topology::set_processor(Rank rank, LinkId link) { impl_->processors.at(rank.index()) = link; }

std::string Topology::digest() const {
  std::string text;
  for (std::size_t i = 0; i < node_count(); ++i) {
    const Node& n = node(NodeId(i));
    text += fmt::format("node {:?} {} {:?} {:?} {:?} {} {} {}\n", n.name, to_string(n.kind), n.host,
                        n.rack, n.device_class, n.memory ? n.memory->count() : -1, n.multicasts,
                        n.reduces);
  }
  for (const Link& l : impl_->links) {
    text += fmt::format("link {} {} {} {} {} {:?} {} {}\n", l.from.value(), l.to.value(),
                        l.bandwidth.bytes_per_second(), l.latency.picoseconds(), to_string(l.kind),
                        l.tier, l.overhead.picoseconds(), l.cpu_share);
  }
  for (std::size_t r = 0; r < rank_count(); ++r) {
    const auto processor = impl_->processors[r];
    text += fmt::format("rank {} {}\n", impl_->ranks[r].value(),
                        processor ? static_cast<std::int64_t>(processor->value()) : -1);
  }
  return sha256_hex(text);
}

void Topology::require_connected() const {
  if (rank_count() < 2) {
    return;
  }
  const auto reach = [&](bool forward) {
    std::vector<bool> seen(node_count(), false);
    std::vector<NodeId> open = {impl_->ranks[0]};
    seen[open[0].index()] = true;
    while (!open.empty()) {
      const NodeId at = open.back();
      open.pop_back();
      for (const LinkId l : forward ? links_out_of(at) : links_into(at)) {
        const NodeId next = forward ? link(l).to : link(l).from;
        if (!seen[next.index()]) {
          seen[next.index()] = true;
          open.push_back(next);
        }
      }
    }
    return seen;
  };
  for (const bool forward : {true, false}) {
    const std::vector<bool> seen = reach(forward);
    std::vector<std::string> apart;
    for (const NodeId rank : impl_->ranks) {
      if (!seen[rank.index()]) {
        apart.push_back(node(rank).name);
      }
    }
    if (!apart.empty()) {
      const std::string first = node(impl_->ranks[0]).name;
      throw ConfigError(ErrorContext{
          "", fmt::format("cluster '{}'", name()),
          fmt::format("no way {} '{}' {} '{}'{}", forward ? "from" : "to", first,
                      forward ? "to" : "from", apart.front(),
                      apart.size() > 1 ? fmt::format(" and {} other ranks", apart.size() - 1) : ""),
          "a connected graph"});
    }
  }
}

namespace {

constexpr std::pair<NodeKind, std::string_view> kNodeKinds[] = {
    {NodeKind::kGpu, "gpu"},      {NodeKind::kCpu, "cpu"},           {NodeKind::kPciSwitch, "pci"},
    {NodeKind::kNic, "nic"},      {NodeKind::kNvSwitch, "nvswitch"}, {NodeKind::kHost, "host"},
    {NodeKind::kTor, "tor"},      {NodeKind::kSpine, "spine"},       {NodeKind::kCore, "core"},
    {NodeKind::kSwitch, "switch"}};
constexpr std::pair<LinkKind, std::string_view> kLinkKinds[] = {
    {LinkKind::kNvlink, "nvlink"}, {LinkKind::kPcie, "pcie"},     {LinkKind::kSocket, "socket"},
    {LinkKind::kHostLink, "host"}, {LinkKind::kUplink, "uplink"}, {LinkKind::kShared, "shared"},
    {LinkKind::kOther, "other"}};

template <typename Key>
std::vector<RankGroup> grouped(const Topology& topology, Key key) {
  std::vector<RankGroup> groups;
  std::map<std::string, std::size_t> by_name;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const Node& node = topology.node(topology.node_of(Rank(r)));
    const std::string& name = key(node);
    if (name.empty()) {
      groups.push_back({node.name, {Rank(r)}});
      continue;
    }
    const auto [it, added] = by_name.emplace(name, groups.size());
    if (added) {
      groups.push_back({name, {}});
    }
    groups[it->second].ranks.push_back(Rank(r));
  }
  return groups;
}

}  // namespace

std::string_view to_string(NodeKind kind) {
  return std::find_if(std::begin(kNodeKinds), std::end(kNodeKinds),
                      [&](const auto& entry) { return entry.first == kind; })
      ->second;
}
std::string_view to_string(LinkKind kind) {
  return std::find_if(std::begin(kLinkKinds), std::end(kLinkKinds),
                      [&](const auto& entry) { return entry.first == kind; })
      ->second;
}
std::optional<NodeKind> parse_node_kind(std::string_view text) {
  for (const auto& [kind, name] : kNodeKinds) {
    if (name == text) {
      return kind;
    }
  }
  return std::nullopt;
}
std::optional<LinkKind> parse_link_kind(std::string_view text) {
  for (const auto& [kind, name] : kLinkKinds) {
    if (name == text) {
      return kind;
    }
  }
  return std::nullopt;
}

std::vector<RankGroup> ranks_by_host(const Topology& topology) {
  return grouped(topology, [](const Node& n) -> const std::string& { return n.host; });
}
std::vector<RankGroup> ranks_by_rack(const Topology& topology) {
  return grouped(topology, [](const Node& n) -> const std::string& { return n.rack; });
}

}  // namespace rackrail::topology

#include "topology/adapters.hpp"

#include <algorithm>
#include <map>

namespace rackrail::topology {
namespace {

/// Empty for what is in no machine.
std::string machine_of(const Topology& topology, NodeId id) {
  const Node& node = topology.node(id);
  return node.host.empty() && topology.rank_of(id) ? node.name : node.host;
}

/// Finds the adapters of one machine after the other.
class Finder {
 public:
  explicit Finder(const Topology& topology) : topology_(topology) {
    for (std::size_t i = 0; i < topology.node_count(); ++i) {
      machines_.push_back(machine_of(topology, NodeId(i)));
    }
  }

  std::vector<Adapter> run() {
    for (std::size_t i = 0; i < machines_.size(); ++i) {
      if (!machines_[i].empty()) {
        add_adapters_at(NodeId(i));
      }
    }
    std::vector<Adapter> all;
    bool has_choice = false;
    for (std::vector<Adapter>& machine : by_machine_) {
      has_choice |= machine.size() > 1;
      std::move(machine.begin(), machine.end(), std::back_inserter(all));
    }
    return has_choice ? all : std::vector<Adapter>();
  }

 private:
  bool leads_out(const Link& link, NodeId end) const {
    const NodeId other = link.from == end ? link.to : link.from;
    return machines_[end.index()] != machines_[other.index()] &&
           (topology_.node(end).kind == NodeKind::kNic || link.kind == LinkKind::kHostLink);
  }

  Adapter& add_adapter(NodeId end, const Link& link) {
    const auto [place, is_new] = place_of_.try_emplace(machines_[end.index()], by_machine_.size());
    if (is_new) {
      by_machine_.emplace_back();
    }
    std::vector<Adapter>& machine = by_machine_[place->second];
    const Node& node = topology_.node(end);
    std::string devices = link.adapter;
    if (node.kind == NodeKind::kNic) {
      devices += (devices.empty() ? "" : " ") + node.name;
    }
    machine.push_back({.host = machines_[end.index()],
                       .name = "nic" + std::to_string(machine.size()),
                       .devices = std::move(devices),
                       .out = {},
                       .in = {}});
    return machine.back();
  }

  void add_adapters_at(NodeId end) {
    const bool is_nic = topology_.node(end).kind == NodeKind::kNic;
    Adapter* adapter = nullptr;
    // Of parallel cables the ways back are in the order of the ways there.
    std::map<NodeId, std::vector<LinkId>> ways_back;
    for (const LinkId in : topology_.links_into(end)) {
      if (leads_out(topology_.link(in), end)) {
        ways_back[topology_.link(in).from].push_back(in);
      }
    }
    std::map<NodeId, std::size_t> used;
    for (const LinkId out : topology_.links_out_of(end)) {
      const Link& link = topology_.link(out);
      if (!leads_out(link, end)) {
        continue;
      }
      if (!is_nic || adapter == nullptr) {
        adapter = &add_adapter(end, link);
      }
      adapter->out.push_back(out);
      const std::vector<LinkId>& back = ways_back[link.to];
      if (const std::size_t number = used[link.to]++; number < back.size()) {
        adapter->in.push_back(back[number]);
      }
    }
  }

  const Topology& topology_;
  std::vector<std::string> machines_;  ///< by vertex
  std::map<std::string, std::size_t> place_of_;
  std::vector<std::vector<Adapter>> by_machine_;
};

bool is_cable_of(const Topology& topology, NodeId nic, const Link& link) {
  const Node& other = topology.node(link.from == nic ? link.to : link.from);
  if (link.kind == LinkKind::kShared) {
    return false;
  }
  if (const std::string& host = topology.node(nic).host; !host.empty()) {
    return other.host != host;
  }
  return other.kind == NodeKind::kNic || other.kind == NodeKind::kTor ||
         other.kind == NodeKind::kSpine || other.kind == NodeKind::kCore ||
         other.kind == NodeKind::kSwitch;
}

}  // namespace

std::vector<Adapter> adapters_of(const Topology& topology) { return Finder(topology).run(); }

std::vector<NodeId> nics_without_cable(const Topology& topology) {
  std::vector<NodeId> without;
  bool has_cables = false;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const NodeId nic(v);
    if (topology.node(nic).kind != NodeKind::kNic) {
      continue;
    }
    const auto is_cable = [&](LinkId id) { return is_cable_of(topology, nic, topology.link(id)); };
    if (std::ranges::any_of(topology.links_out_of(nic), is_cable) ||
        std::ranges::any_of(topology.links_into(nic), is_cable)) {
      has_cables = true;
    } else {
      without.push_back(nic);
    }
  }
  return has_cables ? without : std::vector<NodeId>();
}

}  // namespace rackrail::topology

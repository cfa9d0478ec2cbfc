#include "topology/racks.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/disjoint_sets.hpp"

namespace rackrail::topology {
namespace {

bool is_inside_machines(LinkKind kind) {
  return kind == LinkKind::kNvlink || kind == LinkKind::kPcie || kind == LinkKind::kSocket ||
         kind == LinkKind::kShared;
}

/// By vertex, whether it is a switch of the network.
std::vector<bool> network_switches(const Topology& topology) {
  std::vector<bool> may_be(topology.node_count());
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const Node& node = topology.node(NodeId(v));
    may_be[v] = node.host.empty() && !topology.rank_of(NodeId(v)) &&
                (node.kind == NodeKind::kTor || node.kind == NodeKind::kSpine ||
                 node.kind == NodeKind::kCore || node.kind == NodeKind::kSwitch);
  }
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    if (is_inside_machines(link.kind)) {
      may_be[link.from.index()] = may_be[link.to.index()] = false;
    }
  }
  std::vector<bool> is_switch(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const auto [from, to] =
        std::pair(topology.link(LinkId(l)).from.index(), topology.link(LinkId(l)).to.index());
    if (may_be[from] && may_be[to]) {
      is_switch[from] = is_switch[to] = true;
    }
  }
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    is_switch[v] =
        is_switch[v] || (may_be[v] && topology.node(NodeId(v)).kind != NodeKind::kSwitch);
  }
  return is_switch;
}

/// Of the machine of a vertex; its own where nobody says.
const std::string& host_or_name(const Node& node) {
  return node.host.empty() ? node.name : node.host;
}

/// By vertex, whether it is a switch beside the network, such as one for management: it joins the
/// hosts of all ranks and no other switch, while there are some that are joined.
std::vector<bool> switches_beside(const Topology& topology, const std::vector<bool>& is_switch) {
  std::vector<std::set<std::string>> hosts(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    for (const auto& [end, other] :
         {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
      hosts[end.index()].insert(host_or_name(topology.node(other)));
    }
  }
  std::set<std::string> all;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    all.insert(host_or_name(topology.node(topology.node_of(Rank(r)))));
  }
  const bool is_network = std::find(is_switch.begin(), is_switch.end(), true) != is_switch.end();
  std::vector<bool> is_beside(topology.node_count());
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    is_beside[v] = is_network && !is_switch[v] && all.size() > 1 &&
                   std::includes(hosts[v].begin(), hosts[v].end(), all.begin(), all.end()) &&
                   topology.node(NodeId(v)).kind == NodeKind::kSwitch &&
                   topology.node(NodeId(v)).host.empty();
  }
  return is_beside;
}

/// Whether it joins a machine that has a name with an NVSwitch that is of none.
bool leads_to_shared_nvswitch(const Topology& topology, const Link& link) {
  const auto is_shared = [&](NodeId hub, NodeId part) {
    return topology.node(hub).host.empty() && !topology.rank_of(hub) &&
           !topology.node(part).host.empty();
  };
  return link.kind == LinkKind::kNvlink &&
         (is_shared(link.from, link.to) || is_shared(link.to, link.from));
}

/// What is linked without switches of the network, or of one host.
DisjointSets machines_of(const Topology& topology, const std::vector<bool>& is_switch) {
  const std::vector<bool> is_beside = switches_beside(topology, is_switch);
  DisjointSets machines(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    const bool is_inside = !is_switch[link.from.index()] && !is_switch[link.to.index()];
    if (is_inside && !is_beside[link.from.index()] && !is_beside[link.to.index()] &&
        !leads_to_shared_nvswitch(topology, link)) {
      machines.join(link.from.value(), link.to.value());
    }
  }
  std::unordered_map<std::string, std::uint32_t> first_of;  // by host
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (const std::string& host = topology.node(NodeId(v)).host; !host.empty()) {
      const auto id = static_cast<std::uint32_t>(v);
      machines.join(id, first_of.emplace(host, id).first->second);
    }
  }
  return machines;
}

struct Rack {
  std::set<NodeId> switches;         ///< on which one of its machines hangs
  std::set<std::uint32_t> machines;  ///< those with ranks
};

class Racks {
 public:
  explicit Racks(const Topology& topology)
      : topology_(topology),
        is_switch_(network_switches(topology)),
        machine_of_(machines_of(topology, is_switch_).numbers()),
        sets_(topology.node_count()) {
    join();
    for (std::size_t r = 0; r < topology.rank_count(); ++r) {
      const NodeId rank = topology.node_of(Rank(r));
      racks_[sets_.find(rank.value())].machines.insert(machine_of_[rank.index()]);
    }
    for (const NodeId id : leaves_) {
      const auto found = racks_.find(sets_.find(id.value()));
      if (found == racks_.end()) {
        continue;
      }
      found->second.switches.insert(id);
      const NodeKind kind = topology.node(id).kind;
      are_below_others_ = are_below_others_ && kind != NodeKind::kSpine && kind != NodeKind::kCore;
    }
  }

  bool say_something() const {
    const auto all = [this](auto holds) {
      return std::all_of(racks_.begin(), racks_.end(),
                         [&](const auto& entry) { return holds(entry.second); });
    };
    if (!are_below_others_ || !all([](const Rack& rack) { return !rack.switches.empty(); })) {
      return false;
    }
    const auto is_tor = [this](const Rack& rack) {
      return rack.switches.size() == 1 &&
             topology_.node(*rack.switches.begin()).kind == NodeKind::kTor;
    };
    return all(is_tor) ||
           (racks_.size() > 1 && !all([](const Rack& rack) { return rack.machines.size() == 1; }));
  }

  std::vector<std::string> names() {
    std::vector<std::string> names(topology_.node_count());
    for (std::size_t v = 0; v < names.size(); ++v) {
      const auto found = racks_.find(sets_.find(static_cast<std::uint32_t>(v)));
      if (!is_switch_[v] && found != racks_.end()) {
        names[v] = topology_.node(*found->second.switches.begin()).name;
      }
    }
    return names;
  }

 private:
  /// Machines with ranks and the switches that they hang on.
  void join() {
    std::vector<bool> has_ranks(topology_.node_count());  // by machine
    for (std::size_t r = 0; r < topology_.rank_count(); ++r) {
      has_ranks[machine_of_[topology_.node_of(Rank(r)).index()]] = true;
    }
    std::unordered_map<std::uint32_t, std::uint32_t> first_of;  // by machine
    for (std::size_t v = 0; v < topology_.node_count(); ++v) {
      if (!is_switch_[v]) {
        const auto id = static_cast<std::uint32_t>(v);
        sets_.join(id, first_of.emplace(machine_of_[v], id).first->second);
      }
    }
    for (std::size_t l = 0; l < topology_.link_count(); ++l) {
      const Link& link = topology_.link(LinkId(l));
      for (const auto& [end, other] :
           {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
        if (!is_switch_[end.index()] && is_switch_[other.index()] &&
            has_ranks[machine_of_[end.index()]]) {
          sets_.join(end.value(), other.value());
          leaves_.insert(other);
        }
      }
    }
  }

  const Topology& topology_;
  std::vector<bool> is_switch_;
  std::vector<std::uint32_t> machine_of_;
  DisjointSets sets_;
  std::set<NodeId> leaves_;              ///< switches on which a machine hangs
  std::map<std::uint32_t, Rack> racks_;  ///< those with ranks, by their set
  bool are_below_others_ = true;         ///< no leaf is a spine or core switch
};

}  // namespace

std::vector<std::string> racks_by_structure(const Topology& topology) {
  Racks racks(topology);
  return racks.say_something() ? racks.names() : std::vector<std::string>();
}

void name_racks(Topology& topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (!topology.node(NodeId(v)).rack.empty()) {
      return;
    }
  }
  const std::vector<std::string> racks = racks_by_structure(topology);
  for (std::size_t v = 0; v < racks.size(); ++v) {
    Node node = topology.node(NodeId(v));
    node.rack = racks[v];
    topology.set_node_properties(NodeId(v), node);
  }
}

}  // namespace rackrail::topology

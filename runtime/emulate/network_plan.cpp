#include "runtime/emulate/network_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "runtime/emulate/commands.hpp"
#include "runtime/emulate/contraction.hpp"
#include "topology/adapters.hpp"

namespace rackrail::runtime::emulate {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& found,
                         const std::string& expected) {
  throw ConfigError(ErrorContext{.file = "", .where = where, .found = found, .expected = expected});
}

/// The `number`-th address of a network, from 1; the leader's is the first one of the management
/// network, so stations count from 2 in all.
std::string address_in(std::size_t network, std::size_t number) {
  constexpr std::size_t kPerByte = 250;  // keeps clear of .0 and .255
  return fmt::format("10.{}.{}.{}", network, number / kPerByte, number % kPerByte + 1);
}
constexpr std::size_t kManagementNetwork = 78;
/// 10.77 for the first, then 10.79 and on: the management network is between them.
std::string data_address(std::size_t rail, std::size_t station) {
  return address_in(rail == 0 ? 77 : kManagementNetwork + rail, station + 1);
}

/// Numbers the vertices that are left: hosts by their first rank, then switches.
std::vector<std::optional<std::size_t>> number_stations(const Contraction& graph,
                                                        NetworkPlan& plan) {
  std::vector<std::optional<std::size_t>> station_of(graph.vertices.size());
  const auto add = [&](std::size_t v) {
    if (graph.vertices[v].is_gone || station_of[v]) {
      return;
    }
    const std::size_t number = plan.stations.size();
    station_of[v] = number;
    const bool is_host = graph.vertices[v].is_host;
    plan.stations.push_back(
        {.name = graph.vertices[v].name,
         .is_host = is_host,
         .address = data_address(0, number),
         .management_address = is_host ? address_in(kManagementNetwork, number + 1) : ""});
    plan.host_count += is_host ? 1 : 0;
  };
  for (const std::size_t v : graph.vertex_of_rank) {
    add(v);
  }
  if (plan.host_count > kMostHosts) {
    refuse("hosts", std::to_string(plan.host_count), fmt::format("at most {}", kMostHosts));
  }
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    if (graph.vertices[v].is_host && !graph.vertices[v].is_gone && !station_of[v]) {
      refuse("host " + graph.vertices[v].name, "a machine without ranks that forwards",
             "switches between the machines with ranks");
    }
    add(v);
  }
  return station_of;
}

/// The data networks in the order of their interfaces: by number of the contraction's network.
/// Hosts that are joined directly are in the first.
class Rails {
 public:
  explicit Rails(const Contraction& graph) : graph_(graph) {
    std::map<std::size_t, std::size_t> hosts;  // by network
    std::size_t all = 0;
    for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
      if (!graph.vertices[v].is_host || graph.vertices[v].is_gone) {
        continue;
      }
      ++all;
      for (const std::size_t n : graph.neighbours(v)) {
        if (graph.vertices[n].network) {
          ++hosts[*graph.vertices[n].network];
        }
      }
    }
    const auto first = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const auto& entry) { return entry.second == all; });
    if (hosts.size() > kMostRails || (hosts.size() > 1 && first == hosts.end())) {
      refuse("network", fmt::format("{} networks that are joined by machines only", hosts.size()),
             fmt::format("at most {}, of which one joins all machines", kMostRails));
    }
    if (first != hosts.end()) {
      rail_of_[first->first] = 0;
    }
    for (const auto& [network, count] : hosts) {
      rail_of_.emplace(network, rail_of_.size());
    }
  }

  /// Of the network that a link with this end, or the other one, is of.
  std::size_t at(std::size_t a, std::size_t b) const {
    for (const std::size_t v : {a, b}) {
      if (const auto network = graph_.vertices[v].network) {
        const auto rail = rail_of_.find(*network);
        return rail == rail_of_.end() ? 0 : rail->second;
      }
    }
    return 0;
  }

 private:
  const Contraction& graph_;
  std::map<std::size_t, std::size_t> rail_of_;
};

void require_trees(const Contraction& graph) {
  std::size_t ends = 0;  // switches, and each host once for each of its links
  std::set<std::optional<std::size_t>> networks;
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const Contraction::Vertex& vertex = graph.vertices[v];
    if (vertex.is_gone) {
      continue;
    }
    if (!vertex.is_host) {
      ++ends;
      networks.insert(vertex.network);
      continue;
    }
    const auto neighbours = graph.neighbours(v);
    std::set<std::optional<std::size_t>> joined;
    for (const std::size_t n : neighbours) {
      joined.insert(graph.vertices[n].network);
    }
    ends += neighbours.size();
    if (neighbours.size() > 1 && (joined.size() < neighbours.size() || joined.contains({}))) {
      refuse("host " + vertex.name,
             fmt::format("links to {} different stations", neighbours.size()),
             "one, or switches that only hosts join: an emulated host does not forward");
    }
  }
  const auto direct = std::count_if(graph.edges.begin(), graph.edges.end(), [&](const auto& edge) {
    return graph.vertices[edge.first.first].is_host && graph.vertices[edge.first.second].is_host;
  });
  // A tree has one link less than ends, and two hosts that are joined directly are one.
  const std::size_t most = ends - networks.size() - static_cast<std::size_t>(direct) / 2;
  if (graph.edges.size() / 2 > most) {
    refuse("network", fmt::format("{} links, so a loop", graph.edges.size() / 2),
           fmt::format("{}: a tree once switches with the same neighbours are one, because bridges "
                       "do not route",
                       most));
  }
}

void add_links(const Contraction& graph, const Rails& rails,
               const std::vector<std::optional<std::size_t>>& station_of, NetworkPlan& plan) {
  std::vector<std::size_t> ports(plan.stations.size(), 0);
  const auto port = [&](std::size_t station, std::size_t rail) {
    return plan.stations[station].is_host ? data_interface(rail)
                                          : fmt::format("port{}", ports[station]++);
  };
  for (const auto& [ends, edge] : graph.edges) {
    const std::size_t a = station_of[ends.first].value();
    const std::size_t b = station_of[ends.second].value();
    if (a > b) {
      continue;  // the other direction of one that was added, or will be
    }
    const Bandwidth back = graph.edges.at({ends.second, ends.first}).rate;
    const std::size_t rail = rails.at(ends.first, ends.second);
    for (const std::size_t station : {a, b}) {
      if (!plan.stations[station].is_host) {
        plan.stations[station].address = data_address(rail, station);
      }
    }
    const std::string port_a = port(a, rail);
    plan.links.push_back({.a = a,
                          .b = b,
                          .port_a = port_a,
                          .port_b = port(b, rail),
                          .address_a = data_address(rail, a),
                          .address_b = data_address(rail, b),
                          .rate_ab = scaled(edge.rate, plan.scale),
                          .rate_ba = scaled(back, plan.scale),
                          .tier = edge.tier});
  }
}

/// What the topology's adapters are called in the emulated hosts; and those of the interfaces
/// themselves, as the emulated topology has them.
void name_adapters(const topology::Topology& topology, NetworkPlan& plan) {
  plan.adapters.resize(plan.host_count);
  std::map<std::string, std::size_t> host_of;
  for (std::size_t host = 0; host < plan.host_count; ++host) {
    host_of[plan.stations[host].name] = host;
  }
  const auto add = [&](std::size_t host, const std::string& name, const std::string& interface) {
    std::string& list = plan.adapters[host];
    list += fmt::format("{}{}={}", list.empty() ? "" : ",", name, interface);
  };
  for (const ShapedLink& link : plan.links) {
    for (const auto& [station, port] : {std::pair(link.a, link.port_a), {link.b, link.port_b}}) {
      if (plan.stations[station].is_host) {
        add(station, port, port);
      }
    }
  }
  for (const topology::Adapter& adapter : topology::adapters_of(topology)) {
    const auto host = host_of.find(adapter.host);
    if (host != host_of.end()) {
      add(host->second, adapter.name,
          data_interface(plan.rail_of_link[adapter.out.front().index()].value()));
    }
  }
}

void require_rates(const NetworkPlan& plan, unsigned cores) {
  Bandwidth sent;
  for (const ShapedLink& link : plan.links) {
    for (const Bandwidth rate : {link.rate_ab, link.rate_ba}) {
      if (rate < kSlowestLink) {
        refuse(fmt::format("link {} - {}", plan.stations[link.a].name, plan.stations[link.b].name),
               fmt::format("{} at scale {}", to_string(rate), plan.scale),
               fmt::format("at least {}, by a larger --scale", to_string(kSlowestLink)));
      }
    }
    if (plan.stations[link.a].is_host) {
      sent = sent + link.rate_ab;
    }
    if (plan.stations[link.b].is_host) {
      sent = sent + link.rate_ba;
    }
  }
  const Bandwidth most = kRatePerCore * std::int64_t{cores};
  if (sent > most) {
    const double fitting = plan.scale * (most / sent);
    const double digit = std::pow(10, std::floor(std::log10(fitting)) - 2);  // the third one
    refuse("rates",
           fmt::format("hosts that send {} in all at scale {}", to_string(sent), plan.scale),
           fmt::format("at most {} on {} cores, by --scale {:.3g} or less", to_string(most), cores,
                       std::floor(fitting / digit) * digit));
  }
}

}  // namespace

std::string data_interface(std::size_t rail) { return fmt::format("rail{}", rail); }

NetworkPlan plan_network(const topology::Topology& topology, double scale, unsigned cores) {
  constexpr double kLargestScale = 1000;  // no machine carries more than it
  if (!(scale > 0 && scale <= kLargestScale)) {
    refuse("scale", fmt::format("{}", scale),
           fmt::format("a number above 0, at most {}", kLargestScale));
  }
  Contraction graph = contract(topology);
  NetworkPlan plan;
  plan.cluster = topology.name();
  plan.scale = scale;
  const auto station_of = number_stations(graph, plan);
  for (const std::size_t v : graph.vertex_of_rank) {
    plan.host_of_rank.push_back(station_of[v].value());
  }
  require_trees(graph);
  const Rails rails(graph);
  add_links(graph, rails, station_of, plan);
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    const std::size_t from = graph.vertex_of_node[link.from.index()];
    const std::size_t to = graph.vertex_of_node[link.to.index()];
    plan.rail_of_link.push_back(from == to ? std::nullopt : std::optional(rails.at(from, to)));
  }
  name_adapters(topology, plan);
  require_rates(plan, cores);
  plan.notes = std::move(graph.notes);
  return plan;
}

topology::Topology emulated_topology(const topology::Topology& original, const NetworkPlan& plan,
                                     const EmulatedCosts& costs) {
  using topology::NodeKind;
  topology::Topology result(plan.cluster + " (emulated)");
  std::vector<std::size_t> ranks_of(plan.stations.size(), 0);
  for (const std::size_t host : plan.host_of_rank) {
    ++ranks_of[host];
  }
  // A machine of one rank is that rank; one of several is a switch around them.
  std::vector<std::optional<NodeId>> node_of(plan.stations.size());
  // A message that leaves a rank of several or reaches it crosses two links of the machine, and one
  // otherwise; half of what it costs is at either end.
  const auto share_of_cores = [&](Bandwidth rate, std::size_t links) {
    return costs.cores == Bandwidth()
               ? 0.0
               : std::min(1.0, rate / costs.cores / (2 * static_cast<double>(links)));
  };
  const auto links_at = [&](std::size_t station) -> std::size_t {
    return plan.stations[station].is_host && ranks_of[station] > 1 ? 2 : 1;
  };
  const auto add_switch = [&](std::size_t s) {
    const Station& station = plan.stations[s];
    node_of[s] = result.add_node({.name = station.is_host ? station.name + ".net" : station.name,
                                  .kind = NodeKind::kSwitch,
                                  .host = station.is_host ? station.name : ""});
  };
  for (std::size_t r = 0; r < plan.host_of_rank.size(); ++r) {
    const std::size_t host = plan.host_of_rank[r];
    const topology::Node& node = original.node(original.node_of(Rank(r)));
    const NodeId id = result.add_node({.name = node.name,
                                       .kind = node.kind,
                                       .host = plan.stations[host].name,
                                       .rack = node.rack,
                                       .device_class = node.device_class,
                                       .memory = node.memory,
                                       .figures = node.figures});
    result.add_rank(id);
    if (ranks_of[host] == 1) {
      node_of[host] = id;
      continue;
    }
    if (!node_of[host]) {
      add_switch(host);
    }
    result.add_duplex_link({.from = id,
                            .to = node_of[host].value(),
                            .bandwidth = costs.inside,
                            .kind = topology::LinkKind::kOther,
                            .tier = "inside",
                            .overhead = costs.overhead,
                            .cpu_share = share_of_cores(costs.inside, 2)});
  }
  for (std::size_t s = plan.host_count; s < plan.stations.size(); ++s) {
    add_switch(s);
  }
  for (const ShapedLink& link : plan.links) {
    const auto add = [&](std::size_t from, std::size_t to, Bandwidth full) {
      const Bandwidth rate = scaled(full, costs.payload_share);
      const bool is_of_host = plan.stations[from].is_host || plan.stations[to].is_host;
      const std::string& interface = plan.stations[link.a].is_host ? link.port_a : link.port_b;
      result.add_link(
          {.from = node_of[from].value(),
           .to = node_of[to].value(),
           .bandwidth = rate,
           .latency = costs.latency,
           .kind = is_of_host ? topology::LinkKind::kHostLink : topology::LinkKind::kOther,
           .tier = link.tier,
           .overhead = costs.overhead,
           .cpu_share =
               is_of_host ? share_of_cores(rate, std::max(links_at(from), links_at(to))) : 0,
           .burst = rate * (burst_size(full) / full),
           .adapter = is_of_host ? interface : ""});
    };
    add(link.a, link.b, link.rate_ab);
    add(link.b, link.a, link.rate_ba);
  }
  return result;
}

}  // namespace rackrail::runtime::emulate

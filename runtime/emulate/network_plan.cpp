#include "runtime/emulate/network_plan.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "base/parse_units.hpp"
#include "runtime/emulate/commands.hpp"
#include "runtime/emulate/contraction.hpp"

namespace rackrail::runtime::emulate {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& found,
                         const std::string& expected) {
  throw ConfigError(ErrorContext{.file = "", .where = where, .found = found, .expected = expected});
}

/// The `number`-th address of one of the two networks, from 1; the leader's is the first one of the
/// management network, so stations count from 2 in both.
std::string address_in(int network, std::size_t number) {
  constexpr std::size_t kPerByte = 250;  // keeps clear of .0 and .255
  return fmt::format("10.{}.{}.{}", network, number / kPerByte, number % kPerByte + 1);
}
constexpr int kDataNetwork = 77;
constexpr int kManagementNetwork = 78;

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
         .address = address_in(kDataNetwork, number + 1),
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

void require_tree(const Contraction& graph, const NetworkPlan& plan) {
  for (std::size_t v = 0; v < graph.vertices.size(); ++v) {
    const auto count = graph.neighbours(v).size();
    if (graph.vertices[v].is_host && count > 1) {
      refuse("host " + graph.vertices[v].name, fmt::format("links to {} different stations", count),
             "one: an emulated host has one data interface and does not forward");
    }
  }
  // Connected it is, as every cluster is that was read.
  if (graph.edges.size() / 2 + 1 > plan.stations.size()) {
    refuse("network",
           fmt::format("{} links between {} hosts and switches, so a loop", graph.edges.size() / 2,
                       plan.stations.size()),
           "a tree once switches with the same neighbours are one: bridges do not route");
  }
}

void add_links(const Contraction& graph, const std::vector<std::optional<std::size_t>>& station_of,
               NetworkPlan& plan) {
  std::vector<std::size_t> ports(plan.stations.size(), 0);
  const auto port = [&](std::size_t station) {
    return plan.stations[station].is_host ? std::string(kDataInterface)
                                          : fmt::format("port{}", ports[station]++);
  };
  for (const auto& [ends, edge] : graph.edges) {
    const std::size_t a = station_of[ends.first].value();
    const std::size_t b = station_of[ends.second].value();
    if (a > b) {
      continue;  // the other direction of one that was added, or will be
    }
    const Bandwidth back = graph.edges.at({ends.second, ends.first}).rate;
    const std::string port_a = port(a);
    plan.links.push_back({.a = a,
                          .b = b,
                          .port_a = port_a,
                          .port_b = port(b),
                          .rate_ab = scaled(edge.rate, plan.scale),
                          .rate_ba = scaled(back, plan.scale),
                          .tier = edge.tier});
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
  require_tree(graph, plan);
  add_links(graph, station_of, plan);
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
                                       .memory = node.memory});
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
      result.add_link(
          {.from = node_of[from].value(),
           .to = node_of[to].value(),
           .bandwidth = rate,
           .latency = costs.latency,
           .tier = link.tier,
           .overhead = costs.overhead,
           .cpu_share =
               is_of_host ? share_of_cores(rate, std::max(links_at(from), links_at(to))) : 0,
           .burst = Bytes(
               std::llround(costs.payload_share * static_cast<double>(burst_size(full).count())))});
    };
    add(link.a, link.b, link.rate_ab);
    add(link.b, link.a, link.rate_ba);
  }
  return result;
}

}  // namespace rackrail::runtime::emulate

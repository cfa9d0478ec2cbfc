#include "runtime/emulate/emulated_plan.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/changed_graph.hpp"
#include "runtime/emulate/commands.hpp"
#include "topology/adapters.hpp"

namespace rackrail::runtime::emulate {
namespace {

Bandwidth emulated_rate(Bandwidth rate, const NetworkPlan& network) {
  constexpr Bandwidth kSlowest(1);  // zero would be no limit
  return rate == Bandwidth{} ? rate
                             : std::max(kSlowest, scaled(rate, network.scale * kPayloadShare));
}

/// The way through an emulated topology to a rank, by one data network.
class WaySearch {
 public:
  WaySearch(const topology::Topology& emulated, Rank from, Rank to, std::size_t rail)
      : emulated_(emulated),
        source_(emulated.node(emulated.node_of(from)).host),
        destination_(emulated.node_of(to)),
        interface_(data_interface(rail)),
        is_passed_(emulated.node_count()) {
    search(emulated.node_of(from));
  }

  /// Empty where that network does not join them.
  const std::vector<LinkId>& way() const { return way_; }

 private:
  bool search(NodeId at) {
    if (at == destination_) {
      return true;
    }
    is_passed_[at.index()] = true;
    for (const LinkId id : emulated_.links_out_of(at)) {
      if (!may_pass(emulated_.link(id))) {
        continue;
      }
      way_.push_back(id);
      if (search(emulated_.link(id).to)) {
        return true;
      }
      way_.pop_back();
    }
    return false;
  }

  bool may_pass(const topology::Link& link) const {
    const std::string& from = emulated_.node(link.from).host;
    const std::string& to = emulated_.node(link.to).host;
    if (is_passed_[link.to.index()] || (from == source_ && to != source_ && !is_by(link))) {
      return false;
    }
    return to.empty() || to == source_ || to == emulated_.node(destination_).host;
  }
  bool is_by(const topology::Link& link) const { return link.adapter == interface_; }

  const topology::Topology& emulated_;
  const std::string& source_;
  NodeId destination_;
  std::string interface_;
  std::vector<bool> is_passed_;
  std::vector<LinkId> way_;
};

/// The data network that a route enters first; none where it stays in a machine.
std::optional<std::size_t> rail_of(const std::vector<LinkId>& route, const NetworkPlan& network) {
  for (const LinkId link : route) {
    if (network.rail_of_link.at(link.index())) {
      return network.rail_of_link[link.index()];
    }
  }
  return std::nullopt;
}

/// By route of a graph: its links.
using Routes = std::vector<std::vector<LinkId>>;

/// The same transfers over other routes, one for each, whose rates are those of the emulated
/// network.
plan::TransferGraph emulated_graph(const plan::TransferGraph& graph, Routes links,
                                   const NetworkPlan& network) {
  std::vector<plan::RatedRoute> routes;
  routes.reserve(links.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    routes.push_back({std::move(links[i]), emulated_rate(graph.rate(RouteId(i)), network)});
  }
  return plan::with_routes(graph, std::move(routes));
}

/// Where the routes go on the emulated network.
Routes emulated_routes(const plan::TransferGraph& graph, const NetworkPlan& network,
                       const topology::Topology& emulated) {
  Routes routes(graph.routes().size());
  for (const plan::Transfer& transfer : graph.transfers()) {
    const std::size_t route = transfer.route.index();
    if (route != 0 && routes[route].empty()) {
      const auto rail = rail_of(graph.routes()[route], network);
      routes[route] = WaySearch(emulated, transfer.src, transfer.dst, rail.value_or(0)).way();
    }
  }
  return routes;
}

}  // namespace

plan::Plan emulated_plan(plan::Plan plan, const NetworkPlan& network) {
  for (plan::TransferGraph& graph : plan.schedules) {
    if (graph.has_rates()) {
      graph = emulated_graph(graph, {graph.routes().begin(), graph.routes().end()}, network);
    }
  }
  return plan;
}

plan::Plan emulated_plan(plan::Plan plan, const NetworkPlan& network,
                         const topology::Topology& emulated) {
  plan.cluster_name = emulated.name();
  plan.cluster_digest = emulated.digest();
  plan.adapters = topology::adapters_of(emulated);
  for (plan::TransferGraph& graph : plan.schedules) {
    graph = emulated_graph(graph, emulated_routes(graph, network, emulated), network);
  }
  return plan;
}

}  // namespace rackrail::runtime::emulate

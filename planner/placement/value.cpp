#include "planner/placement/value.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "base/error.hpp"
#include "plan/device_class.hpp"
#include "topology/part.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

using topology::Topology;

constexpr std::size_t kRanksValuedWhole = 64;  // more are valued by hosts

double ratio(const topology::AllGatherBound& bound) {
  return static_cast<double>(bound.p) / static_cast<double>(bound.q);
}

}  // namespace

bool ChoiceValue::is_better_than(const ChoiceValue& other) const {
  constexpr double kEqual = 1e-9;  // costs closer than this are the same
  const auto clearly_less = [](double a, double b) { return a < b * (1 - kEqual); };
  if (clearly_less(cost, other.cost) || clearly_less(other.cost, cost)) {
    return cost < other.cost;
  }
  if (clearly_less(speed, other.speed) || clearly_less(other.speed, speed)) {
    return speed > other.speed;
  }
  return std::tie(racks, blocks, crossing) < std::tie(other.racks, other.blocks, other.crossing);
}

ChoiceValuer::ChoiceValuer(const Topology& topology, const std::vector<Host>& all_hosts,
                           const std::vector<Host>& candidates, const HostBlocks& blocks,
                           std::size_t count)
    : topology_(topology),
      candidates_(candidates),
      blocks_(blocks),
      is_network_(topology.node_count(), true),
      speed_(candidates.size(), 0),
      count_(count) {
  for (const Host& host : all_hosts) {
    for (const NodeId v : host.vertices) is_network_[v.index()] = false;
  }
  for (const Host& host : candidates) {
    for (const Rank rank : host.ranks) {
      const topology::Node& node = topology.node(topology.node_of(rank));
      if (node.figures == nullptr && plan::likeliest_device_class(node.device_class) == nullptr) {
        speed_.assign(candidates.size(), 0);
        return;
      }
      speed_[static_cast<std::size_t>(&host - candidates.data())] +=
          plan::device_figures_of(node).matrix_tflops;
    }
  }
}

Topology ChoiceValuer::cluster(const HostSet& hosts) const {
  std::vector<bool> is_kept = is_network_;
  std::vector<Rank> ranks;
  for (const std::size_t h : hosts) {
    for (const NodeId v : candidates_[h].vertices) is_kept[v.index()] = !topology_.rank_of(v);
    for (const Rank rank : candidates_[h].ranks) {
      is_kept[topology_.node_of(rank).index()] = true;
      ranks.push_back(rank);
    }
  }
  return part_of(topology_, is_kept, ranks);
}

double ChoiceValuer::work() const {
  const std::size_t ranks = count_ * candidates_[0].ranks.size();
  const bool is_whole = ranks <= kRanksValuedWhole || count_ == 1;
  return static_cast<double>(is_whole ? ranks : count_) *
         static_cast<double>(topology_.link_count());
}

ChoiceValue ChoiceValuer::value(const HostSet& hosts) {
  ++computed_;
  ChoiceValue value;
  try {
    const bool is_whole = hosts.size() * candidates_[0].ranks.size() <= kRanksValuedWhole;
    value.cost = is_whole || hosts.size() == 1 ? cost_of_whole(hosts) : cost_of_hosts(hosts);
  } catch (const ConfigError&) {  // they do not reach each other
    value.cost = std::numeric_limits<double>::infinity();
  }
  std::vector<bool> is_chosen(candidates_.size());
  std::set<std::string> racks;
  for (const std::size_t h : hosts) {
    is_chosen[h] = true;
    value.speed += speed_[h];
    if (!candidates_[h].rack.empty()) racks.insert(candidates_[h].rack);
  }
  value.racks = racks.size();
  for (const HostBlocks::Block& block : blocks_.all()) {
    const auto inside = static_cast<std::size_t>(std::count_if(
        block.hosts.begin(), block.hosts.end(), [&](std::size_t h) { return is_chosen[h]; }));
    if (!block.children.empty() && inside > 0) {
      ++value.blocks;
      value.crossing += std::min(inside, hosts.size() - inside);
    }
  }
  return value;
}

double ChoiceValuer::cost_of_whole(const HostSet& hosts) const {
  const Topology part = cluster(hosts);
  return ratio(topology::allgather_bound(part)) + ratio(topology::reducescatter_bound(part));
}

/// A vertex per host, behind another one that has the host's links: between them what its ranks
/// can send and receive. Every rank counts, so a cut with h hosts inside has as many times the
/// ranks of a host behind it; a cut around all but one rank is added.
double ChoiceValuer::cost_of_hosts(const HostSet& hosts) const {
  Topology coarse;
  std::vector<std::optional<NodeId>> node_of(topology_.node_count());
  for (std::size_t v = 0; v < topology_.node_count(); ++v) {
    if (is_network_[v]) node_of[v] = coarse.add_node(topology_.node(NodeId(v)));
  }
  Bandwidth narrowest_in(std::numeric_limits<std::int64_t>::max());
  Bandwidth narrowest_out = narrowest_in;
  for (const std::size_t h : hosts) {
    const Host& host = candidates_[h];
    topology::Node door;
    door.name = "door of " + host.name;
    topology::Node inside;
    inside.name = "inside " + host.name;
    const NodeId at = coarse.add_node(std::move(door));
    const NodeId rank = coarse.add_node(std::move(inside));
    coarse.add_rank(rank);
    const auto join = [&](NodeId from, NodeId to, Bandwidth bandwidth) {
      if (bandwidth == Bandwidth()) return;
      topology::Link link;
      link.from = from;
      link.to = to;
      link.bandwidth = bandwidth;
      coarse.add_link(link);
    };
    join(rank, at, host.out);
    join(at, rank, host.in);
    for (const NodeId v : host.vertices) node_of[v.index()] = at;
    narrowest_in = std::min(narrowest_in, host.narrowest_in);
    narrowest_out = std::min(narrowest_out, host.narrowest_out);
  }
  for (std::size_t l = 0; l < topology_.link_count(); ++l) {
    topology::Link link = topology_.link(LinkId(l));
    const auto from = node_of[link.from.index()];
    const auto to = node_of[link.to.index()];
    if (from && to && *from != *to && link.kind != topology::LinkKind::kShared) {
      link.from = *from;
      link.to = *to;
      coarse.add_link(link);
    }
  }
  const auto each = static_cast<double>(candidates_[0].ranks.size());
  const double others = each * static_cast<double>(hosts.size()) - 1;
  const auto rate = [](Bandwidth b) { return static_cast<double>(b.bytes_per_second()); };
  return std::max(each * ratio(topology::allgather_bound(coarse)), others / rate(narrowest_in)) +
         std::max(each * ratio(topology::reducescatter_bound(coarse)),
                  others / rate(narrowest_out));
}

}  // namespace rackrail::planner

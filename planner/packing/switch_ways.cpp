#include "planner/packing/switch_ways.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <tuple>

namespace rackrail::planner {

SwitchWays::SwitchWays(const topology::Topology& topology, bool reversed)
    : topology_(topology), is_reversed_(reversed), number_(topology.node_count(), kPassed) {
  const auto add = [&](NodeId node) {
    number_[node.index()] = static_cast<std::uint32_t>(vertices_.size());
    vertices_.push_back(node);
  };
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    add(topology.node_of(Rank(r)));
  }
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const topology::Node& node = topology.node(NodeId(v));
    if (!topology.rank_of(NodeId(v)) && (reversed ? node.reduces : node.multicasts)) {
      add(NodeId(v));
    }
  }
}

NodeId SwitchWays::near(LinkId link) const {
  return is_reversed_ ? topology_.link(link).to : topology_.link(link).from;
}

NodeId SwitchWays::far(LinkId link) const {
  return is_reversed_ ? topology_.link(link).from : topology_.link(link).to;
}

void SwitchWays::find(const std::vector<double>& prices) {
  arcs_.clear();
  ways_.clear();
  for (std::uint32_t source = 0; source < vertices_.size(); ++source) {
    find_from(source, prices);
  }
}

void SwitchWays::find_from(std::uint32_t source, const std::vector<double>& prices) {
  using Reached = std::tuple<double, std::size_t, std::uint32_t>;  // price, links, node
  std::priority_queue<Reached, std::vector<Reached>, std::greater<>> queue;
  std::vector<double> price(topology_.node_count(), std::numeric_limits<double>::infinity());
  std::vector<LinkId> last(topology_.node_count());
  std::vector<bool> is_done(topology_.node_count());
  const NodeId start = vertices_[source];
  price[start.index()] = 0;
  queue.emplace(0, 0, start.value());
  while (!queue.empty()) {
    const auto [here_price, links, node] = queue.top();
    queue.pop();
    if (is_done[node]) {
      continue;
    }
    is_done[node] = true;
    const NodeId here(node);
    if (is_able(here) && here != start) {
      arcs_.push_back({source, number_[node], here_price});
      topology::Route& way = ways_.emplace_back();
      for (NodeId at = here; at != start; at = near(way.back())) {
        way.push_back(last[at.index()]);
      }
      std::reverse(way.begin(), way.end());
      continue;
    }
    for (const LinkId id :
         is_reversed_ ? topology_.links_into(here) : topology_.links_out_of(here)) {
      const NodeId there = far(id);
      const double there_price = here_price + prices[id.index()];
      if (topology_.link(id).kind != topology::LinkKind::kShared && !is_done[there.index()] &&
          there_price < price[there.index()]) {
        price[there.index()] = there_price;
        last[there.index()] = id;
        queue.emplace(there_price, links + 1, there.value());
      }
    }
  }
}

}  // namespace rackrail::planner

#include "planner/packing/colours.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace rackrail::planner {

std::vector<std::size_t> colours(const topology::Topology& topology) {
  using Key = std::pair<std::size_t, std::vector<std::tuple<bool, std::int64_t, std::size_t>>>;
  std::vector<std::size_t> colour(topology.node_count());
  for (std::size_t v = 0; v < colour.size(); ++v) {
    colour[v] = topology.rank_of(NodeId(v)).has_value() ? 1 : 0;
  }
  for (std::size_t count = 0;;) {
    std::vector<Key> keys;
    for (const std::size_t c : colour) {
      keys.push_back({c, {}});
    }
    for (std::size_t l = 0; l < topology.link_count(); ++l) {
      const topology::Link& link = topology.link(LinkId(l));
      const std::int64_t rate = link.bandwidth.bytes_per_second();
      if (link.kind != topology::LinkKind::kShared) {
        keys[link.from.index()].second.emplace_back(true, rate, colour[link.to.index()]);
        keys[link.to.index()].second.emplace_back(false, rate, colour[link.from.index()]);
      }
    }
    std::map<Key, std::size_t> numbers;
    for (std::size_t v = 0; v < colour.size(); ++v) {
      std::sort(keys[v].second.begin(), keys[v].second.end());
      colour[v] = numbers.emplace(keys[v], numbers.size()).first->second;
    }
    if (numbers.size() == count) {
      return colour;
    }
    count = numbers.size();
  }
}

bool are_ranks_unlike(const topology::Topology& topology) {
  const std::vector<std::size_t> colour = colours(topology);
  for (std::size_t r = 1; r < topology.rank_count(); ++r) {
    if (colour[topology.node_of(Rank(r)).index()] != colour[topology.node_of(Rank(0)).index()]) {
      return true;
    }
  }
  return false;
}

}  // namespace rackrail::planner

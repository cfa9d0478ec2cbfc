#include "planner/groups/rank_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>
#include <utility>

#include "base/disjoint_sets.hpp"

namespace rackrail::planner {

namespace {

using Neighbours = std::vector<std::vector<std::uint32_t>>;  // by rank, sorted

/// Ranks joined by links in both directions.
Neighbours direct_neighbours(const topology::Topology& topology) {
  std::set<std::pair<std::uint32_t, std::uint32_t>> links;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    const auto from = topology.rank_of(link.from);
    const auto to = topology.rank_of(link.to);
    if (from.has_value() && to.has_value() && link.kind != topology::LinkKind::kShared) {
      links.emplace(from->value(), to->value());
    }
  }
  Neighbours neighbours(topology.rank_count());
  for (const auto& [from, to] : links) {
    if (links.contains({to, from})) {
      neighbours[from].push_back(to);
    }
  }
  return neighbours;
}

bool are_linked(const Neighbours& neighbours, std::uint32_t a, std::uint32_t b) {
  return std::binary_search(neighbours[a].begin(), neighbours[a].end(), b);
}

struct Edges {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> ends;  // smaller rank first
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers;

  std::uint32_t at(std::uint32_t a, std::uint32_t b) const {
    return numbers.at({std::min(a, b), std::max(a, b)});
  }
};

Edges edges_of(const Neighbours& neighbours) {
  Edges edges;
  for (std::uint32_t a = 0; a < neighbours.size(); ++a) {
    for (const std::uint32_t b : neighbours[a]) {
      if (a < b) {
        edges.numbers.emplace(std::pair(a, b), static_cast<std::uint32_t>(edges.ends.size()));
        edges.ends.emplace_back(a, b);
      }
    }
  }
  return edges;
}

/// The dimension of each edge, if this is a product at all.
std::vector<std::uint32_t> dimension_by_edge(const Neighbours& neighbours, const Edges& edges) {
  DisjointSets sets(edges.ends.size());
  std::vector<std::uint32_t> common;
  for (std::uint32_t v = 0; v < neighbours.size(); ++v) {
    const auto& around = neighbours[v];
    for (std::size_t i = 0; i < around.size(); ++i) {
      for (std::size_t j = i + 1; j < around.size(); ++j) {
        const std::uint32_t a = around[i];
        const std::uint32_t b = around[j];
        common.clear();
        std::set_intersection(neighbours[a].begin(), neighbours[a].end(), neighbours[b].begin(),
                              neighbours[b].end(), std::back_inserter(common));
        if (common.size() == 1) {  // v alone
          sets.join(edges.at(v, a), edges.at(v, b));
        }
        for (const std::uint32_t w : common) {
          if (w != v && !are_linked(neighbours, a, b) && !are_linked(neighbours, v, w)) {
            sets.join(edges.at(v, a), edges.at(b, w));
            sets.join(edges.at(v, b), edges.at(a, w));
          }
        }
      }
    }
  }
  return sets.numbers();
}

/// Layers in the order of a walk through the path or ring that they form; none for other shapes.
std::optional<std::vector<std::uint32_t>> walk(const std::vector<std::set<std::uint32_t>>& next_to,
                                               bool& is_ring) {
  std::uint32_t start = 0;
  std::size_t ends = 0;
  for (std::uint32_t layer = 0; layer < next_to.size(); ++layer) {
    if (next_to[layer].empty() || next_to[layer].size() > 2) {
      return std::nullopt;
    }
    if (next_to[layer].size() == 1 && ends++ == 0) {
      start = layer;
    }
  }
  is_ring = ends == 0;
  std::vector<std::uint32_t> order = {start};
  std::vector<bool> seen(next_to.size());
  seen[start] = true;
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const std::uint32_t layer : next_to[order.back()]) {
      if (!seen[layer]) {
        seen[layer] = true;
        order.push_back(layer);
        goes_on = true;
        break;
      }
    }
  }
  return order.size() == next_to.size() ? std::optional(order) : std::nullopt;
}

/// Numbers the layers of a dimension and writes each rank's coordinate.
bool add_dimension(RankGrid& grid, const Edges& edges, const std::vector<std::uint32_t>& dimensions,
                   std::uint32_t dimension) {
  DisjointSets sets(grid.coordinates.size());
  for (std::size_t e = 0; e < edges.ends.size(); ++e) {
    if (dimensions[e] != dimension) {
      sets.join(edges.ends[e].first, edges.ends[e].second);
    }
  }
  const std::vector<std::uint32_t> layer_of = sets.numbers();
  const std::size_t layers = *std::max_element(layer_of.begin(), layer_of.end()) + 1;
  std::vector<std::set<std::uint32_t>> next_to(layers);
  for (std::size_t e = 0; e < edges.ends.size(); ++e) {
    const std::uint32_t a = layer_of[edges.ends[e].first];
    const std::uint32_t b = layer_of[edges.ends[e].second];
    if (dimensions[e] == dimension && a != b) {
      next_to[a].insert(b);
      next_to[b].insert(a);
    }
  }
  bool is_ring = false;
  const auto order = walk(next_to, is_ring);
  if (!order.has_value()) {
    return false;
  }
  std::vector<std::uint32_t> position(layers);
  for (std::uint32_t i = 0; i < layers; ++i) {
    position[(*order)[i]] = i;
  }
  for (std::size_t r = 0; r < layer_of.size(); ++r) {
    grid.coordinates[r].push_back(position[layer_of[r]]);
  }
  grid.dimensions.push_back({static_cast<std::uint32_t>(layers), is_ring});
  return true;
}

/// Every place is taken by one rank, which is linked to its neighbours on the grid and no other.
bool is_complete(const RankGrid& grid, const Neighbours& neighbours) {
  std::map<std::vector<std::uint32_t>, std::uint32_t> rank_at;
  std::size_t places = 1;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    places *= dimension.size;
  }
  for (std::uint32_t r = 0; r < grid.coordinates.size(); ++r) {
    rank_at.emplace(grid.coordinates[r], r);
  }
  if (rank_at.size() != grid.coordinates.size() || places != rank_at.size()) {
    return false;
  }
  for (std::uint32_t r = 0; r < grid.coordinates.size(); ++r) {
    std::size_t expected = 0;
    for (std::size_t d = 0; d < grid.dimensions.size(); ++d) {
      const auto [size, is_ring] = grid.dimensions[d];
      std::vector<std::uint32_t> place = grid.coordinates[r];
      const bool has_next = is_ring || place[d] + 1 < size;
      expected += (has_next ? 1 : 0) + (is_ring || place[d] > 0 ? 1 : 0);
      place[d] = (place[d] + 1) % size;
      if (has_next && !are_linked(neighbours, r, rank_at.at(place))) {
        return false;
      }
    }
    if (neighbours[r].size() != expected) {
      return false;
    }
  }
  return true;
}

}  // namespace

GridPlaces::GridPlaces(const RankGrid& grid) : grid_(grid), rank_at_(grid.coordinates.size()) {
  std::size_t stride = 1;
  for (const RankGrid::Dimension& dimension : grid.dimensions) {
    strides_.push_back(stride);
    stride *= dimension.size;
  }
  for (std::size_t r = 0; r < grid.coordinates.size(); ++r) {
    std::size_t place = 0;
    for (std::size_t d = 0; d < strides_.size(); ++d) {
      place += grid.coordinates[r][d] * strides_[d];
    }
    rank_at_[place] = Rank(r);
  }
}

Rank GridPlaces::neighbour(Rank rank, std::uint32_t dimension, std::uint32_t position) const {
  std::size_t place = 0;
  for (std::size_t d = 0; d < strides_.size(); ++d) {
    place += (d == dimension ? position : grid_.coordinates[rank.index()][d]) * strides_[d];
  }
  return rank_at_[place];
}

std::variant<RankGrid, std::string> find_rank_grid(const topology::Topology& topology) {
  const std::size_t ranks = topology.rank_count();
  if (ranks < 2) {
    return "one rank alone has nothing to exchange";
  }
  const Neighbours neighbours = direct_neighbours(topology);
  const std::size_t most = 2 * static_cast<std::size_t>(std::bit_width(ranks));
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::string& name = topology.node(topology.node_of(Rank(r))).name;
    if (neighbours[r].empty()) {
      return fmt::format("{} has no link to another rank, so there is no grid of ranks", name);
    }
    if (neighbours[r].size() > most) {
      return fmt::format("{} is linked to {} other ranks, more than in any grid of {}", name,
                         neighbours[r].size(), ranks);
    }
  }
  const std::string reason = "the links between ranks are no product of rings and paths";
  const Edges edges = edges_of(neighbours);
  const std::vector<std::uint32_t> dimensions = dimension_by_edge(neighbours, edges);
  RankGrid grid;
  grid.coordinates.resize(ranks);
  const std::uint32_t count = *std::max_element(dimensions.begin(), dimensions.end()) + 1;
  if (count > static_cast<std::uint32_t>(std::bit_width(ranks))) {
    return reason;
  }
  for (std::uint32_t d = 0; d < count; ++d) {
    if (!add_dimension(grid, edges, dimensions, d)) {
      return reason;
    }
  }
  if (!is_complete(grid, neighbours)) {
    return reason;
  }
  return grid;
}

}  // namespace rackrail::planner

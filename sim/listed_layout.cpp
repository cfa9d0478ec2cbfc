#include "sim/listed_layout.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <unordered_map>

#include "base/random.hpp"

namespace rackrail::sim {

namespace {

/// Of a lane: (src, dst), and the route where transfers move on their own; of groups, the tree.
struct LaneKey {
  std::uint64_t pair = 0;
  RouteId route;
  bool operator==(const LaneKey&) const = default;
};
struct LaneHash {
  std::size_t operator()(const LaneKey& key) const {
    return mix64(key.pair ^ mix64(key.route.value()));
  }
};

/// By tree: the first that has the same links.
std::vector<RouteId> distinct_trees(const plan::InNetwork& in_network) {
  std::map<std::vector<LinkId>, RouteId> known;
  std::vector<RouteId> first;
  for (const plan::InNetwork::Tree& tree : in_network.trees()) {
    std::vector<LinkId> links = tree.links;
    std::sort(links.begin(), links.end());
    first.push_back(known.emplace(std::move(links), RouteId(first.size())).first->second);
  }
  return first;
}

/// Each link carries all bytes, or several times as many, as one fluid.
RouteUse route_over(const plan::InNetwork::Tree& tree, const topology::Topology& topology) {
  RouteUse use{.links = {}, .latency = tree.latency, .overhead = {}, .receive_overhead = {}};
  limit_rate(use, tree.rate);
  std::map<LinkId, std::size_t> place;
  for (const LinkId link : tree.links) {
    const auto [known, is_new] = place.emplace(link, use.links.size());
    if (!is_new) {
      ++use.shares[known->second];
      continue;
    }
    use.links.push_back(link);
    use.shares.push_back(1);
    use.overhead = std::max(use.overhead, topology.link(link).overhead);
    use.receive_overhead = std::max(use.receive_overhead, topology.link(link).receive_overhead);
    limit_rate(use, topology.link(link), 1);
  }
  return use;
}

bool same_range(const plan::Transfer& a, const plan::Transfer& b) {
  return a.chunk_begin == b.chunk_begin && a.chunk_count == b.chunk_count;
}

}  // namespace

ListedLayout::ListedLayout(const plan::TransferGraph& graph, std::int64_t elements,
                           Routing& routing) {
  codecs.assign(graph.codecs().begin(), graph.codecs().end());
  const plan::InNetwork in_network(graph, routing.topology(), routing.meeting_edges());
  number_items(graph, elements, in_network, routing.heeds_plan());
  add_routes(graph, routing);
  add_groups(graph, in_network, routing.topology());
  add_dependents(graph);
  add_encodings(graph);
  order_additions(graph);
  sort_lanes_by_source(graph.rank_count());
  std::sort(awaited_whole_.begin(), awaited_whole_.end());
  awaited_whole_.erase(std::unique(awaited_whole_.begin(), awaited_whole_.end()),
                       awaited_whole_.end());
  numbers_ = {};
}

void ListedLayout::add_encodings(const plan::TransferGraph& graph) {
  const std::vector<plan::EncodingSource> sources = plan::encoding_sources(graph);
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const plan::EncodingSource& source = sources[originals_[i]];
    items_[i].encoding = source.kind;
    if (source.kind != plan::EncodingKind::kOwn) {
      items_[i].encoded_by = place_of(numbers_[source.from.index()]);
    }
  }
}

void ListedLayout::number_items(const plan::TransferGraph& graph, std::int64_t elements,
                                const plan::InNetwork& in_network, bool heeds_routes) {
  const auto transfers = graph.transfers();
  const auto kind_of = [&](std::size_t i, const plan::InNetwork::Operation* operation) {
    if (operation == nullptr) {
      return LaneKind::kOwn;
    }
    return transfers[i].op == plan::TransferOp::kCopy ? LaneKind::kMulticast : LaneKind::kReduction;
  };
  const std::vector<RouteId> route_of = plan::distinct_routes(graph);
  const std::vector<RouteId> tree_of = distinct_trees(in_network);
  std::array<std::unordered_map<LaneKey, std::uint32_t, LaneHash>, 3> lanes_of_kind;
  std::vector<std::uint32_t> lane_of(transfers.size(), kNoItem);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const plan::Transfer& t = transfers[i];
    if (graph.range(t, elements).size() == 0) {
      continue;
    }
    const std::uint64_t pair = (std::uint64_t{t.src.value()} << 32U) | t.dst.value();
    const plan::InNetwork::Operation* operation = in_network.operation_of(TransferId(i));
    const LaneKind kind = kind_of(i, operation);
    const RouteId own = heeds_routes ? route_of[t.route.index()] : RouteId(0);
    const RouteId route = operation != nullptr ? tree_of[operation->tree] : own;
    const auto [it, is_new] = lanes_of_kind[static_cast<std::size_t>(kind)].emplace(
        LaneKey{pair, route}, static_cast<std::uint32_t>(lanes.size()));
    if (is_new) {
      lanes.push_back({t.src, t.dst, 0});
      if (!in_network.operations().empty()) {
        lane_kinds.push_back(kind);
      }
    }
    lane_of[i] = it->second;
    ++lanes[it->second].count;
  }
  std::uint32_t count = 0;
  for (const Lane& lane : lanes) {
    begin_.push_back(count);
    count += lane.count;
  }
  items_.resize(count);
  chunks_.resize(count);
  lane_of_.resize(count);
  originals_.resize(count);
  numbers_.assign(transfers.size(), kNoItem);
  std::vector<std::uint32_t> next = begin_;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (lane_of[i] != kNoItem) {
      const std::uint32_t number = next[lane_of[i]]++;
      lane_of_[number] = lane_of[i];
      originals_[number] = static_cast<std::uint32_t>(i);
      numbers_[i] = number;
    }
  }
  const auto weights = graph.chunk_weights();
  weights_.resize(count);
  for (std::uint32_t number = 0; number < count; ++number) {
    const plan::Transfer& t = transfers[originals_[number]];
    items_[number].op = t.op;
    items_[number].codec = t.codec;
    chunks_[number] = {t.chunk_begin, t.chunk_begin + t.chunk_count};
    const auto begin = weights.begin() + t.chunk_begin;
    weights_[number] = std::accumulate(begin, begin + t.chunk_count, std::uint32_t{0});
  }
}

void ListedLayout::add_routes(const plan::TransferGraph& graph, Routing& routing) {
  std::vector<std::uint32_t> pinned(graph.routes().size(), kNoItem);
  std::vector<std::uint32_t> found(lanes.size(), kNoItem);
  for (std::uint32_t number = 0; number < items_.size(); ++number) {
    const plan::Transfer& t = graph.transfers()[originals_[number]];
    const auto& links = graph.routes()[t.route.index()];
    std::uint32_t& route = links.empty() ? found[lane_of_[number]] : pinned[t.route.index()];
    if (route == kNoItem) {
      route = static_cast<std::uint32_t>(routes.size());
      routes.push_back(routing.route(t.src, t.dst, links));
      hold_to_rate(routes.back(), t.src, routing.topology(), graph.rate(t.route));
    }
    items_[number].route = route;
  }
}

void ListedLayout::add_groups(const plan::TransferGraph& graph, const plan::InNetwork& in_network,
                              const topology::Topology& topology) {
  const auto first_tree = static_cast<std::uint32_t>(routes.size());
  for (const plan::InNetwork::Tree& tree : in_network.trees()) {
    routes.push_back(route_over(tree, topology));
  }
  for (const plan::InNetwork::Operation& operation : in_network.operations()) {
    const std::size_t first = operation.group.first.index();
    if (numbers_[first] == kNoItem) {
      continue;  // of no elements, and so are the others
    }
    std::vector<Place>& members = groups.emplace_back();
    for (std::size_t i = first; i < first + operation.group.count; ++i) {
      Item& item = items_[numbers_[i]];
      item.group = static_cast<std::uint32_t>(groups.size() - 1);
      item.route = first_tree + operation.tree;
      const plan::Transfer& transfer = graph.transfers()[i];
      Routing::stage(topology, transfer.src, transfer.dst, routes[item.route]);
      members.push_back(place_of(numbers_[i]));
    }
  }
}

void ListedLayout::add_dependents(const plan::TransferGraph& graph) {
  // Counted, then placed: the classic two passes of a compressed list of lists.
  const auto for_each = [&](const auto& visit) {
    for (std::uint32_t number = 0; number < items_.size(); ++number) {
      const TransferId id(originals_[number]);
      const plan::Transfer& t = graph.transfer(id);
      for (const TransferId dependency : graph.dependencies(id)) {
        const std::uint32_t before = numbers_[dependency.index()];
        if (before != kNoItem) {
          const plan::Transfer& d = graph.transfer(dependency);
          const bool whole = !same_range(d, t);
          visit(number, before, Dependent{place_of(number), whole}, t.src == d.src, t.src == d.dst);
        }
      }
    }
  };
  dependents_begin_.resize(items_.size() + 1);
  std::vector<Dependents> counts(items_.size());
  for_each([&](std::uint32_t number, std::uint32_t before, const Dependent& dependent,
               bool at_source, bool at_destination) {
    ++items_[number].waits;
    counts[before].at_source += at_source ? 1 : 0;
    counts[before].applied += !at_source && at_destination ? 1 : 0;
    if (dependent.whole) {
      awaited_whole_.push_back(before);
    }
  });
  std::uint32_t total = 0;
  for (std::uint32_t number = 0; number < items_.size(); ++number) {
    dependents_begin_[number] = {total, total + counts[number].at_source};
    total += counts[number].at_source + counts[number].applied;
    counts[number] = dependents_begin_[number];
  }
  dependents_begin_.back() = {total, total};
  dependents_.resize(total);
  for_each([&](std::uint32_t number, std::uint32_t before, const Dependent& dependent,
               bool at_source, bool at_destination) {
    if (at_source) {
      dependents_[counts[before].at_source++] = dependent;
    } else if (at_destination) {
      dependents_[counts[before].applied++] = dependent;
    } else {
      unseen_.emplace_back(number, before);
    }
  });
}

std::vector<Place> ListedLayout::unseen(std::uint32_t number) const {
  std::vector<Place> places;
  for (const auto& [who, before] : unseen_) {
    if (who == number) {
      places.push_back(place_of(before));
    }
  }
  return places;
}

// Additions into a chunk of a rank are applied in the order of their ids.
void ListedLayout::order_additions(const plan::TransferGraph& graph) {
  const std::size_t chunks = graph.chunk_count();
  std::vector<std::uint32_t> last(graph.rank_count() * chunks, kNoItem);
  std::vector<std::uint32_t> before;
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const plan::Transfer& t = graph.transfers()[i];
    if (t.op != plan::TransferOp::kReduce || numbers_[i] == kNoItem) {
      continue;
    }
    const std::uint32_t group = items_[numbers_[i]].group;
    if (group != kNoGroup && groups[group].front() != place_of(numbers_[i])) {
      continue;  // added with the first of its group
    }
    before.clear();
    for (std::size_t c = t.chunk_begin; c < std::size_t{t.chunk_begin} + t.chunk_count; ++c) {
      std::uint32_t& addition = last[t.dst.index() * chunks + c];
      if (addition != kNoItem) {
        before.push_back(addition);
      }
      addition = static_cast<std::uint32_t>(i);
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    if (!before.empty() && next_additions_.empty()) {
      next_additions_.resize(items_.size());
      orders_additions = true;
    }
    for (const std::uint32_t addition : before) {
      const bool whole = !same_range(graph.transfers()[addition], t);
      next_additions_[numbers_[addition]].push_back({place_of(numbers_[i]), whole});
      ++items_[numbers_[i]].additions_before;
      if (whole) {
        awaited_whole_.push_back(numbers_[addition]);
      }
    }
  }
}

}  // namespace rackrail::sim

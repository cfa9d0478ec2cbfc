#include "planner/placement/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>

#include "base/disjoint_sets.hpp"

namespace rackrail::planner {

namespace {

using topology::LinkKind;
using topology::Topology;

constexpr std::size_t kNobody = static_cast<std::size_t>(-1);

/// A block while the cluster is being put together.
struct BlockPart {
  std::size_t block = 0;
  std::vector<NodeId> vertices;
};

/// What a block looks like from inside (vertices by their place in it) and what it is joined to.
std::string description(const Topology& topology, std::vector<NodeId> vertices,
                        const std::vector<bool>& is_rank) {
  std::sort(vertices.begin(), vertices.end());
  const auto name_of = [&](NodeId node) {
    const auto found = std::lower_bound(vertices.begin(), vertices.end(), node);
    return found != vertices.end() && *found == node ? fmt::format("{}", found - vertices.begin())
                                                     : fmt::format("@{}", node.index());
  };
  std::string text;
  std::vector<std::string> links;
  for (const NodeId v : vertices) {
    const topology::Node& node = topology.node(v);
    text += fmt::format("{} {} {} {} {} {};", static_cast<int>(node.kind), node.device_class,
                        is_rank[v.index()] ? "r" : "", node.multicasts, node.reduces,
                        node.host_staging.bytes_per_second());
    const auto add = [&](LinkId id) {
      const topology::Link& link = topology.link(id);
      links.push_back(fmt::format("{}>{} {} {} {};", name_of(link.from), name_of(link.to),
                                  link.bandwidth.bytes_per_second(), link.latency.picoseconds(),
                                  static_cast<int>(link.kind)));
    };
    for (const LinkId id : topology.links_out_of(v)) add(id);
    for (const LinkId id : topology.links_into(v)) add(id);
  }
  std::sort(links.begin(), links.end());
  for (const std::string& link : links) text += link;
  return text;
}

/// Fills in the vertices outside that each part is joined to. Parts that share one, or are joined
/// directly, get the same number.
std::vector<std::uint32_t> joined(const Topology& topology, const std::vector<BlockPart>& parts,
                                  std::vector<std::vector<NodeId>>& neighbours) {
  std::vector<std::size_t> part_of(topology.node_count(), kNobody);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    for (const NodeId v : parts[p].vertices) part_of[v.index()] = p;
  }
  DisjointSets sets(parts.size());
  std::vector<std::size_t> first_at(topology.node_count(), kNobody);
  neighbours.assign(parts.size(), {});
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (link.kind == LinkKind::kShared) continue;
    for (const auto& [here, there] : {std::pair(link.from, link.to), {link.to, link.from}}) {
      const std::size_t p = part_of[here.index()];
      if (p == kNobody || part_of[there.index()] == p) continue;
      std::size_t other = part_of[there.index()];
      if (other == kNobody) {
        neighbours[p].push_back(there);
        other = first_at[there.index()] == kNobody ? first_at[there.index()] = p
                                                   : first_at[there.index()];
      }
      sets.join(static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(other));
    }
  }
  return sets.numbers();
}

}  // namespace

HostBlocks::HostBlocks(const Topology& topology, std::span<const Host> hosts) {
  std::vector<bool> is_rank(topology.node_count());
  std::vector<BlockPart> parts;
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    parts.push_back({h, hosts[h].vertices});
    blocks_.push_back({.hosts = {h}, .children = {}, .twins = 0});
    for (const Rank rank : hosts[h].ranks) is_rank[topology.node_of(rank).index()] = true;
  }
  while (parts.size() > 1) {
    std::vector<std::vector<NodeId>> neighbours;
    const std::vector<std::uint32_t> group = joined(topology, parts, neighbours);
    std::vector<std::vector<std::size_t>> members(1 + *std::ranges::max_element(group));
    for (std::size_t p = 0; p < parts.size(); ++p) {
      members[group[p]].push_back(p);
    }
    if (members.size() == parts.size() &&
        std::ranges::all_of(neighbours, &std::vector<NodeId>::empty)) {
      // Islands: under one roof, whatever it is worth.
      for (std::size_t p = 1; p < parts.size(); ++p) members[0].push_back(p);
      members.resize(1);
    }
    std::vector<BlockPart> larger;
    for (const std::vector<std::size_t>& inside : members) {
      BlockPart part = parts[inside[0]];
      if (inside.size() > 1) {
        Block block;
        std::map<std::string, std::size_t> kinds;
        part.vertices.clear();
        for (const std::size_t p : inside) {
          Block& child = blocks_[parts[p].block];
          const auto& vertices = parts[p].vertices;
          child.twins =
              kinds.emplace(description(topology, vertices, is_rank), kinds.size()).first->second;
          block.children.push_back(parts[p].block);
          block.hosts.insert(block.hosts.end(), child.hosts.begin(), child.hosts.end());
          part.vertices.insert(part.vertices.end(), vertices.begin(), vertices.end());
        }
        part.block = blocks_.size();
        blocks_.push_back(std::move(block));
      }
      std::set<NodeId> shared;
      for (const std::size_t p : inside) shared.insert(neighbours[p].begin(), neighbours[p].end());
      for (const NodeId v : shared) part.vertices.push_back(v);
      larger.push_back(std::move(part));
    }
    parts = std::move(larger);
  }
}

std::optional<std::vector<HostSet>> HostBlocks::choices(std::size_t count, std::size_t most) {
  lists_.clear();
  const Lists* lists_of_root = lists(blocks_.size() - 1, count, most);
  if (lists_of_root == nullptr) {
    return std::nullopt;
  }
  return lists_of_root->at(count);
}

/// Of 0 to `count` hosts of a block; null when there are too many.
const HostBlocks::Lists* HostBlocks::lists(std::size_t block, std::size_t count, std::size_t most) {
  const auto known = lists_.find(block);
  if (known != lists_.end()) {
    return &known->second;
  }
  const Block& of = blocks_[block];
  Lists result(count + 1);
  result[0].emplace_back();
  if (of.children.empty()) {
    if (count > 0) result[1].push_back({of.hosts[0]});
    return &lists_.emplace(block, std::move(result)).first->second;
  }
  std::map<std::size_t, std::vector<std::size_t>> twins;
  for (const std::size_t child : of.children) {
    twins[blocks_[child].twins].push_back(child);
    if (lists(child, count, most) == nullptr) return nullptr;
  }
  for (const auto& [number, alike] : twins) {
    Lists of_these(count + 1);
    HostSet taken;
    if (!spread(alike, count, 0, most, taken, of_these)) return nullptr;
    Lists both(count + 1);
    std::size_t made = 0;
    for (std::size_t a = 0; a <= count; ++a) {
      for (std::size_t b = 0; a + b <= count; ++b) {
        made += result[a].size() * of_these[b].size();
        if (made > most + count) return nullptr;
        for (const HostSet& before : result[a]) {
          for (const HostSet& more : of_these[b]) {
            HostSet set = before;
            set.insert(set.end(), more.begin(), more.end());
            both[a + b].push_back(std::move(set));
          }
        }
      }
    }
    result = std::move(both);
  }
  return &lists_.emplace(block, std::move(result)).first->second;
}

/// What each of these twins takes: at most as many as the one before it, and where as many, the
/// same or a later one of its choices (`first`).
bool HostBlocks::spread(std::span<const std::size_t> twins, std::size_t most_each,
                        std::size_t first, std::size_t most, HostSet& taken, Lists& into) {
  const std::size_t limit = into.size() - 1;
  if (twins.empty() || most_each == 0 || taken.size() == limit) {
    into[taken.size()].push_back(taken);
    std::size_t made = 0;
    for (const auto& list : into) made += list.size();
    return made <= most + limit;
  }
  const Lists& own = lists_.at(twins[0]);
  const std::size_t largest =
      std::min({most_each, limit - taken.size(), blocks_[twins[0]].hosts.size()});
  for (std::size_t each = largest + 1; each-- > 0;) {
    const std::size_t from = each == most_each ? first : 0;
    for (std::size_t i = from; i < own[each].size(); ++i) {
      const std::size_t before = taken.size();
      taken.insert(taken.end(), own[each][i].begin(), own[each][i].end());
      const bool is_few = spread(twins.subspan(1), each, i, most, taken, into);
      taken.resize(before);
      if (!is_few) return false;
    }
  }
  return true;
}

}  // namespace rackrail::planner

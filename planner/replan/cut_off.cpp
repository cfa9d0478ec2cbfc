#include "planner/replan/cut_off.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "topology/remove.hpp"

namespace rackrail::planner {

namespace {

using topology::Topology;

constexpr std::size_t kMostNamed = 4;

/// Vertices that the first rank reaches over links that are not lost, or that reach it.
std::vector<bool> reached(const Topology& topology, const std::vector<bool>& is_lost, bool back) {
  std::vector<bool> is_reached(topology.node_count());
  std::vector<NodeId> queue{topology.node_of(Rank(0))};
  is_reached[queue.front().index()] = true;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    const NodeId here = queue[i];
    for (const LinkId id : back ? topology.links_into(here) : topology.links_out_of(here)) {
      const topology::Link& link = topology.link(id);
      const NodeId next = back ? link.from : link.to;
      if (link.kind != topology::LinkKind::kShared && !is_lost[id.index()] &&
          !is_reached[next.index()]) {
        is_reached[next.index()] = true;
        queue.push_back(next);
      }
    }
  }
  return is_reached;
}

/// Ranks with a way there and back to the first one, and the others.
struct Parts {
  std::vector<Rank> together;
  std::vector<Rank> apart;
};

Parts parts_without(const Topology& topology, std::span<const LinkId> lost) {
  std::vector<bool> is_lost(topology.link_count());
  for (const LinkId link : lost) {
    is_lost[link.index()] = true;
  }
  const std::vector<bool> there = reached(topology, is_lost, false);
  const std::vector<bool> back = reached(topology, is_lost, true);
  Parts parts;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const std::size_t v = topology.node_of(Rank(r)).index();
    (there[v] && back[v] ? parts.together : parts.apart).emplace_back(r);
  }
  return parts;
}

/// "host3", "host0, host1, host2, host3 and 4 more".
std::string machines_of(const Topology& topology, const std::vector<Rank>& ranks) {
  std::vector<std::string> names;
  for (const Rank rank : ranks) {
    const topology::Node& node = topology.node(topology.node_of(rank));
    const std::string& name = node.host.empty() ? node.name : node.host;
    if (std::ranges::find(names, name) == names.end()) {
      names.push_back(name);
    }
  }
  const std::size_t more = names.size() - std::min(names.size(), kMostNamed);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : std::string());
}

[[noreturn]] void fail(const Topology& topology, std::span<const LinkId> lost, const Parts& parts) {
  const auto& [together, apart] = parts;
  const bool is_alone = !parts_without(topology, lost.last(1)).apart.empty();
  throw ConfigError(ErrorContext{
      "", fmt::format("lost link {}", topology.link_name(lost.back())),
      fmt::format(
          "it cuts {} off: no path is left between there and the other {}{}",
          machines_of(topology, apart.size() <= together.size() ? apart : together),
          counted(static_cast<std::int64_t>(std::max(apart.size(), together.size())), "rank"),
          is_alone ? "" : ", with the links lost before it"),
      "every rank to reach every other over the links that are left"});
}

}  // namespace

Topology without_links(const Topology& topology, std::span<const LinkId> lost) {
  if (lost.empty()) {
    return topology;
  }
  if (topology.rank_count() > 1 && !parts_without(topology, lost).apart.empty()) {
    std::size_t connected = 0;  // with so many of them lost, and not with `apart` many
    std::size_t apart = lost.size();
    while (apart - connected > 1) {
      const std::size_t middle = (connected + apart) / 2;
      (parts_without(topology, lost.first(middle)).apart.empty() ? connected : apart) = middle;
    }
    fail(topology, lost.first(apart), parts_without(topology, lost.first(apart)));
  }
  return topology::without(topology, {}, lost);
}

}  // namespace rackrail::planner

#include "planner/packing/forest_building.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "planner/packing/grouped_packing.hpp"
#include "planner/packing/switch_removal.hpp"

namespace rackrail::planner {

namespace {

std::vector<Grouping> tiers_of(const topology::Topology& topology) {
  std::vector<Grouping> tiers;
  for (std::string topology::Node::*const field : {&topology::Node::rack, &topology::Node::host}) {
    std::map<std::string, std::uint32_t> numbers;
    Grouping grouping(topology.node_count());
    for (std::size_t v = 0; v < topology.node_count(); ++v) {
      const std::string& name = topology.node(NodeId(v)).*field;
      // A vertex without a name is a group of its own.
      const std::string key = name.empty() ? fmt::format("\n{}", v) : name;
      grouping[v] = numbers.emplace(key, static_cast<std::uint32_t>(numbers.size())).first->second;
    }
    tiers.push_back(std::move(grouping));
  }
  return tiers;
}

/// Each arc of a tree on one route; trees are divided where an arc's units take several.
std::vector<Tree> routed(const std::vector<TreeBundle>& bundles, LogicalNetwork& network,
                         const topology::Topology& topology) {
  std::vector<Tree> trees;
  for (const TreeBundle& bundle : bundles) {
    std::vector<Tree> open{{*topology.rank_of(NodeId(bundle.root)), bundle.units, {}}};
    for (const auto& [from, to] : bundle.arcs) {
      const Rank parent = *topology.rank_of(NodeId(from));
      const Rank child = *topology.rank_of(NodeId(to));
      for (std::size_t i = 0; i < open.size(); ++i) {
        std::vector<Strand> strands = network.take(from, to, open[i].units);
        for (std::size_t s = 1; s < strands.size(); ++s) {
          open.push_back(open[i]);
          open.back().units = strands[s].units;
          // It is put back, to be taken when this part's turn comes.
          network.give_back(from, to, strands[s]);
        }
        open[i].units = strands[0].units;
        open[i].arcs.push_back({parent, child, strands[0].route});
      }
    }
    std::move(open.begin(), open.end(), std::back_inserter(trees));
  }
  return trees;
}

}  // namespace

std::vector<std::int64_t> loads_of(const Forest& forest, std::size_t links) {
  std::vector<std::int64_t> on_route(forest.routes.size());
  for (const Tree& tree : forest.trees) {
    for (const TreeArc& arc : tree.arcs) {
      on_route[arc.route] += tree.units;
    }
  }
  std::vector<std::int64_t> loads(links);
  for (std::size_t r = 0; r < forest.routes.size(); ++r) {
    for (const LinkId link : forest.routes[r]) {
      loads[link.index()] += on_route[r];
    }
  }
  return loads;
}

std::vector<Removal> removals_for(const topology::Topology& topology, Pairs pairs,
                                  bool may_be_exact) {
  if (!may_be_exact || topology.rank_count() > kMostRanksExactly) {
    return {Removal::kEvenly};
  }
  return pairs == Pairs::kFew ? std::vector{Removal::kExactly, Removal::kEvenly}
                              : std::vector{Removal::kEvenly, Removal::kExactly};
}

std::optional<Forest> build_forest(const LogicalNetwork& network,
                                   const topology::Topology& topology, bool reversed,
                                   const std::vector<Removal>& removals) {
  const std::vector<Grouping> tiers = tiers_of(topology);
  std::optional<std::vector<TreeBundle>> bundles;
  LogicalNetwork direct = network;
  for (const Removal removal : removals) {
    direct = network;
    if (removal == Removal::kEvenly) {
      if (remove_switches_evenly(direct, topology)) {
        bundles = pack_by_tiers(direct, tiers);
      }
    } else if (remove_switches_exactly(direct,
                                       removal == Removal::kExactly ? Ways::kFew : Ways::kMany)) {
      bundles = pack_by_tiers(direct, tiers);
      if (!bundles) {
        bundles = pack_by_tiers(direct, {});
      }
    }
    if (bundles) {
      break;
    }
  }
  if (!bundles) {
    return std::nullopt;
  }
  Forest forest;
  forest.trees = routed(*bundles, direct, topology);
  forest.routes = direct.routes();
  if (reversed) {
    for (topology::Route& route : forest.routes) {
      std::reverse(route.begin(), route.end());
    }
  }
  return forest;
}

}  // namespace rackrail::planner

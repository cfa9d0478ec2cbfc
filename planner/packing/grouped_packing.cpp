#include "planner/packing/grouped_packing.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace rackrail::planner {

namespace {

// Above this many vertices the exact packing takes seconds, and nothing is tried when the quick one
// fails.
constexpr std::size_t kMostExactly = 128;

std::optional<std::vector<TreeBundle>> pack(const PackingProblem& problem) {
  auto bundles = pack_quickly(problem);
  if (!bundles && problem.size <= kMostExactly) {
    bundles = pack_exactly(problem);
  }
  return bundles;
}

/// Some trees that are alike so far, while the groups they pass are not filled in.
struct Piece {
  std::uint32_t root = 0;  ///< vertex
  std::int64_t units = 0;
  std::vector<std::uint32_t> entry;  ///< vertex at which it enters each group
  std::vector<std::pair<std::uint32_t, std::uint32_t>> arcs;
};

class TierPacking {
 public:
  TierPacking(const LogicalNetwork& network, const std::vector<Grouping>& tiers)
      : network_(network), tiers_(tiers), index_(network.vertex_count()) {}

  /// Trees over `members`, of which roots[i] start at members[i]; vertices in the answer are those
  /// of the network.
  std::optional<std::vector<TreeBundle>> run(const std::vector<Vertex>& members,
                                             const std::vector<std::int64_t>& roots,
                                             std::size_t tier) {
    if (tier == tiers_.size()) {
      return pack_flat(members, roots);
    }
    std::map<std::uint32_t, std::vector<Vertex>> by_group;
    for (const Vertex v : members) {
      by_group[tiers_[tier][v]].push_back(v);
    }
    if (by_group.size() == 1 || by_group.size() == members.size()) {
      return run(members, roots, tier + 1);
    }
    std::vector<std::vector<Vertex>> groups;
    for (auto& [number, vertices] : by_group) {
      groups.push_back(std::move(vertices));
    }
    return run_groups(members, roots, tier, groups);
  }

 private:
  std::optional<std::vector<TreeBundle>> pack_flat(const std::vector<Vertex>& members,
                                                   const std::vector<std::int64_t>& roots) {
    const std::size_t n = members.size();
    PackingProblem problem{n, std::vector<std::int64_t>(n * n), roots};
    number(members);
    for (std::size_t i = 0; i < n; ++i) {
      for (const auto& [to, units] : network_.out_of(members[i])) {
        if (is_member(to, members)) {
          problem.capacity[i * n + index_[to]] = units;
        }
      }
    }
    auto bundles = pack(problem);
    if (bundles) {
      for (TreeBundle& bundle : *bundles) {
        bundle.root = members[bundle.root];
        for (auto& [from, to] : bundle.arcs) {
          from = members[from];
          to = members[to];
        }
      }
    }
    return bundles;
  }

  void number(const std::vector<Vertex>& members) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      index_[members[i]] = static_cast<std::uint32_t>(i);
    }
  }
  /// After number(members).
  bool is_member(Vertex v, const std::vector<Vertex>& members) const {
    return index_[v] < members.size() && members[index_[v]] == v;
  }

  std::optional<std::vector<TreeBundle>> run_groups(
      const std::vector<Vertex>& members, const std::vector<std::int64_t>& roots, std::size_t tier,
      const std::vector<std::vector<Vertex>>& groups) {
    const std::size_t n = groups.size();
    number(members);
    std::vector<std::uint32_t> group_of(members.size());
    for (std::uint32_t g = 0; g < n; ++g) {
      for (const Vertex v : groups[g]) {
        group_of[index_[v]] = g;
      }
    }
    PackingProblem between{n, std::vector<std::int64_t>(n * n), std::vector<std::int64_t>(n)};
    Crossings crossings(n * n);
    for (std::size_t i = 0; i < members.size(); ++i) {
      between.roots[group_of[i]] += roots[i];
      for (const auto& [to, units] : network_.out_of(members[i])) {
        if (is_member(to, members) && group_of[index_[to]] != group_of[i]) {
          const std::size_t cell = group_of[i] * n + group_of[index_[to]];
          between.capacity[cell] += units;
          crossings[cell].push_back({members[i], to, units});
        }
      }
    }
    const auto bundles = pack(between);
    if (!bundles) {
      return std::nullopt;
    }
    std::map<std::uint32_t, std::vector<std::pair<Vertex, std::int64_t>>> starts;
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (roots[i] > 0) {
        starts[group_of[i]].emplace_back(members[i], roots[i]);
      }
    }
    std::vector<Piece> pieces;
    for (const TreeBundle& bundle : *bundles) {
      cross(bundle, n, starts[bundle.root], crossings, pieces);
    }
    for (std::uint32_t g = 0; g < n; ++g) {
      if (!fill_in(groups[g], g, tier, pieces)) {
        return std::nullopt;
      }
    }
    std::vector<TreeBundle> trees;
    for (Piece& piece : pieces) {
      trees.push_back(in_order(std::move(piece)));
    }
    return trees;
  }

  struct Crossing {
    Vertex from;
    Vertex to;
    std::int64_t units;
  };
  using Crossings = std::vector<std::vector<Crossing>>;  // by pair of groups

  /// A bundle over groups becomes pieces, each with one root and one arc into every group. An arc
  /// that leaves from where the piece entered is taken first.
  static void cross(const TreeBundle& bundle, std::size_t groups,
                    std::vector<std::pair<Vertex, std::int64_t>>& starts, Crossings& crossings,
                    std::vector<Piece>& pieces) {
    std::vector<Piece> open;
    std::int64_t left = bundle.units;
    while (left > 0) {
      auto& [vertex, units] = starts.back();
      Piece piece{vertex, std::min(left, units), std::vector<std::uint32_t>(groups), {}};
      piece.entry[bundle.root] = vertex;
      left -= piece.units;
      units -= piece.units;
      if (units == 0) {
        starts.pop_back();
      }
      open.push_back(std::move(piece));
    }
    for (const auto& [from, to] : bundle.arcs) {
      auto& ways = crossings[from * groups + to];
      for (std::size_t i = 0; i < open.size(); ++i) {
        auto way = std::find_if(ways.begin(), ways.end(), [&](const Crossing& c) {
          return c.units > 0 && c.from == open[i].entry[from];
        });
        if (way == ways.end()) {
          way =
              std::find_if(ways.begin(), ways.end(), [](const Crossing& c) { return c.units > 0; });
        }
        if (way->units < open[i].units) {
          open.push_back(open[i]);
          open.back().units -= way->units;
          open[i].units = way->units;
        }
        way->units -= open[i].units;
        open[i].arcs.emplace_back(way->from, way->to);
        open[i].entry[to] = way->to;
      }
    }
    std::move(open.begin(), open.end(), std::back_inserter(pieces));
  }

  /// Trees inside one group, from where the pieces enter it.
  bool fill_in(const std::vector<Vertex>& members, std::uint32_t group, std::size_t tier,
               std::vector<Piece>& pieces) {
    std::map<Vertex, std::int64_t> entering;
    for (const Piece& piece : pieces) {
      entering[piece.entry[group]] += piece.units;
    }
    std::vector<std::int64_t> roots;
    for (const Vertex v : members) {
      const auto it = entering.find(v);
      roots.push_back(it == entering.end() ? 0 : it->second);
    }
    auto bundles = run(members, roots, tier + 1);
    if (!bundles) {
      return false;
    }
    std::map<Vertex, std::vector<TreeBundle>> by_entry;
    for (TreeBundle& bundle : *bundles) {
      by_entry[bundle.root].push_back(std::move(bundle));
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto& inside = by_entry[pieces[i].entry[group]];
      TreeBundle& bundle = inside.back();
      if (bundle.units < pieces[i].units) {
        pieces.push_back(pieces[i]);
        pieces.back().units -= bundle.units;
        pieces[i].units = bundle.units;
      }
      bundle.units -= pieces[i].units;
      pieces[i].arcs.insert(pieces[i].arcs.end(), bundle.arcs.begin(), bundle.arcs.end());
      if (bundle.units == 0) {
        inside.pop_back();
      }
    }
    return true;
  }

  /// Arcs breadth first from the root.
  TreeBundle in_order(Piece piece) {
    TreeBundle tree{piece.root, piece.units, {}};
    std::sort(piece.arcs.begin(), piece.arcs.end());
    std::vector<Vertex> queue{piece.root};
    for (std::size_t i = 0; i < queue.size(); ++i) {
      auto arc = std::lower_bound(piece.arcs.begin(), piece.arcs.end(),
                                  std::pair(queue[i], std::uint32_t{0}));
      for (; arc != piece.arcs.end() && arc->first == queue[i]; ++arc) {
        tree.arcs.push_back(*arc);
        queue.push_back(arc->second);
      }
    }
    return tree;
  }

  const LogicalNetwork& network_;
  const std::vector<Grouping>& tiers_;
  std::vector<std::uint32_t> index_;  // of a vertex among the members looked at
};

}  // namespace

std::optional<std::vector<TreeBundle>> pack_by_tiers(const LogicalNetwork& network,
                                                     const std::vector<Grouping>& tiers) {
  const std::vector<Vertex>& members = network.terminals();
  std::vector<std::int64_t> roots;
  for (const Vertex v : members) {
    roots.push_back(network.roots(v));
  }
  return TierPacking(network, tiers).run(members, roots, 0);
}

}  // namespace rackrail::planner

// Trees of links along which switches multicast and reduce, spread evenly over the links.
//
// Model. A multicast tree leads from its root, a rank, over one link to the switches, parts only at
// vertices that multicast, and ends at the other ranks; a reduction tree is one of the reversed
// graph, with vertices that reduce (plan/in_network.hpp). What is asked for is one tree after the
// other, each with its share of the data: the new tree is the one for which its fullest link is
// emptiest in the end, counted in seconds per byte of the whole.
//
// Method. A tree is given by a switch: the shortest path from the root to it, and from the able
// switches on that path the shortest paths to the ranks, where among equally short ones that with
// the emptiest links counts. So the switches are what is tried, as far from the root as the
// farthest rank at most; where paths part at a vertex that cannot do it, the next is tried. A
// switch is left out that is farther from each rank than another one on its path. That finds all
// trees of fat trees and of stars, rotates over spines and parallel cables, and is a heuristic
// elsewhere: least trees of this kind are Steiner trees.
//
// Complexity: for one tree, O(L + V log V) for each of the switches that are tried.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

class SwitchTrees {
 public:
  /// Keeps a reference; the topology must not change.
  explicit SwitchTrees(const topology::Topology& topology);

  /// Whether any switch can do this at all.
  bool any(plan::TransferOp op) const;
  /// Routes by leaf, from the root to them for kCopy, to the root for kReduce; their links carry
  /// `share` of the data more from now on. None where there is no tree. `leaves` does not hold the
  /// root, nor any rank twice.
  std::optional<std::vector<topology::Route>> take(plan::TransferOp op, Rank root,
                                                   std::span<const Rank> leaves, double share);
  /// Counts a route of another kind of transfer.
  void add_load(std::span<const LinkId> route, double share);

 private:
  static constexpr std::uint32_t kFar = UINT32_MAX;
  /// How a vertex is reached from the sources of a search.
  struct Way {
    std::uint32_t hops = kFar;
    double fullest = 0;  ///< cost of the fullest link on the way
    LinkId last;         ///< the link that leads here; of sources: none
    bool is_source = false;
    bool is_closed = false;  ///< no way may lead here
  };
  struct Request;
  struct Tree;

  bool is_able(NodeId node, plan::TransferOp op) const;
  double cost(LinkId link, double share) const;
  void search(const Request& request, std::span<const Rank> targets);
  std::vector<LinkId> way_to(const Request& request, NodeId node) const;
  bool reaches_all(const Request& request, const std::vector<LinkId>& stem,
                   std::span<const Rank> leaves);
  /// Fewest links from a switch to each vertex; kFar where there is no way.
  const std::vector<std::uint32_t>& hops_from(const Request& request, NodeId source);
  bool may_be_new(const Request& request, const std::vector<LinkId>& stem,
                  std::span<const Rank> leaves);
  /// Of the stem, before a vertex that it leads to.
  static std::size_t links_to(const Request& request, const std::vector<LinkId>& stem,
                              NodeId source);
  std::optional<Tree> tree_over(const Request& request, const std::vector<LinkId>& stem,
                                std::span<const Rank> leaves);
  /// Of the tree that tree_over() made last.
  bool parts_only_where_able(const Request& request, const Tree& tree);
  std::vector<topology::Route> routes_over(const Request& request, const std::vector<LinkId>& stem,
                                           std::span<const Rank> leaves);

  const topology::Topology& topology_;
  std::vector<double> load_;  ///< by link: share of the data that it carries
  std::vector<Way> ways_;     ///< by vertex, of the last search
  std::vector<NodeId> reached_;
  std::map<std::pair<NodeId, plan::TransferOp>, std::vector<std::uint32_t>> hops_;
  std::uint32_t walk_ = 0;             ///< number of the tree that is made
  std::vector<std::uint32_t> walked_;  ///< by vertex: the last tree that holds it
  std::vector<std::uint32_t> parted_;  ///< by vertex: the last tree of which a link leads from it
};

}  // namespace rackrail::planner

// Groups of transfers that switches carry out as one: multicast and reduction in the network.
//
// Model. A group (rule 7 of transfer_graph.hpp) is copies of one range out of one rank, its root,
// to several, or additions of one range of several ranks into one, its root. The routes of its
// members may form a tree with that rank as root, which branches only at vertices that can
// multicast (or reduce). Then the bytes of the range pass each edge of the tree once. A switch
// copies them to its outputs, or adds its inputs and forwards one sum. NVSwitch ("NVLS") and
// Quantum switches do so (SHARP: Graham et al., "Scalable Hierarchical Aggregation Protocol",
// COMHPC 2016). The root has one stream of the tree, so a reduction arrives there once and is added
// once. Otherwise the members move one by one, each over its own route.
//
// The tree is a logical one, as SHARP's is. Its vertices are the root, the leaves and the switches
// that can multicast or reduce. Its edges are paths between these, over switches that only forward.
// Such paths may share a link, which then carries the bytes once for each of them. So a spine can
// add what ranks send it through a leaf switch that cannot add; the leaf's cable carries all their
// streams.
//
// Switches handle neither ranks in the middle of a route nor lossy codes in an addition.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/transfer_graph.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

/// Why the group is no single operation whatever the topology is, if so: members of different
/// kinds, ranges or roots, the same rank twice, a lossy code that is added, a route not pinned, or
/// one that waits for another.
std::optional<std::string> problem_of(const TransferGraph& graph, const TransferGroup& group);
/// Why it is none on this topology, if so. Precondition: problem_of(graph, group) is none.
std::optional<std::string> problem_of(const TransferGraph& graph, const TransferGroup& group,
                                      const topology::Topology& topology);

/// The logical tree of an operation, found from its routes.
class LogicalTree {
 public:
  /// `outward`: of copies. Keeps a reference.
  LogicalTree(const topology::Topology& topology, NodeId root, bool outward)
      : topology_(topology), root_(root), outward_(outward) {}

  /// Adds a member's route, as its bytes go; why it is none of the tree, if so, and then the tree
  /// is as it was.
  std::optional<std::string> add(std::span<const LinkId> route);
  /// Of all edges, as often as the bytes pass them.
  const std::vector<LinkId>& links() const { return links_; }
  bool has_meeting_edges() const;

 private:
  /// A way to a vertex from the one before it.
  struct Edge {
    NodeId to;
    std::vector<LinkId> links;  ///< away from the root
  };

  std::optional<std::string> edges_of(std::span<const LinkId> route,
                                      std::vector<Edge>& edges) const;
  std::optional<std::string> problem_of(const Edge& edge) const;
  std::string problem_of_first(const Edge& edge) const;
  bool is_able(NodeId node) const;
  NodeId near(LinkId link) const;
  NodeId far(LinkId link) const;
  const std::string& name(NodeId node) const { return topology_.node(node).name; }

  const topology::Topology& topology_;
  NodeId root_;
  bool outward_;
  std::vector<LinkId> first_;  ///< the edge at the root
  std::unordered_map<NodeId, std::vector<LinkId>> edge_to_;
  std::vector<LinkId> links_;
};

/// What becomes of operations with meeting edges (InNetwork::Tree).
enum class MeetingEdges : std::uint8_t {
  kCarriedOut,
  kOneByOne,  ///< they are none: each member moves on its own
};

/// The groups of a graph that are one operation on a topology, and what they occupy.
class InNetwork {
 public:
  struct Tree {
    std::vector<LinkId> links;  ///< of all edges: as often as the bytes pass them
    Duration latency;           ///< of the longest route
    Bandwidth rate;             ///< the least of its routes' (rule 8); 0: no limit
    /// Whether edges meet where nobody copies or adds: on a link, or at a switch.
    bool has_meeting_edges = false;
  };
  struct Operation {
    TransferGroup group;
    std::uint32_t tree = 0;  ///< index into trees()
  };

  /// Keeps references to both. Costs the routes of all groups; nothing where there are none.
  InNetwork(const TransferGraph& graph, const topology::Topology& topology,
            MeetingEdges meeting = MeetingEdges::kCarriedOut);

  std::span<const Operation> operations() const { return operations_; }
  std::span<const Tree> trees() const { return trees_; }
  /// The operation that a transfer is part of; null when it moves on its own.
  const Operation* operation_of(TransferId id) const;
  /// Whether an operation is counted with another of its members.
  bool is_counted_elsewhere(TransferId id) const;
  /// Links that a transfer occupies, as often as it does, so that those of an operation are counted
  /// once: its tree at the first member, none at the others. The pinned route for every other
  /// transfer.
  std::span<const LinkId> links(TransferId id) const;

 private:
  const TransferGraph& graph_;
  std::vector<Operation> operations_;
  std::vector<Tree> trees_;
  std::vector<std::uint32_t> operation_of_;  ///< by transfer; empty without operations
};

}  // namespace rackrail::plan

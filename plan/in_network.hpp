// Groups of transfers that switches carry out as one: multicast and reduction in the network.
//
// Model. A group (rule 7 of transfer_graph.hpp) is copies of one range out of one rank, its root,
// to several, or additions of one range of several ranks into one, its root. Where the routes of
// its members are a tree at whose root stands that rank, and every vertex at which they part can
// multicast (come together: can reduce), the bytes of the range pass each link of the tree once:
// a switch copies them to its outputs, or adds its inputs and passes on one sum, as NVSwitch
// ("NVLS") and Quantum switches (SHARP: Graham et al., "Scalable Hierarchical Aggregation
// Protocol", COMHPC 2016) do. The root has one link of the tree, so a reduction arrives there as
// one stream and is added once. Otherwise the members move one by one, each over its own route.
//
// Ranks in the middle of a route, and lossy codes in an addition, are nothing a switch can do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

/// The groups of a graph that are one operation on a topology, and what they occupy.
class InNetwork {
 public:
  struct Tree {
    std::vector<LinkId> links;  ///< of all members, each once
    Duration latency;           ///< of the longest route
    Bandwidth rate;             ///< the least of its routes' (rule 8); 0: no limit
  };
  struct Operation {
    TransferGroup group;
    std::uint32_t tree = 0;  ///< index into trees()
  };

  /// Keeps references to both. Costs the routes of all groups; nothing where there are none.
  InNetwork(const TransferGraph& graph, const topology::Topology& topology);

  std::span<const Operation> operations() const { return operations_; }
  std::span<const Tree> trees() const { return trees_; }
  /// The operation that a transfer is part of; null when it moves on its own.
  const Operation* operation_of(TransferId id) const;
  /// Whether an operation is counted with another of its members.
  bool is_counted_elsewhere(TransferId id) const;
  /// Links that a transfer occupies, so that those of an operation are counted once: its tree at
  /// the first member, none at the others. The pinned route for every other transfer.
  std::span<const LinkId> links(TransferId id) const;

 private:
  const TransferGraph& graph_;
  std::vector<Operation> operations_;
  std::vector<Tree> trees_;
  std::vector<std::uint32_t> operation_of_;  ///< by transfer; empty without operations
};

}  // namespace rackrail::plan

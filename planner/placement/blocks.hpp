// Which choices of hosts are the same choice: the cluster as nested blocks, some of them twins.
//
// Model. Every host is a block. Blocks that share a neighbour (a ToR, a set of rail switches, a
// plane of spines) form a larger block together with the switches that they share, and so on until
// one block is left: hosts, racks, pods, cluster, found from the graph and not from names. Two
// blocks in the same larger one are twins when they are built identically, vertex by vertex, and
// joined to the same vertices outside by the same links. Exchanging twins maps the cluster onto
// itself, so a choice of hosts has the same value when what is taken of two twins is exchanged. Of
// such choices one is enumerated: of twins, the earlier takes at least as many hosts as the later.
//
// Blocks that are identical in another order of their vertices are not recognised as twins; then
// more is enumerated than necessary, and nothing is missed.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/placement/hosts.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Numbers of hosts, each once.
using HostSet = std::vector<std::size_t>;

class HostBlocks {
 public:
  struct Block {
    std::vector<std::size_t> hosts;     ///< inside, in order of the blocks
    std::vector<std::size_t> children;  ///< blocks; none for a host
    std::size_t twins = 0;              ///< children of one block with the same number are twins
  };

  HostBlocks(const topology::Topology& topology, std::span<const Host> hosts);

  /// Hosts first, then what they form; the last is the whole cluster.
  const std::vector<Block>& all() const { return blocks_; }
  const Block& root() const { return blocks_.back(); }

  /// One of each kind of choice of `count` hosts; none when that is more than `most`, at any level.
  std::optional<std::vector<HostSet>> choices(std::size_t count, std::size_t most);

 private:
  using Lists = std::vector<std::vector<HostSet>>;  // by number of hosts

  const Lists* lists(std::size_t block, std::size_t count, std::size_t most);
  bool spread(std::span<const std::size_t> twins, std::size_t most_each, std::size_t first,
              std::size_t most, HostSet& taken, Lists& into);

  std::vector<Block> blocks_;
  std::map<std::size_t, Lists> lists_;  // by block
};

}  // namespace rackrail::planner

// What a choice of hosts is worth.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "planner/placement/blocks.hpp"
#include "planner/placement/hosts.hpp"
#include "topology/topology.hpp"

namespace rackrail::planner {

/// Smaller is better, field by field, unless it says something else.
struct ChoiceValue {
  double cost =
      0;  ///< seconds per byte and rank of a reduce-scatter and an all-gather; or infinity
  double speed = 0;  ///< of all devices, by data sheets; larger is better
  std::size_t racks = 0;
  std::size_t blocks = 0;    ///< groups of switches that are used
  std::size_t crossing = 0;  ///< hosts on the lesser side of each of these, summed

  bool is_better_than(const ChoiceValue& other) const;
};

class ChoiceValuer {
 public:
  /// References must outlive it. `all_hosts` are those of the cluster, `candidates` those with
  /// their ranks taken.
  ChoiceValuer(const topology::Topology& topology, const std::vector<Host>& all_hosts,
               const std::vector<Host>& candidates, const HostBlocks& blocks, std::size_t count);

  ChoiceValue value(const HostSet& hosts);
  std::size_t computed() const { return computed_; }
  /// About how much work one value is, in links visited.
  double work() const;

  /// The chosen hosts with all switches, in the order given.
  topology::Topology cluster(const HostSet& hosts) const;

 private:
  double cost_of_whole(const HostSet& hosts) const;
  double cost_of_hosts(const HostSet& hosts) const;

  const topology::Topology& topology_;
  const std::vector<Host>& candidates_;
  const HostBlocks& blocks_;
  std::vector<bool> is_network_;  // by vertex: part of no host
  std::vector<double> speed_;     // by candidate; all 0 where the class of one device is not known
  std::size_t count_;
  std::size_t computed_ = 0;
};

}  // namespace rackrail::planner

// An order of ranks as launchers take it: hosts in rank order, and how many ranks start on each.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::exporting {

struct HostSlots {
  std::string name;
  std::size_t ranks = 0;
};

/// Of the ranks in their order. Throws ConfigError where ranks of a host are not side by side,
/// which no launcher can do, where a rank has no host, or where a name needs quotes that hostfiles
/// lack.
std::vector<HostSlots> host_slots(const topology::Topology& cluster);
void require_plain_names(std::span<const HostSlots> hosts);

/// A line per host with its slots, for mpirun --hostfile.
std::string openmpi_hostfile(std::span<const HostSlots> hosts);
/// A line per rank, for SLURM_HOSTFILE with srun --distribution=arbitrary, which keeps the order.
std::string slurm_hostfile(std::span<const HostSlots> hosts);
/// Names with commas, for sbatch --nodelist, which does not keep the order.
std::string node_list(std::span<const HostSlots> hosts);
/// A script that every host runs: it calls torchrun with the host's node rank, and its own
/// arguments.
std::string torchrun_script(std::span<const HostSlots> hosts);

}  // namespace rackrail::exporting

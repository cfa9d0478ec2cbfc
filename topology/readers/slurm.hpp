// What Slurm's topology.conf and topology.yaml say: a tree of switches, or blocks of hosts.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "topology/readers/network_file.hpp"

namespace rackrail {
class ConfigValue;
}  // namespace rackrail

namespace rackrail::topology {

struct SlurmSwitch {
  std::string name;
  std::vector<std::string> children;  ///< switches
  std::vector<std::string> hosts;
  std::string where;  ///< "line 3"
};

struct SlurmBlock {
  std::string name;
  std::vector<std::string> hosts;
  std::string where;
};

struct SlurmTopology {
  std::vector<SlurmSwitch> switches;
  std::vector<SlurmBlock> blocks;  ///< not used where there are switches
  std::vector<std::string> notes;
};

/// Throws ConfigError, as all here.
SlurmTopology parse_slurm_conf(const std::string& file, std::string_view content);
SlurmTopology parse_slurm_yaml(const std::string& file, const std::string& content);

/// Diagnoses what is no single tree: hosts below two switches, switches below two others or below
/// themselves, several trees.
NetworkFile network_of(const std::string& file, SlurmTopology topology);

}  // namespace rackrail::topology

// Which NIC of a host type each adapter is that a network file shows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/readers/cluster_spec.hpp"
#include "topology/readers/network_file.hpp"

namespace rackrail::topology {

/// By host cable its NIC, from 0; none where no NIC is of its name. NICs are matched by the names
/// in `nics.devices`; without these in the order of adapters' names. A host that lacks some is
/// matched like those that have all of them and the same names. Notes report what does
/// not fit. Throws ConfigError for a host that shows more adapters than the type has NICs.
std::vector<std::optional<std::size_t>> match_adapters(NetworkFile& network, const NodeType& type,
                                                       const std::string& file);

}  // namespace rackrail::topology

// What the names of vertices say in an edge list without a table of vertices.
#pragma once

#include <string_view>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// "nvswitch0" is an NVSwitch; a switch of unknown role where the name says nothing.
NodeKind kind_by_name(std::string_view name);

/// Whether it begins with "gpu" or "host".
bool is_rank_by_name(std::string_view name);

}  // namespace rackrail::topology

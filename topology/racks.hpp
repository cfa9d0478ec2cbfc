// Racks that a file does not name, told by how machines hang on the network.
//
// A machine is what is linked without the switches of the network, and what has the name of one
// host: a rank with its NICs and buses, GPUs on an NVSwitch, but also hosts with cables from one to
// the other. A switch of the network is one (of kind ToR, spine, core or of no known role) that
// belongs to no host and has no link of the kinds inside machines; and if its role is not known,
// one with a link to another such switch: an NVSwitch that nobody calls so has none, nor has a
// switch on which all hang. A rack is what machines and the switches on which they hang directly
// join: usually one switch; two where hosts have a cable to each of a pair; all leaves of a
// scalable unit with rails, as its hosts are on all of them. Names of switches do not matter.
//
// So there are no racks where all hang on one switch or on rails without switches of a rack between
// (all is one rack, which says nothing), in tori and meshes of ranks (all is one machine), and
// where no switch has several machines.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace rackrail::topology {

/// By vertex, the rack of each machine's vertices: the name of the first switch on which one of the
/// rack hangs; empty elsewhere. Empty altogether where there are no racks, where a machine hangs on
/// a spine or core switch, and where one with ranks hangs on no switch. Where each rack is a switch
/// of kind ToR the file says so, and it counts even if there is one only, or each has one machine.
/// O((vertices + links) log vertices).
std::vector<std::string> racks_by_structure(const Topology& topology);

/// Names racks by racks_by_structure() where no vertex has one.
void name_racks(Topology& topology);

}  // namespace rackrail::topology

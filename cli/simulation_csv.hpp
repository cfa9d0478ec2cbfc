// Simulated steps as tables for other programs.
#pragma once

#include <string>

#include "sim/simulator.hpp"

namespace rackrail::cli {

/// bucket,slice,src,dst,bytes,start_s,sent_s,delivered_s,links,shares — a row per message, links
/// with a space between them, and likewise what of the bytes each of them carries, of cores what
/// the message costs of their capacity; no shares where all links carry all.
std::string flows_csv(const std::vector<sim::FlowRecord>& flows,
                      const topology::Topology& topology);

/// time_s,LINK,LINK,… — a row per bin with the utilisation of each link from this time on.
std::string links_csv(const sim::LinkTimeline& timeline, const topology::Topology& topology);

}  // namespace rackrail::cli

// The checks of one transfer graph; used by verifier.cpp only.
#pragma once

#include "plan/problem_list.hpp"
#include "plan/transfer_graph.hpp"
#include "plan/verifier.hpp"
#include "topology/topology.hpp"

namespace rackrail::plan {

/// What is wrong goes to `problems`; the report has the figures only. `topology` may be null.
VerifyReport check_graph(const TransferGraph& graph, const topology::Topology* topology,
                         ProblemList& problems);

}  // namespace rackrail::plan

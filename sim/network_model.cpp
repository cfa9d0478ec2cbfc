#include "sim/network_model.hpp"

#include "base/error.hpp"

namespace rackrail::sim {

void NetworkModel::start_spread(Time /*now*/, std::int64_t /*bytes*/, const SpreadPath& /*path*/,
                                FlowTag /*tag*/) {
  throw SimulationError("this model of the network sends a message over one list of links only");
}

}  // namespace rackrail::sim

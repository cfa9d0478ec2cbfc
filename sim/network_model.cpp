#include "sim/network_model.hpp"

#include "base/error.hpp"

namespace rackrail::sim {

void NetworkModel::start_spread(Time /*now*/, std::int64_t /*bytes*/, const SpreadPath& /*path*/,
                                FlowTag /*tag*/) {
  throw ConfigError(ErrorContext{"", "packet level",
                                 "messages over several routes or a tree of switches at once",
                                 "a schedule that sends to one rank at a time over one route, or "
                                 "the flow level"});
}

}  // namespace rackrail::sim

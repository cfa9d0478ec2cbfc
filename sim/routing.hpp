// Over which links the messages of a simulation go; for sim/*.cpp only.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "topology/queries.hpp"
#include "topology/topology.hpp"

namespace rackrail::sim {

/// Who says over which links a message goes.
enum class Multipath : std::uint8_t {
  kPinned,  ///< the plan; where it does not say, as kEcmp
  kEcmp,    ///< the network, for all: one of the shortest routes, by a hash of the two ranks
};

/// "pinned", "ecmp".
std::optional<Multipath> parse_multipath(std::string_view text);

struct RouteUse {
  std::vector<LinkId> links;
  Duration overhead;  ///< largest message overhead of its links
};

RouteUse route_use(const topology::Topology& topology, std::span<const LinkId> links);

/// Looks routes up; the topology must outlive it.
class Routing {
 public:
  Routing(const topology::Topology& topology, Multipath multipath);

  /// `pinned` is the plan's route; none if it leaves that open. Throws ConfigError when there is no
  /// way from src to dst.
  RouteUse route(Rank src, Rank dst, std::span<const LinkId> pinned = {});

 private:
  const topology::Topology& topology_;
  topology::Router router_;
  Multipath multipath_;
};

}  // namespace rackrail::sim

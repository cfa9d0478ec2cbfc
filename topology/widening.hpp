// What a bound becomes when links of the cut that binds are twice as wide.
//
// A link of b bytes/s out of a cut of C lets the cut's own bound rise to (C + b)/C of what it was,
// and no further; other cuts may hold it up before. So links are tried the widest first, until the
// next one could not do better than the best so far.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "topology/topology.hpp"

namespace rackrail::topology {

/// with_wider_link() (queries.hpp) of several at once.
Topology with_wider_links(const Topology& topology, const std::vector<LinkId>& links);

/// A bound's algorithm bandwidth on this cluster or a wider one.
using BoundOf = std::function<Bandwidth(const Topology&)>;

/// What a bound becomes with one link twice as wide, as with_wider_link() makes it.
struct LinkWidening {
  LinkId link;
  Bandwidth algbw;
};
/// The link of a binding cut that buys most; above 32 ranks one of each width and tier is tried.
/// `before` is the bound itself, `links` are the cut's and not empty. The first of them where none
/// buys anything.
LinkWidening best_widening(const Topology& topology, const std::vector<LinkId>& links,
                           Bandwidth before, const BoundOf& bound);

/// The same for several links at once.
struct JointWidening {
  std::vector<LinkId> links;
  Bandwidth algbw;
};
/// For where no single link buys anything: all links of the cut, or where other cuts are as narrow
/// as that, all of the tiers that its links are in. None where even these buy nothing.
std::optional<JointWidening> joint_widening(const Topology& topology,
                                            const std::vector<LinkId>& links, Bandwidth before,
                                            const BoundOf& bound);

}  // namespace rackrail::topology

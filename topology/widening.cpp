#include "topology/widening.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "topology/queries.hpp"

namespace rackrail::topology {

namespace {

/// Above, links of one width and tier are taken to be alike.
constexpr std::size_t kRanksOfEveryLink = 32;

std::vector<LinkId> links_to_try(const Topology& topology, const std::vector<LinkId>& links) {
  std::vector<LinkId> tried;
  std::set<std::tuple<Bandwidth, std::string, LinkKind>> seen;
  for (const LinkId id : links) {
    const Link& link = topology.link(id);
    if (topology.rank_count() <= kRanksOfEveryLink ||
        seen.emplace(link.bandwidth, link.tier, link.kind).second) {
      tried.push_back(id);
    }
  }
  std::stable_sort(tried.begin(), tried.end(), [&](LinkId a, LinkId b) {
    return topology.link(a).bandwidth > topology.link(b).bandwidth;
  });
  return tried;
}

Bandwidth capacity_of(const Topology& topology, const std::vector<LinkId>& links) {
  Bandwidth sum;
  for (const LinkId id : links) sum = sum + topology.link(id).bandwidth;
  return sum;
}

/// The other way of a link: of several cables side by side that are not among `taken`, the one that
/// is as wide.
std::optional<LinkId> opposite_of(const Topology& topology, LinkId link,
                                  const std::vector<bool>& taken) {
  const Link& one = topology.link(link);
  std::optional<LinkId> opposite;
  // Of those of the end that has fewer: a switch has one for each host.
  const auto out = topology.links_out_of(one.to);
  const auto in = topology.links_into(one.from);
  for (const LinkId id : out.size() <= in.size() ? out : in) {
    const Link& other = topology.link(id);
    if (other.from != one.to || other.to != one.from || taken[id.index()]) continue;
    if (other.bandwidth == one.bandwidth) return id;
    opposite = opposite.value_or(id);
  }
  return opposite;
}

/// All links of the tiers of these.
std::vector<LinkId> links_of_tiers(const Topology& topology, const std::vector<LinkId>& links) {
  std::set<std::pair<std::string, LinkKind>> tiers;
  for (const LinkId id : links) {
    tiers.emplace(topology.link(id).tier, topology.link(id).kind);
  }
  std::vector<LinkId> all;
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const Link& link = topology.link(LinkId(l));
    if (tiers.contains({link.tier, link.kind})) all.emplace_back(l);
  }
  return all;
}

}  // namespace

Topology with_wider_link(const Topology& topology, LinkId link) {
  return with_wider_links(topology, {link});
}

Topology with_wider_links(const Topology& topology, const std::vector<LinkId>& links) {
  std::vector<bool> both_ways(topology.link_count(), false);
  for (const LinkId id : links) both_ways[id.index()] = true;
  for (const LinkId id : links) {
    if (const auto opposite = opposite_of(topology, id, both_ways)) {
      both_ways[opposite->index()] = true;
    }
  }
  Topology wider = topology;
  for (std::size_t l = 0; l < both_ways.size(); ++l) {
    if (!both_ways[l]) continue;
    const LinkId id(l);
    const Link& link = topology.link(id);
    wider.set_link_rate(id, link.bandwidth * 2, link.latency);
  }
  return wider;
}

LinkWidening best_widening(const Topology& topology, const std::vector<LinkId>& links,
                           Bandwidth before, const BoundOf& bound) {
  const double capacity = static_cast<double>(capacity_of(topology, links).bytes_per_second());
  LinkWidening best{.link = links.front(), .algbw = before};
  for (const LinkId id : links_to_try(topology, links)) {
    const double width = static_cast<double>(topology.link(id).bandwidth.bytes_per_second());
    if (best.algbw >= scaled(before, (capacity + width) / capacity)) break;
    const Bandwidth algbw = bound(with_wider_link(topology, id));
    if (algbw > best.algbw) best = {.link = id, .algbw = algbw};
  }
  return best;
}

std::optional<JointWidening> joint_widening(const Topology& topology,
                                            const std::vector<LinkId>& links, Bandwidth before,
                                            const BoundOf& bound) {
  for (std::vector<LinkId> together : {links, links_of_tiers(topology, links)}) {
    const Bandwidth algbw = bound(with_wider_links(topology, together));
    if (algbw > before) return JointWidening{std::move(together), algbw};
  }
  return std::nullopt;
}

}  // namespace rackrail::topology

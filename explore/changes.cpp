#include "explore/changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace rackrail::explore {
namespace {

using topology::Link;
using topology::LinkKind;
using topology::Topology;

constexpr double kMarginal = 0.1;

std::string tier_of(const Link& link) {
  return link.tier.empty() ? std::string(to_string(link.kind)) : link.tier;
}

/// By link, whether machines at its ends pay for its messages with their cores (sim/routing.hpp);
/// where `tier` is given, with cores of that tier.
std::vector<bool> charged_links(const Topology& topology,
                                const std::optional<std::string>& tier = std::nullopt) {
  std::set<NodeId> ends;
  std::set<std::string> hosts;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const auto processor = topology.processor_of(Rank(r));
    if (processor && (!tier || tier_of(topology.link(*processor)) == *tier)) {
      ends.insert(topology.node_of(Rank(r)));
      hosts.insert(topology.node(topology.node_of(Rank(r))).host);
    }
  }
  hosts.erase("");
  const auto has_cores = [&](NodeId node) {
    return ends.contains(node) || hosts.contains(topology.node(node).host);
  };
  std::vector<bool> charged;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    charged.push_back(link.kind != LinkKind::kShared && link.cpu_share > 0 &&
                      (has_cores(link.from) || has_cores(link.to)));
  }
  return charged;
}

/// `factor` times the bandwidth, of which each byte costs the cores what it did: with twice the
/// rate, twice the share of them. What all cores cannot drive is left out.
void widen(Link& link, bool is_charged, double factor) {
  const double possible = is_charged ? std::max(1.0, std::min(factor, 1 / link.cpu_share)) : factor;
  link.bandwidth = scaled(link.bandwidth, possible);
  link.cpu_share = std::min(1.0, link.cpu_share * possible);
}

/// A change of all links of a tier.
Change of_tier(const std::string& tier, const char* property, const char* by, bool is_marginal,
               const std::function<void(LinkId, Link&)>& change) {
  return {.what = tier + " " + property,
          .by = by,
          .is_marginal = is_marginal,
          .links =
              [tier, change](LinkId id, Link& link) {
                if (tier_of(link) == tier) {
                  change(id, link);
                }
              },
          .device_speed = 1,
          .device_rates = std::nullopt};
}

/// More cores of the same speed, of which one can use the smaller share; and each message takes so
/// much smaller a share of them.
Change more_cores(const Topology& topology, const std::string& tier, const char* by,
                  double factor) {
  return {.what = tier + (tier == "cores" ? "" : " cores"),
          .by = by,
          .is_marginal = factor < 2,
          .links =
              [tier, factor, charged = charged_links(topology, tier)](LinkId id, Link& link) {
                const bool is_processor = link.kind == LinkKind::kShared && tier_of(link) == tier;
                if (is_processor) {
                  link.bandwidth = scaled(link.bandwidth, factor);
                }
                if (is_processor || charged[id.index()]) {
                  link.cpu_share /= factor;
                }
              },
          .device_speed = 1,
          .device_rates = std::nullopt};
}

void add_tiers(const Topology& topology, std::vector<Change>& changes) {
  std::vector<std::string> names;  // in the order of the first link
  std::set<std::string> processors;
  std::set<std::string> without_latency;
  std::set<std::string> shared_by_messages;  // those of which one message takes a part at most
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    const std::string tier = tier_of(link);
    if (std::find(names.begin(), names.end(), tier) == names.end()) {
      names.push_back(tier);
      without_latency.insert(tier);
    }
    if (link.kind == LinkKind::kShared) {
      processors.insert(tier);
    }
    if (link.latency > Duration()) {
      without_latency.erase(tier);
    }
    if (link.flow_bandwidth > Bandwidth(0)) {
      shared_by_messages.insert(tier);
    }
  }
  const auto faster = [charged = charged_links(topology)](double factor) {
    return [charged, factor](LinkId id, Link& link) { widen(link, charged[id.index()], factor); };
  };
  const auto nearer = [](double factor) {
    return [factor](LinkId, Link& link) { link.latency = scaled(link.latency, factor); };
  };
  const auto more_per_message = [](double factor) {
    return
        [factor](LinkId, Link& link) { link.flow_bandwidth = scaled(link.flow_bandwidth, factor); };
  };
  if (names.size() > processors.size() + 1) {
    for (const auto& [by, factor] : {std::pair("+10 %", 1 + kMarginal), std::pair("x2", 2.0)}) {
      changes.push_back({.what = "bandwidth of every link",
                         .by = by,
                         .is_marginal = factor < 2,
                         .breadth = Breadth::kAll,
                         .links =
                             [change = faster(factor)](LinkId id, Link& link) {
                               if (link.kind != LinkKind::kShared) {
                                 change(id, link);
                               }
                             },
                         .device_speed = 1,
                         .device_rates = std::nullopt});
    }
  }
  for (const std::string& tier : names) {
    if (processors.contains(tier)) {
      changes.push_back(more_cores(topology, tier, "+10 %", 1 + kMarginal));
      changes.push_back(more_cores(topology, tier, "x2", 2));
      continue;
    }
    changes.push_back(of_tier(tier, "bandwidth", "+10 %", true, faster(1 + kMarginal)));
    changes.push_back(of_tier(tier, "bandwidth", "x2", false, faster(2)));
    if (shared_by_messages.contains(tier)) {
      changes.push_back(
          of_tier(tier, "rate of one message", "+10 %", true, more_per_message(1 + kMarginal)));
      changes.push_back(of_tier(tier, "rate of one message", "x2", false, more_per_message(2)));
    }
    if (!without_latency.contains(tier)) {
      changes.push_back(of_tier(tier, "latency", "-10 %", true, nearer(1 - kMarginal)));
      changes.push_back(of_tier(tier, "latency", "half", false, nearer(0.5)));
    }
  }
}

void add_device(const Topology& topology, std::vector<Change>& changes,
                std::vector<std::string>& notes) {
  Change speed{.what = "device speed",
               .by = "+10 %",
               .is_marginal = true,
               .links = {},
               .device_speed = 1 + kMarginal,
               .device_rates = std::nullopt};
  changes.push_back(speed);
  speed.by = "x2";
  speed.is_marginal = false;
  speed.device_speed = 2;
  changes.push_back(speed);

  std::set<std::string> classes;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    classes.insert(topology.node(topology.node_of(Rank(r))).device_class);
  }
  if (classes.size() != 1) {
    notes.push_back(
        fmt::format("faster codecs and sums are not tried, as the ranks are of {} device classes",
                    classes.size()));
    return;
  }
  for (const auto& [by, factor] : {std::pair("+10 %", 1 + kMarginal), std::pair("x2", 2.0)}) {
    Change codecs{.what = "codec speed",
                  .by = by,
                  .is_marginal = factor < 2,
                  .links = {},
                  .device_speed = 1,
                  .device_rates = plan::device_rates(topology, Rank(0))};
    Change additions = codecs;
    additions.what = "speed of sums";
    for (plan::CodecRate& rate : codecs.device_rates->codecs) {
      rate = {scaled(rate.encode, factor), scaled(rate.decode, factor)};
    }
    additions.device_rates->reduce = scaled(additions.device_rates->reduce, factor);
    changes.push_back(std::move(codecs));
    changes.push_back(std::move(additions));
  }
}

void add_overhead(const Topology& topology, std::vector<Change>& changes) {
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& with = topology.link(LinkId(i));
    if (with.overhead > Duration() || with.receive_overhead > Duration()) {
      for (const auto& [by, factor] : {std::pair("-10 %", 1 - kMarginal), std::pair("half", 0.5)}) {
        changes.push_back({.what = "message overhead",
                           .by = by,
                           .is_marginal = factor > 0.5,
                           .links =
                               [factor = factor](LinkId, Link& link) {
                                 link.overhead = scaled(link.overhead, factor);
                                 link.receive_overhead = scaled(link.receive_overhead, factor);
                               },
                           .device_speed = 1,
                           .device_rates = std::nullopt});
      }
      return;
    }
  }
}

void add_staging(const Topology& topology, std::vector<Change>& changes) {
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    if (topology.node(topology.node_of(Rank(r))).host_staging == Bandwidth(0)) {
      continue;
    }
    const auto of_ranks = [&](const char* what, const char* by, bool is_marginal, double factor) {
      changes.push_back({.what = what,
                         .by = by,
                         .is_marginal = is_marginal,
                         .links = {},
                         .device_speed = 1,
                         .device_rates = std::nullopt,
                         .ranks = [factor](topology::Node& rank) {
                           rank.host_staging = scaled(rank.host_staging, factor);
                         }});
    };
    of_ranks("host staging", "+10 %", true, 1 + kMarginal);
    of_ranks("host staging", "x2", false, 2);
    of_ranks("host staging", "none (GPUDirect RDMA)", false, 0);
    return;
  }
}

void add_uplinks(const Topology& topology, std::vector<Change>& changes) {
  // Per link the number of links that leave its ToR upwards; 0 for all others. A link between two
  // ToRs counts for the one that it leaves.
  std::vector<std::size_t> ways(topology.link_count());
  std::set<std::size_t> counts;
  for (std::size_t n = 0; n < topology.node_count(); ++n) {
    if (topology.node(NodeId(n)).kind != topology::NodeKind::kTor) {
      continue;
    }
    const auto is_uplink = [&](LinkId link) {
      return topology.link(link).kind == LinkKind::kUplink;
    };
    const auto out = topology.links_out_of(NodeId(n));
    const auto in = topology.links_into(NodeId(n));
    const auto count = static_cast<std::size_t>(std::count_if(out.begin(), out.end(), is_uplink));
    if (count == 0) {
      continue;
    }
    counts.insert(count);
    for (const LinkId link : out) {
      ways[link.index()] = is_uplink(link) ? count : ways[link.index()];
    }
    for (const LinkId link : in) {
      if (is_uplink(link) && ways[link.index()] == 0) {
        ways[link.index()] = count;
      }
    }
  }
  if (counts.empty()) {
    return;
  }
  changes.push_back({.what = "uplinks",
                     .by = counts.size() == 1 ? fmt::format("{} instead of {} per ToR",
                                                            *counts.begin() + 1, *counts.begin())
                                              : "one more per ToR",
                     .is_marginal = false,
                     .links =
                         [ways, charged = charged_links(topology)](LinkId id, Link& link) {
                           if (const auto k = static_cast<double>(ways[id.index()]); k > 0) {
                             widen(link, charged[id.index()], (k + 1) / k);
                           }
                         },
                     .device_speed = 1,
                     .device_rates = std::nullopt});
}

/// A change of these links.
Change of_links(const std::string& what, const char* by, bool is_marginal, Breadth breadth,
                const std::vector<LinkId>& links,
                const std::function<void(LinkId, Link&)>& change) {
  return {
      .what = what,
      .by = by,
      .is_marginal = is_marginal,
      .breadth = breadth,
      .links =
          [meant = std::set<LinkId>(links.begin(), links.end()), change](LinkId id, Link& link) {
            if (meant.contains(id)) {
              change(id, link);
            }
          },
      .device_speed = 1,
      .device_rates = std::nullopt};
}

/// All links from one vertex to another and back.
std::vector<LinkId> cables_beside(const Topology& topology, LinkId one, std::size_t* there) {
  const Link& named = topology.link(one);
  std::vector<LinkId> cables;
  *there = 0;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const Link& link = topology.link(LinkId(i));
    const bool is_there = link.from == named.from && link.to == named.to;
    if (is_there || (link.from == named.to && link.to == named.from)) {
      cables.emplace_back(i);
      *there += is_there ? 1 : 0;
    }
  }
  return cables;
}

}  // namespace

NamedLinks named_links(const Topology& topology, const std::string& name) {
  NamedLinks named{name, topology::links_named(topology, name)};
  if (named.links.empty()) {
    throw ConfigError(
        ErrorContext{"", "link", fmt::format("'{}'", name),
                     "a link of the cluster, such as " + topology.link_name(LinkId(0))});
  }
  if (topology.link(named.links.front()).kind == LinkKind::kShared) {
    throw ConfigError(ErrorContext{"", "link", fmt::format("'{}', the cores of a machine", name),
                                   "a link between machines or switches; more cores are tried "
                                   "without being asked for"});
  }
  if (named.links.size() == 1) {
    named.name = topology.link_name(named.links.front());
  } else {
    const Link& first = topology.link(named.links.front());
    named.name = topology.node(first.from).name + "→" + topology.node(first.to).name;
  }
  return named;
}

std::vector<Change> changes_of_links(const Topology& topology, const NamedLinks& named) {
  std::vector<LinkId> cables = named.links;
  for (const LinkId link : named.links) {
    if (const auto back = topology::way_back(topology, link)) {
      cables.push_back(*back);
    }
  }
  const bool has_back = cables.size() > named.links.size();
  const std::string both = named.name + (has_back ? " and back" : "");
  const Breadth breadth = has_back ? Breadth::kThereAndBack : Breadth::kOne;
  const auto any = [&](const auto& has) {
    return std::any_of(cables.begin(), cables.end(),
                       [&](LinkId id) { return has(topology.link(id)); });
  };
  const auto wider = [charged = charged_links(topology)](double factor) {
    return [charged, factor](LinkId id, Link& link) { widen(link, charged[id.index()], factor); };
  };
  std::vector<Change> changes;
  for (const auto& [by, factor] : {std::pair("+10 %", 1 + kMarginal), std::pair("x2", 2.0)}) {
    const bool is_marginal = factor < 2;
    changes.push_back(of_links(named.name + " bandwidth", by, is_marginal, Breadth::kOne,
                               named.links, wider(factor)));
    if (has_back) {
      changes.push_back(
          of_links(both + " bandwidth", by, is_marginal, breadth, cables, wider(factor)));
    }
    if (any([](const Link& link) { return link.flow_bandwidth > Bandwidth(0); })) {
      changes.push_back(of_links(both + " rate of one message", by, is_marginal, breadth, cables,
                                 [factor = factor](LinkId, Link& link) {
                                   link.flow_bandwidth = scaled(link.flow_bandwidth, factor);
                                 }));
    }
  }
  if (any([](const Link& link) { return link.latency > Duration(); })) {
    for (const auto& [by, factor] : {std::pair("-10 %", 1 - kMarginal), std::pair("half", 0.5)}) {
      changes.push_back(of_links(
          both + " latency", by, factor > 0.5, breadth, cables,
          [factor = factor](LinkId, Link& link) { link.latency = scaled(link.latency, factor); }));
    }
  }
  std::size_t there = 0;
  const std::vector<LinkId> beside = cables_beside(topology, named.links.front(), &there);
  const Link& first = topology.link(named.links.front());
  const auto k = static_cast<double>(there);
  changes.push_back(of_links(
      fmt::format("cables {}↔{}", topology.node(first.from).name, topology.node(first.to).name), "",
      false, breadth, beside, wider((k + 1) / k)));
  changes.back().by = fmt::format("{} instead of {}", there + 1, there);
  return changes;
}

std::vector<Change> changes_of(const Topology& topology, std::vector<std::string>& notes) {
  std::vector<Change> changes;
  add_tiers(topology, changes);
  add_uplinks(topology, changes);
  add_overhead(topology, changes);
  add_staging(topology, changes);
  add_device(topology, changes, notes);
  return changes;
}

}  // namespace rackrail::explore

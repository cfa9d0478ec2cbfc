// Ring collectives, with one ring for each NIC of a host, as NCCL has its channels.
//
// A ring passes all ranks of a host and then those of the next one. Parts of the buffer travel once
// around to be summed and once more to be copied: every rank sends 2(n−1)/n of what the ring
// carries to one neighbour only, which is the least that is possible without reduction in the
// network; latency grows with n. Where hosts have several NICs, ring c enters a host at NIC c and
// leaves it at the NIC before, in every second host the other way round: so the hop from one host
// to the next stays on its rail, and each NIC has one ring in and one out. Hosts that share an
// NVSwitch need one ring only.
//
// A single ring has a chunk for each rank. Of several each has a few for each host, whose slices
// follow one another through the host (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009, have the former).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/disjoint_sets.hpp"
#include "planner/algorithms/exchange.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kOneRound[] = {1};
// Of several rings. More fill links sooner, slices of few as soon, at as many messages.
constexpr std::size_t kMostChunksOfHost = 4;
// Beyond, one ring by formulas is looked at instead of one for each NIC.
constexpr std::uint64_t kMostTransfersOfRings = kMostPlannedTransfers / 2;

/// Ranks of hosts, in near order.
std::vector<std::vector<Rank>> hosts_in_order(const topology::Topology& topology) {
  std::vector<std::vector<Rank>> hosts;
  for (const Rank rank : near_order(topology)) {
    const auto host = [&](Rank of) { return topology.node(topology.node_of(of)).host; };
    if (hosts.empty() || host(rank).empty() || host(rank) != host(hosts.back().back())) {
      hosts.emplace_back();
    }
    hosts.back().push_back(rank);
  }
  return hosts;
}

/// How many adapters each host has, at least; no more than ranks.
std::size_t fewest_nics(const topology::Topology& topology,
                        const std::vector<std::vector<Rank>>& hosts) {
  std::map<std::string, std::size_t> nics;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (const topology::Node& node = topology.node(NodeId(v));
        node.kind == topology::NodeKind::kNic) {
      ++nics[node.host];
    }
  }
  std::size_t fewest = SIZE_MAX;
  for (const std::vector<Rank>& host : hosts) {
    fewest = std::min({fewest, host.size(), nics[topology.node(topology.node_of(host[0])).host]});
  }
  return fewest;
}

/// Whether all ranks are joined by NVLink, also across hosts, so that no NIC is on their ways.
bool is_one_nvlink_domain(const topology::Topology& topology) {
  DisjointSets joined(topology.node_count());
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    const topology::Link& link = topology.link(LinkId(l));
    if (link.kind == topology::LinkKind::kNvlink) {
      joined.join(link.from.value(), link.to.value());
    }
  }
  const std::uint32_t first = joined.find(topology.node_of(Rank(0)).value());
  for (std::size_t r = 1; r < topology.rank_count(); ++r) {
    if (joined.find(topology.node_of(Rank(r)).value()) != first) {
      return false;
    }
  }
  return true;
}

struct Rings {
  std::vector<std::vector<Rank>> orders;
  std::size_t chunks = 0;  ///< of each
};

Rings rings_of(const topology::Topology& topology) {
  const std::vector<std::vector<Rank>> hosts = hosts_in_order(topology);
  const std::size_t ranks = topology.rank_count();
  std::size_t largest = 0;
  for (const std::vector<Rank>& host : hosts) {
    largest = std::max(largest, host.size());
  }
  std::size_t count =
      hosts.size() < 2 || is_one_nvlink_domain(topology) ? 1 : fewest_nics(topology, hosts);
  const std::size_t chunks = hosts.size() * std::min(largest, kMostChunksOfHost);
  if (count < 2 || count * chunks * 2 * (ranks - 1) > kMostTransfersOfRings) {
    count = 1;
  }
  Rings rings;
  rings.chunks = count > 1 ? chunks : ranks;
  for (std::size_t c = 0; c < count; ++c) {
    std::vector<Rank>& order = rings.orders.emplace_back();
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      std::vector<Rank> host = hosts[h];
      std::ranges::rotate(host,
                          host.begin() + static_cast<std::ptrdiff_t>(c * host.size() / count));
      if (h % 2 == 1) {
        std::ranges::reverse(host);
      }
      order.insert(order.end(), host.begin(), host.end());
    }
  }
  return rings;
}

Exchange exchange_of(const Rings& rings) {
  const std::size_t count = rings.orders.size();
  Exchange exchange{"ring", count > 1 ? fmt::format("{} rings, one per NIC", count) : "", {}};
  for (const std::vector<Rank>& order : rings.orders) {
    const auto chunks = static_cast<std::uint32_t>(rings.chunks);
    exchange.parts.push_back(
        {RankHierarchy(order, {}), {{.way = Way::kRing, .values = chunks}}, {}, {}});
  }
  return exchange;
}

class Ring final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "ring"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    return refuse_exchange(topology, codecs);
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const Rings rings = rings_of(topology);
    const std::uint64_t transfers =
        rings.orders.size() * rings.chunks * 2 * (topology.rank_count() - 1);
    return {transfers, transfers};
  }

  std::unique_ptr<plan::RegularSchedule> regular_all_reduce(
      const topology::Topology& topology) const override {
    Rings rings = rings_of(topology);
    return rings.orders.size() > 1 ? nullptr
                                   : plan::make_ring_schedule(std::move(rings.orders.front()));
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return make_exchange(exchange_of(rings_of(request.topology)), plan::Collective::kAllReduce,
                         request);
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    if (what == plan::Collective::kAllReduce) {
      return ScheduleFamily::collectives(what, request);
    }
    Rings rings = rings_of(request.topology);
    rings.chunks = request.topology.rank_count();  // each rank owns a part
    if (auto forms = exchange_forms(exchange_of(rings), what, request, kOneRound); !forms.empty()) {
      return forms;
    }
    rings.orders.resize(1);
    return exchange_forms(exchange_of(rings), what, request, kOneRound);
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_ring() { return std::make_unique<Ring>(); }

}  // namespace rackrail::planner

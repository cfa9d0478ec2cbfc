// Ring collectives, with one ring for each NIC of a host, as NCCL has its channels.
//
// A ring passes all ranks of a host and then those of the next one. Parts of the buffer travel once
// around to be summed and once more to be copied: every rank sends 2(n−1)/n of what the ring
// carries to one neighbour only, which is the least that is possible without reduction in the
// network; latency grows with n. Where hosts have several NICs, ring c enters a host at NIC c and
// leaves it at the NIC before, in every second host the other way round: so the hop from one host
// to the next stays on its rail, and each NIC has one ring in and one out.
//
// A single ring has a chunk for each rank. Of several each has one for each host, whose slices
// follow one another through the host (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", J. Parallel Distrib. Comput. 69, 2009, have the former).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <vector>

#include "planner/algorithms/exchange.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"
#include "topology/attachments.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kOneRound[] = {1};
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

/// By NIC of a host, in near order, the place of the first rank that is nearest to it.
std::vector<std::size_t> first_at_nics(std::span<const Rank> host,
                                       const std::vector<topology::Attachment>& attached) {
  std::set<NodeId> seen;
  std::vector<std::size_t> first;
  for (std::size_t i = 0; i < host.size(); ++i) {
    const auto& nic = attached[host[i].index()].nic;
    if (nic && seen.insert(*nic).second) {
      first.push_back(i);
    }
  }
  return first;
}

struct Rings {
  std::vector<std::vector<Rank>> orders;
  std::size_t hosts = 0;
};

Rings rings_of(const topology::Topology& topology) {
  const std::vector<std::vector<Rank>> hosts = hosts_in_order(topology);
  const std::vector<topology::Attachment> attached = topology::attachments(topology);
  std::vector<std::vector<std::size_t>> nics;
  std::size_t count = SIZE_MAX;
  for (const std::vector<Rank>& host : hosts) {
    nics.push_back(first_at_nics(host, attached));
    count = std::min(count, nics.back().size());
  }
  const std::uint64_t ranks = topology.rank_count();
  if (hosts.size() < 2 || count * hosts.size() * 2 * (ranks - 1) > kMostTransfersOfRings) {
    count = 1;
  }
  Rings rings;
  rings.hosts = hosts.size();
  for (std::size_t c = 0; c < std::max<std::size_t>(count, 1); ++c) {
    std::vector<Rank>& order = rings.orders.emplace_back();
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      std::vector<Rank> host = hosts[h];
      if (count > 1) {
        const std::size_t first = nics[h][c * nics[h].size() / count];
        std::ranges::rotate(host, host.begin() + static_cast<std::ptrdiff_t>(first));
      }
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
    const auto chunks = static_cast<std::uint32_t>(count > 1 ? rings.hosts : order.size());
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
    const std::uint64_t ranks = topology.rank_count();
    const std::uint64_t chunks = rings.orders.size() > 1 ? rings.hosts : ranks;
    const std::uint64_t transfers = rings.orders.size() * 2 * chunks * (ranks - 1);
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
    rings.hosts = request.topology.rank_count();  // each rank owns a part
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

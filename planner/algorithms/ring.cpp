// Ring all-reduce: n chunks travel once around to be summed and once more to be copied.
//
// The sum of chunk c starts at position c and is whole at position c−1 after n−1 hops; n−1 more
// hops copy it to everyone. Every rank sends 2(n−1)/n of the buffer to one neighbour only, which is
// the least that is possible without reduction in the network; latency grows with n.
#include <algorithm>
#include <iterator>

#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

/// Near order with every second host backwards: where hosts have a rail per device, the hop from
/// one host to the next then stays on its rail.
std::vector<Rank> ring_order(const topology::Topology& topology) {
  std::vector<Rank> order = near_order(topology);
  const auto host = [&](Rank rank) { return topology.node(topology.node_of(rank)).host; };
  bool is_odd = false;
  for (auto begin = order.begin(); begin != order.end(); is_odd = !is_odd) {
    const auto end = std::find_if(begin, order.end(), [&, name = host(*begin)](Rank rank) {
      return name.empty() || host(rank) != name;
    });
    const auto next = end == begin ? std::next(begin) : end;  // a rank without a host is alone
    if (is_odd) {
      std::reverse(begin, next);
    }
    begin = next;
  }
  return order;
}

class Ring final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "ring"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    return refuse_exchange(topology, codecs);
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    return exchange_size(topology.rank_count());
  }

  std::unique_ptr<plan::RegularSchedule> regular_all_reduce(
      const topology::Topology& topology) const override {
    return plan::make_ring_schedule(ring_order(topology));
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return build(*regular_all_reduce(request.topology), request);
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    if (what == plan::Collective::kAllReduce) {
      return ScheduleFamily::collectives(what, request);
    }
    const bool gathers = what == plan::Collective::kAllGather;
    const std::vector<Rank> order = ring_order(request.topology);
    const auto n = static_cast<std::uint32_t>(order.size());
    GraphBuilder builder(std::string(name()), request, std::vector<std::uint32_t>(n, 1), what);
    // Every hop passes on what the hop before brought: copies of the part that the sender's
    // neighbour sent, or sums that end one position before the one that they began at.
    std::vector<std::vector<TransferId>> before(n);  // by chunk
    for (std::uint32_t hop = 0; hop + 1 < n; ++hop) {
      for (std::uint32_t at = 0; at < n; ++at) {
        const std::uint32_t chunk = (at + n - hop) % n;
        const Rank src = order[at];
        const Rank dst = order[(at + 1) % n];
        const TransferId id = gathers ? builder.copy(src, dst, {chunk, 1}, before[chunk])
                                      : builder.reduce(src, dst, {chunk, 1}, before[chunk]);
        before[chunk] = {id};
      }
    }
    std::vector<Rank> owners;
    for (std::uint32_t chunk = 0; chunk < n; ++chunk) {
      owners.push_back(order[gathers ? chunk : (chunk + n - 1) % n]);
    }
    plan::TransferGraph graph = builder.take();
    graph.set_owners(std::move(owners));
    std::vector<CollectiveForm> forms;
    forms.emplace_back(std::move(graph), request.topology);
    return forms;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_ring() { return std::make_unique<Ring>(); }

}  // namespace rackrail::planner

// Ring all-reduce: n chunks travel once around to be summed and once more to be copied.
//
// The sum of chunk c starts at position c and is whole at position c−1 after n−1 hops; n−1 more
// hops copy it to everyone. Every rank sends 2(n−1)/n of the buffer to one neighbour only, which is
// the least that is possible without reduction in the network; latency grows with n.
#include <algorithm>
#include <iterator>

#include "planner/algorithms/exchange.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kOneRound[] = {1};

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
    return exchange_forms(
        {std::string(name()),
         "",
         {{RankHierarchy(ring_order(request.topology), {}), {{Way::kRing, 0}}, {}, {}}}},
        what, request, kOneRound);
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_ring() { return std::make_unique<Ring>(); }

}  // namespace rackrail::planner

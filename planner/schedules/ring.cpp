// Ring all-reduce: n chunks travel once around to be summed and once more to be copied.
//
// The sum of chunk c starts at position c and is whole at position c−1 after n−1 hops; n−1 more
// hops copy it to everyone. Every rank sends 2(n−1)/n of the buffer to one neighbour only, which is
// the least that is possible without reduction in the network; latency grows with n.
#include <algorithm>
#include <iterator>

#include "planner/schedules/builder.hpp"

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
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    return refuse_lossy_hops(codecs);
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const std::vector<Rank> order = ring_order(request.topology);
    const std::size_t n = order.size();
    GraphBuilder builder("ring", request, std::vector<std::uint32_t>(n, 1));
    std::vector<TransferId> last(n);  // of each chunk
    for (std::size_t step = 0; step < 2 * (n - 1); ++step) {
      for (std::size_t chunk = 0; chunk < n; ++chunk) {
        const Rank src = order[(chunk + step) % n];
        const Rank dst = order[(chunk + step + 1) % n];
        const GraphBuilder::Range range{static_cast<std::uint32_t>(chunk), 1};
        const std::span<const TransferId> after(&last[chunk], step == 0 ? 0 : 1);
        last[chunk] = step < n - 1 ? builder.reduce(src, dst, range, after)
                                   : builder.copy(src, dst, range, after);
      }
    }
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_ring() { return std::make_unique<Ring>(); }

}  // namespace rackrail::planner

// Parameter server on the workers themselves: each rank sums one share and sends it back.
//
// Rank s serves chunk s: all others send it their part (one hop), it adds them up and copies the
// sum back. Every rank sends and receives 2(n−1)/n of the buffer, as in a ring, but each
// contribution is encoded once and each sum once, so 8-bit codes and top-k are possible; latency
// does not grow with n. Shares are those that balance the links
// (planner/algorithms/server_shares.hpp).
#include "planner/algorithms/server_shares.hpp"
#include "planner/groups/rank_groups.hpp"

#include "planner/algorithms/families.hpp"

namespace rackrail::planner {

namespace {

class ParameterServer final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "parameter-server"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() < 2) {
      return "one rank alone has nothing to exchange";
    }
    if (!(codecs.inside == codecs.across)) {
      return "a sum is sent once to everyone, so it takes one codec for all of them";
    }
    return std::nullopt;
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    return exchange_size(topology.rank_count());
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const std::size_t n = request.topology.rank_count();
    GraphBuilder builder("parameter-server", request,
                         server_shares(request.topology, request.router));
    const std::vector<Rank> order = near_order(request.topology);
    std::vector<std::vector<TransferId>> into(n);  // contributions to the server at each position
    // Offset by offset, so that at no time all ranks send to the same server.
    for (std::size_t offset = 1; offset < n; ++offset) {
      for (std::size_t src = 0; src < n; ++src) {
        const std::size_t at = (src + offset) % n;
        const Rank server = order[at];
        into[at].push_back(builder.reduce(order[src], server, {server.value(), 1}, {}));
      }
    }
    std::vector<TransferId> first(n);
    for (std::size_t offset = 1; offset < n; ++offset) {
      for (std::size_t at = 0; at < n; ++at) {
        const Rank server = order[at];
        const Rank dst = order[(at + offset) % n];
        const GraphBuilder::Range range{server.value(), 1};
        // The first copy waits for all contributions; the others leave once it has left.
        if (offset == 1) {
          first[at] = builder.copy(server, dst, range, into[at]);
        } else {
          builder.copy(server, dst, range, {&first[at], 1});
        }
      }
    }
    return builder.take();
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_parameter_server() {
  return std::make_unique<ParameterServer>();
}

}  // namespace rackrail::planner

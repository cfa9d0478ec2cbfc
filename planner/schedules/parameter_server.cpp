// Parameter server on the workers themselves: each rank sums one share and sends it back.
//
// Rank s serves chunk s: all others send it their part (one hop), it adds them up and copies the
// sum back. Every rank sends and receives 2(n−1)/n of the buffer, as in a ring, but each
// contribution is encoded once and each sum once, so 8-bit codes and top-k are possible; latency
// does not grow with n. Shares are in proportion to what the way into each rank can carry, so that
// no server is the bottleneck (BytePS, OSDI 2020, for the case without extra servers).
#include <algorithm>
#include <cmath>

#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

namespace {

constexpr double kWeightScale = 64;

// What a rank alone can take in: the narrowest link on the widest way from another group, or from
// anyone where there is one group.
std::vector<std::uint32_t> shares(const ScheduleRequest& request) {
  const std::size_t n = request.topology.rank_count();
  std::vector<double> rates(n, 0);
  double fastest = 0;
  for (std::size_t r = 0; r < n; ++r) {
    const std::size_t probes = std::min<std::size_t>(n - 1, 16);
    for (std::size_t i = 1; i <= probes; ++i) {
      const std::size_t other = (r + i * std::max<std::size_t>(1, n / (probes + 1))) % n;
      if (other != r) {
        const auto& route = request.router.route(Rank(other), Rank(r));
        // The last link is the rank's own; shared links further away are the same for all shares.
        const double rate =
            static_cast<double>(request.topology.link(route.back()).bandwidth.bytes_per_second());
        rates[r] = std::max(rates[r], rate);
      }
    }
    fastest = std::max(fastest, rates[r]);
  }
  std::vector<std::uint32_t> weights;
  for (const double rate : rates) {
    weights.push_back(
        std::max(1U, static_cast<std::uint32_t>(std::lround(kWeightScale * rate / fastest))));
  }
  if (std::all_of(weights.begin(), weights.end(), [&](auto w) { return w == weights[0]; })) {
    weights.assign(n, 1);
  }
  return weights;
}

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
    GraphBuilder builder("parameter-server", request, shares(request));
    std::vector<std::vector<TransferId>> into(n);  // contributions to each server
    // Offset by offset, so that at no time all ranks send to the same server.
    for (std::size_t offset = 1; offset < n; ++offset) {
      for (std::size_t src = 0; src < n; ++src) {
        const std::size_t server = (src + offset) % n;
        into[server].push_back(
            builder.reduce(Rank(src), Rank(server), {static_cast<std::uint32_t>(server), 1}, {}));
      }
    }
    std::vector<TransferId> first(n);
    for (std::size_t offset = 1; offset < n; ++offset) {
      for (std::size_t server = 0; server < n; ++server) {
        const Rank dst((server + offset) % n);
        const GraphBuilder::Range range{static_cast<std::uint32_t>(server), 1};
        // The first copy waits for all contributions; the others leave once it has left.
        if (offset == 1) {
          first[server] = builder.copy(Rank(server), dst, range, into[server]);
        } else {
          builder.copy(Rank(server), dst, range, {&first[server], 1});
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

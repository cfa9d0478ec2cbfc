#include "planner/pipeline/recode.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/changed_graph.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/builder.hpp"

namespace rackrail::planner {

plan::TransferGraph recoded(const plan::TransferGraph& graph, const topology::Topology& topology,
                            const TierCodecs& codecs) {
  std::vector<plan::RatedRoute> routes = plan::rated_routes(graph);
  if (codecs.inside != codecs.across) {  // so do the shares of the links that rates were made for
    for (plan::RatedRoute& route : routes) {
      route.rate = {};
    }
  }
  const std::vector<std::uint32_t> groups = tier_group_by_rank(topology);
  const auto is_inside = [&](const plan::Transfer& transfer) {
    return groups[transfer.src.index()] == groups[transfer.dst.index()];
  };
  return plan::with_codecs_and_routes(
      graph, std::array{codecs.inside, codecs.across},
      [&](const plan::Transfer& transfer) -> std::uint8_t { return is_inside(transfer) ? 0 : 1; },
      std::move(routes));
}

}  // namespace rackrail::planner

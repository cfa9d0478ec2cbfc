#include "tests/support/best_collective.hpp"

#include <optional>
#include <utility>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/candidates.hpp"
#include "sim/simulator.hpp"
#include "topology/queries.hpp"

namespace rackrail::test {

BestCollective best_collective(const topology::Topology& topology, plan::Collective what,
                               std::int64_t elements, std::string_view family) {
  const auto costs = sim::make_cost_model(topology, {});
  std::optional<planner::FastestCollective> best;
  BestCollective result;
  for (const auto& one : planner::schedule_families()) {
    if ((!family.empty() && one->name() != family) || planner::graph_refusal(*one, topology, {})) {
      continue;
    }
    auto found = planner::fastest_collective(
        *one,
        {.what = what, .elements = elements, .topology = topology, .codecs = {}, .costs = *costs},
        best ? std::optional(best->time) : std::nullopt);
    if (found) {
      best = std::move(found);
      result.family = one->name();
    }
  }
  result.found = std::move(best).value();
  result.time = sim::simulate_collective(*result.found.graph, elements, result.found.slice_elements,
                                         topology, {})
                    .time;
  constexpr double kBytesPerElement = 4;
  const Optimum optimum = optimum_of(topology, what);
  result.may_be_out_of_reach = optimum.may_be_out_of_reach;
  result.over_optimum = result.time.seconds() *
                        static_cast<double>(optimum.algbw.bytes_per_second()) /
                        (kBytesPerElement * static_cast<double>(elements));
  return result;
}

Optimum optimum_of(const topology::Topology& topology, plan::Collective what) {
  const auto of = [](const auto& bound) { return Optimum{bound.algbw, bound.may_be_out_of_reach}; };
  switch (what) {
    case plan::Collective::kAllReduce:
      return of(planner::network_bound(topology));
    case plan::Collective::kReduceScatter:
      return of(topology::reducescatter_bound(topology));
    case plan::Collective::kAllGather:
      break;
  }
  return of(topology::allgather_bound(topology));
}

}  // namespace rackrail::test

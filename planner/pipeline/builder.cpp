#include "planner/pipeline/builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/work.hpp"
#include "planner/groups/many_ranks.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

GraphBuilder::GraphBuilder(std::string name, const ScheduleRequest& request,
                           std::vector<std::uint32_t> chunk_weights, plan::Collective collective)
    : request_(request),
      graph_(std::move(name), collective, request.topology.rank_count(), std::move(chunk_weights)),
      group_of_(tier_group_by_rank(request.topology)) {
  inside_ = graph_.add_codec(request.codecs.inside);
  across_ = graph_.add_codec(request.codecs.across);
}

RouteId GraphBuilder::route(Rank src, Rank dst) {
  const std::uint64_t key = (static_cast<std::uint64_t>(src.value()) << 32U) | dst.value();
  const auto known = routes_.find(key);
  if (known != routes_.end()) {
    return known->second;
  }
  const RouteId id = graph_.add_route(request_.router.route(src, dst));
  pairs_.push_back({src, dst, id});
  return routes_.emplace(key, id).first->second;
}

TransferId GraphBuilder::add(plan::TransferOp op, Rank src, Rank dst, Range range,
                             std::span<const TransferId> after, RouteId route) {
  Work::step();
  const bool inside = group_of_[src.index()] == group_of_[dst.index()];
  return graph_.add_transfer({.src = src,
                              .dst = dst,
                              .chunk_begin = range.begin,
                              .chunk_count = range.count,
                              .op = op,
                              .codec = inside ? inside_ : across_,
                              .route = route},
                             after);
}

TransferId GraphBuilder::add(plan::TransferOp op, Rank src, Rank dst, Range range,
                             std::span<const TransferId> after, const topology::Route& route,
                             Bandwidth rate) {
  auto known = own_routes_.find({route, rate});
  if (known == own_routes_.end()) {
    known = own_routes_.emplace(std::pair(route, rate), graph_.add_route(route, rate)).first;
  }
  return add(op, src, dst, range, after, known->second);
}

TransferId GraphBuilder::reduce(Rank src, Rank dst, Range range,
                                std::span<const TransferId> after) {
  return add(plan::TransferOp::kReduce, src, dst, range, after, route(src, dst));
}

TransferId GraphBuilder::copy(Rank src, Rank dst, Range range, std::span<const TransferId> after) {
  return add(plan::TransferOp::kCopy, src, dst, range, after, route(src, dst));
}

plan::TransferGraph GraphBuilder::take() {
  if (request_.topology.rank_count() >= kVeryManyRanks) {
    return std::move(graph_);
  }
  return with_balanced_routes(std::move(graph_), pairs_, request_.topology, request_.router);
}

plan::TransferGraph GraphBuilder::take(std::vector<Rank> owners) {
  plan::TransferGraph graph = take();
  if (graph.collective() != plan::Collective::kAllReduce) {
    graph.set_owners(std::move(owners));
  }
  return graph;
}

void GraphBuilder::add_all(const plan::RegularSchedule& schedule) {
  const std::vector<plan::RegularSchedule::Lane> lanes = schedule.lanes();
  std::vector<TransferId> ids;
  std::vector<TransferId> after;
  for (const plan::ListedStep& listed : plan::list_steps(schedule)) {
    after.clear();
    for (const std::uint32_t dependency : listed.dependencies) {
      after.push_back(ids[dependency]);
    }
    const plan::RegularSchedule::Lane& lane = lanes[listed.place.lane];
    ids.push_back(add(listed.step.op, lane.src, lane.dst,
                      {listed.step.chunk_begin, listed.step.chunk_count}, after,
                      route(lane.src, lane.dst)));
  }
}

plan::TransferGraph build(const plan::RegularSchedule& schedule, const ScheduleRequest& request) {
  GraphBuilder builder(schedule.name(), request,
                       std::vector<std::uint32_t>(schedule.chunk_count(), 1));
  builder.add_all(schedule);
  return builder.take();
}

}  // namespace rackrail::planner

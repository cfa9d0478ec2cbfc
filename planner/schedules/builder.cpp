#include "planner/schedules/builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/work.hpp"
#include "planner/candidates.hpp"
#include "topology/attachments.hpp"

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

Rank member_on_line(const topology::RankGroup& group, std::size_t line) {
  return group.ranks[line % group.ranks.size()];
}

std::vector<std::uint32_t> tier_group_by_rank(const topology::Topology& topology) {
  std::vector<std::uint32_t> group_of(topology.rank_count());
  const auto groups = tier_groups(topology);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const Rank rank : groups[g].ranks) {
      group_of[rank.index()] = static_cast<std::uint32_t>(g);
    }
  }
  return group_of;
}

std::vector<Rank> near_order(const topology::Topology& topology) {
  std::vector<std::uint32_t> rack(topology.rank_count());
  std::vector<std::uint32_t> host(topology.rank_count());
  const auto number = [](const std::vector<topology::RankGroup>& groups,
                         std::vector<std::uint32_t>& numbers) {
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (const Rank rank : groups[g].ranks) {
        numbers[rank.index()] = static_cast<std::uint32_t>(g);
      }
    }
  };
  number(topology::ranks_by_rack(topology), rack);
  number(topology::ranks_by_host(topology), host);
  const std::vector<topology::Attachment> attached = topology::attachments(topology);
  std::vector<Rank> order;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    order.emplace_back(r);
  }
  std::stable_sort(order.begin(), order.end(), [&](Rank a, Rank b) {
    return std::tie(rack[a.index()], host[a.index()], attached[a.index()]) <
           std::tie(rack[b.index()], host[b.index()], attached[b.index()]);
  });
  return order;
}

GraphSize exchange_size(std::uint64_t ranks) {
  const std::uint64_t movements = 2 * ranks * (ranks - 1);
  return {movements, movements};
}

bool survives_many_hops(const plan::Codec& codec) { return codec.survives_many_hops(); }

std::optional<std::string> refuse_lossy_hops(const TierCodecs& codecs) {
  for (const plan::Codec& codec : {codecs.inside, codecs.across}) {
    if (!survives_many_hops(codec)) {
      return fmt::format("partial sums take several hops, and {} would add its error at each",
                         plan::to_string(codec));
    }
  }
  // One version of a chunk in two codecs would leave ranks with different bits.
  if (!(codecs.inside == codecs.across)) {
    return "it crosses tiers in both directions, so it takes one codec for all of them";
  }
  return std::nullopt;
}

std::optional<std::string> refuse_exchange(const topology::Topology& topology,
                                           const TierCodecs& codecs) {
  if (topology.rank_count() < 2) {
    return "one rank alone has nothing to exchange";
  }
  return refuse_lossy_hops(codecs);
}

std::optional<std::string> refuse_no_tiers(const std::vector<topology::RankGroup>& groups) {
  if (groups.size() < 2) {
    return "there is one group of ranks only";
  }
  if (std::all_of(groups.begin(), groups.end(),
                  [](const topology::RankGroup& group) { return group.ranks.size() < 2; })) {
    return "no host or rack has several ranks, as far as the cluster's file names them; in an edge "
           "list, a table 'vertex,role,host' does";
  }
  return std::nullopt;
}

std::optional<std::string> refuse_uneven_groups(const topology::Topology& topology) {
  const auto groups = tier_groups(topology);
  if (auto refusal = refuse_no_tiers(groups)) {
    return refusal;
  }
  for (const auto& group : groups) {
    if (group.ranks.size() != groups[0].ranks.size()) {
      return fmt::format("groups differ in size: {} has {} ranks, {} has {}", groups[0].name,
                         groups[0].ranks.size(), group.name, group.ranks.size());
    }
  }
  return std::nullopt;
}

}  // namespace rackrail::planner

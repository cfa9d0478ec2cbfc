#include "planner/replan/link_map.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace rackrail::planner {

namespace {

using MapRoute = std::function<std::vector<LinkId>(const plan::Transfer&)>;

RouteId add_mapped(const plan::TransferGraph& graph, const plan::Transfer& transfer,
                   const LinkMap& links, std::vector<LinkId> mapped, plan::TransferGraph& result) {
  const std::vector<LinkId>& before = graph.routes()[transfer.route.index()];
  const bool is_the_same =
      std::equal(before.begin(), before.end(), mapped.begin(), mapped.end(),
                 [&](LinkId was, LinkId is) { return links.now(was) == std::optional(is); });
  return result.add_route(std::move(mapped),
                          is_the_same ? graph.rate(transfer.route) : Bandwidth{});
}

/// The graph with other routes; `map` is asked once for each route that a transfer uses. Who keeps
/// his way keeps his rate, though a link of it is another: of trees that share links, one without a
/// rate would take from all others.
plan::TransferGraph with_routes(const plan::TransferGraph& graph, const LinkMap& links,
                                const MapRoute& map) {
  const auto weights = graph.chunk_weights();
  plan::TransferGraph result(graph.name(), graph.collective(), graph.rank_count(),
                             {weights.begin(), weights.end()});
  result.set_mechanism(graph.mechanism());
  for (const plan::Codec& codec : graph.codecs()) result.add_codec(codec);
  if (!graph.owners().empty()) {
    result.set_owners({graph.owners().begin(), graph.owners().end()});
  }
  std::vector<std::optional<RouteId>> route_of(graph.routes().size());
  for (std::size_t t = 0; t < graph.transfers().size(); ++t) {
    plan::Transfer transfer = graph.transfers()[t];
    auto& route = route_of[transfer.route.index()];
    if (!route) {
      route = graph.routes()[transfer.route.index()].empty()
                  ? RouteId(0)
                  : add_mapped(graph, transfer, links, map(transfer), result);
    }
    transfer.codec = result.add_codec(graph.codecs()[transfer.codec]);
    transfer.route = *route;
    result.add_transfer(transfer, graph.dependencies(TransferId(t)));
  }
  result.add_mutual_sums_of(graph);
  return result;
}

/// The groups of `from` whose members' routes are all as they were.
void keep_groups(const plan::TransferGraph& from, const LinkMap& links, plan::TransferGraph& to) {
  for (const plan::TransferGroup& group : from.groups()) {
    const auto members = from.transfers().subspan(group.first.index(), group.count);
    if (std::none_of(members.begin(), members.end(), [&](const plan::Transfer& transfer) {
          return links.uses_changed(from.routes()[transfer.route.index()]);
        })) {
      to.add_group(group.first, group.count);
    }
  }
}

}  // namespace

LinkMap::LinkMap(std::size_t link_count, std::span<const LinkChange> changes)
    : is_changed_(link_count) {
  std::vector<bool> is_lost(link_count);
  for (const LinkChange& change : changes) {
    is_changed_[change.link.index()] = true;
    is_lost[change.link.index()] = !change.bandwidth;
  }
  std::size_t next = 0;
  for (std::size_t l = 0; l < link_count; ++l) {
    now_.push_back(is_lost[l] ? std::nullopt : std::optional(LinkId(next++)));
  }
}

bool LinkMap::uses_changed(std::span<const LinkId> route) const {
  return std::any_of(route.begin(), route.end(), [&](LinkId l) { return is_changed(l); });
}

bool LinkMap::uses_lost(std::span<const LinkId> route) const {
  return std::any_of(route.begin(), route.end(), [&](LinkId l) { return !now(l); });
}

bool touches(const plan::TransferGraph& graph, const LinkMap& links) {
  return std::any_of(graph.routes().begin(), graph.routes().end(),
                     [&](const auto& route) { return links.uses_changed(route); });
}

Rerouted rerouted(const plan::TransferGraph& graph, const LinkMap& links,
                  topology::Router& router) {
  Rerouted result;
  result.graph = with_routes(graph, links, [&](const plan::Transfer& transfer) {
    const std::vector<LinkId>& route = graph.routes()[transfer.route.index()];
    std::vector<LinkId> same;
    for (const LinkId link : route) {
      if (links.now(link)) same.push_back(*links.now(link));
    }
    if (!links.uses_changed(route)) {
      return same;
    }
    constexpr std::size_t kMostEqualRoutes = 64;
    if (same.size() == route.size()) {  // what was chosen among equal ones stays, where it is one
      const auto equal = router.equal_routes(transfer.src, transfer.dst, kMostEqualRoutes);
      if (std::ranges::find(equal, same) != equal.end()) {
        return same;
      }
    }
    std::vector<LinkId> other = router.route(transfer.src, transfer.dst);
    result.routes += same.size() != route.size() || other != same ? 1 : 0;
    return other;
  });
  keep_groups(graph, links, result.graph);
  return result;
}

std::optional<plan::TransferGraph> renumbered(const plan::TransferGraph& graph,
                                              const LinkMap& links) {
  for (const auto& route : graph.routes()) {
    if (links.uses_lost(route)) return std::nullopt;
  }
  plan::TransferGraph result = with_routes(graph, links, [&](const plan::Transfer& transfer) {
    std::vector<LinkId> same;
    for (const LinkId link : graph.routes()[transfer.route.index()]) {
      same.push_back(links.now(link).value());
    }
    return same;
  });
  result.add_groups_of(graph);
  return result;
}

Bytes bytes_over(const plan::Plan& plan, const std::vector<bool>& counts) {
  Bytes total;
  for (const plan::Bucket& bucket : plan.buckets) {
    const plan::TransferGraph& graph = plan.schedules[bucket.schedule];
    std::vector<std::int64_t> uses;  // by route
    for (const auto& route : graph.routes()) {
      uses.push_back(
          std::count_if(route.begin(), route.end(), [&](LinkId l) { return counts[l.index()]; }));
    }
    for (const plan::Transfer& transfer : graph.transfers()) {
      if (uses[transfer.route.index()] > 0) {
        const std::int64_t elements = graph.range(transfer, bucket.elements).size();
        total += plan::encoded_size(graph.codecs()[transfer.codec], elements) *
                 uses[transfer.route.index()];
      }
    }
  }
  return total;
}

}  // namespace rackrail::planner

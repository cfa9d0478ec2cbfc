#include "plan/changed_graph.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "base/error.hpp"

namespace rackrail::plan {

namespace {

/// The same chunks and owners, and no transfers yet.
TransferGraph without_transfers(const TransferGraph& graph) {
  const auto weights = graph.chunk_weights();
  TransferGraph result(graph.name(), graph.collective(), graph.rank_count(),
                       {weights.begin(), weights.end()});
  result.set_mechanism(graph.mechanism());
  if (!graph.owners().empty()) {
    result.set_owners({graph.owners().begin(), graph.owners().end()});
  }
  return result;
}

/// Its transfers, each as `changed` makes it, and its groups.
template <typename Changed>
void add_transfers(const TransferGraph& graph, const Changed& changed, TransferGraph& result) {
  std::size_t dependencies = 0;
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    dependencies += graph.dependencies(TransferId(i)).size();
  }
  result.reserve(graph.transfers().size(), dependencies);
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    result.add_transfer(changed(i), graph.dependencies(TransferId(i)));
  }
  result.add_groups_of(graph);
  result.add_mutual_sums_of(graph);
}

void check_count(const TransferGraph& graph, const char* what, std::size_t found,
                 std::size_t expected) {
  if (found != expected) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("schedule '{}', {}", graph.name(), what),
                                 .found = fmt::format("{}", found),
                                 .expected = fmt::format("{}", expected)});
  }
}

}  // namespace

std::vector<RatedRoute> rated_routes(const TransferGraph& graph) {
  std::vector<RatedRoute> routes;
  routes.reserve(graph.routes().size());
  for (std::size_t r = 0; r < graph.routes().size(); ++r) {
    routes.push_back({graph.routes()[r], graph.rates()[r]});
  }
  return routes;
}

TransferGraph with_routes(const TransferGraph& graph, std::vector<RatedRoute> routes) {
  return with_codecs_and_routes(
      graph, graph.codecs(), [](const Transfer& transfer) { return transfer.codec; },
      std::move(routes));
}

TransferGraph with_codecs_and_routes(const TransferGraph& graph, std::span<const Codec> codecs,
                                     const std::function<std::uint8_t(const Transfer&)>& codec_of,
                                     std::vector<RatedRoute> routes) {
  check_count(graph, "routes", routes.size(), graph.routes().size());
  TransferGraph result = without_transfers(graph);
  std::vector<std::uint8_t> codec_numbers;
  for (const Codec& codec : codecs) {
    codec_numbers.push_back(result.add_codec(codec));
  }
  std::vector<RouteId> route_numbers;
  route_numbers.reserve(routes.size());
  for (RatedRoute& route : routes) {
    route_numbers.push_back(result.add_route(std::move(route.links), route.rate));
  }
  const auto changed = [&](std::size_t i) {
    Transfer transfer = graph.transfers()[i];
    transfer.codec = codec_numbers.at(codec_of(transfer));
    transfer.route = route_numbers[transfer.route.index()];
    return transfer;
  };
  add_transfers(graph, changed, result);
  return result;
}

TransferGraph with_transfers_over(const TransferGraph& graph, std::span<const RatedRoute> routes,
                                  std::span<const std::uint32_t> route_of) {
  check_count(graph, "routes of transfers", route_of.size(), graph.transfers().size());
  TransferGraph result = without_transfers(graph);
  for (const Codec& codec : graph.codecs()) {
    result.add_codec(codec);
  }
  std::vector<std::optional<RouteId>> numbers(routes.size());
  const auto changed = [&](std::size_t i) {
    std::optional<RouteId>& number = numbers.at(route_of[i]);
    if (!number) {
      number = result.add_route(routes[route_of[i]].links, routes[route_of[i]].rate);
    }
    Transfer transfer = graph.transfers()[i];
    transfer.route = *number;
    return transfer;
  };
  add_transfers(graph, changed, result);
  return result;
}

}  // namespace rackrail::plan

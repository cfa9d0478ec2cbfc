#include "plan/changed_graph.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace rackrail::plan {

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
  if (routes.size() != graph.routes().size()) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = fmt::format("schedule '{}', routes", graph.name()),
                                 .found = fmt::format("{}", routes.size()),
                                 .expected = fmt::format("{}", graph.routes().size())});
  }
  const auto weights = graph.chunk_weights();
  TransferGraph result(graph.name(), graph.collective(), graph.rank_count(),
                       {weights.begin(), weights.end()});
  if (!graph.owners().empty()) {
    result.set_owners({graph.owners().begin(), graph.owners().end()});
  }
  std::vector<std::uint8_t> codec_numbers;
  for (const Codec& codec : codecs) {
    codec_numbers.push_back(result.add_codec(codec));
  }
  std::vector<RouteId> route_numbers;
  route_numbers.reserve(routes.size());
  for (RatedRoute& route : routes) {
    route_numbers.push_back(result.add_route(std::move(route.links), route.rate));
  }
  std::size_t dependencies = 0;
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    dependencies += graph.dependencies(TransferId(i)).size();
  }
  result.reserve(graph.transfers().size(), dependencies);
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    Transfer transfer = graph.transfers()[i];
    transfer.codec = codec_numbers.at(codec_of(transfer));
    transfer.route = route_numbers[transfer.route.index()];
    result.add_transfer(transfer, graph.dependencies(TransferId(i)));
  }
  for (const TransferGroup& group : graph.groups()) {
    result.add_group(group.first, group.count);
  }
  return result;
}

}  // namespace rackrail::plan

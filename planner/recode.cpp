#include "planner/recode.hpp"

#include "planner/schedules/builder.hpp"

namespace rackrail::planner {

plan::TransferGraph recoded(const plan::TransferGraph& graph, const topology::Topology& topology,
                            const TierCodecs& codecs) {
  const auto weights = graph.chunk_weights();
  plan::TransferGraph result(graph.name(), graph.collective(), graph.rank_count(),
                             {weights.begin(), weights.end()});
  if (!graph.owners().empty()) {
    result.set_owners({graph.owners().begin(), graph.owners().end()});
  }
  std::size_t dependencies = 0;
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    dependencies += graph.dependencies(TransferId(i)).size();
  }
  result.reserve(graph.transfers().size(), dependencies);
  // Where codecs differ, so do the shares of the links that rates were made for.
  const bool keeps_rates = codecs.inside == codecs.across;
  for (std::size_t r = 0; r < graph.routes().size(); ++r) {
    result.add_route(graph.routes()[r], keeps_rates ? graph.rate(RouteId(r)) : Bandwidth{});
  }
  const std::vector<std::uint32_t> groups = tier_group_by_rank(topology);
  const std::uint8_t inside = result.add_codec(codecs.inside);
  const std::uint8_t across = result.add_codec(codecs.across);
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    plan::Transfer transfer = graph.transfers()[i];
    transfer.codec = groups[transfer.src.index()] == groups[transfer.dst.index()] ? inside : across;
    result.add_transfer(transfer, graph.dependencies(TransferId(i)));
  }
  for (const plan::TransferGroup& group : graph.groups()) {
    result.add_group(group.first, group.count);
  }
  return result;
}

}  // namespace rackrail::planner

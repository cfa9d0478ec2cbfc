#include "sim/graph_index.hpp"

#include <map>

namespace rackrail::sim {

GraphIndex::GraphIndex(const plan::TransferGraph& g, std::int64_t elements, std::int64_t slice_size,
                       topology::Router& router)
    : graph(g),
      slice_elements(slice_size),
      transfers(g.transfers().size()),
      channels_of(g.rank_count()) {
  std::map<std::pair<Rank, Rank>, std::uint32_t> channel_ids;
  std::vector<std::uint32_t> dependent_counts(transfers.size() + 1, 0);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const plan::Transfer& t = g.transfers()[i];
    TransferInfo& info = transfers[i];
    info.range = g.range(t, elements);
    info.slices = static_cast<std::uint32_t>(plan::slice_count(info.range, slice_size));
    info.first_slice = slice_count;
    slice_count += info.slices;
    const auto [it, added] =
        channel_ids.emplace(std::pair(t.src, t.dst), static_cast<std::uint32_t>(channels.size()));
    if (added) {
      channels.push_back({t.src, t.dst, {}});
      channels_of[t.src.index()].push_back(it->second);
      routes.emplace_back();
    }
    info.channel = it->second;
    if (info.slices == 0) {
      continue;
    }
    channels[info.channel].transfers.push_back(static_cast<std::uint32_t>(i));
    if (g.routes()[t.route.index()].empty() && routes[info.channel].empty()) {
      routes[info.channel] = router.route(t.src, t.dst);
    }
    for (const TransferId dependency : g.dependencies(TransferId(i))) {
      const TransferInfo& before = transfers[dependency.index()];
      if (before.slices == 0) {
        continue;
      }
      const plan::Transfer& d = g.transfer(dependency);
      const bool same = d.chunk_begin == t.chunk_begin && d.chunk_count == t.chunk_count;
      ++(same ? info.slice_waits : info.whole_waits);
      ++dependent_counts[dependency.index() + 1];
    }
  }
  for (std::size_t i = 1; i < dependent_counts.size(); ++i) {
    dependent_counts[i] += dependent_counts[i - 1];
  }
  dependents_begin = dependent_counts;
  dependents.resize(dependent_counts.back());
  std::vector<std::uint32_t> cursor(dependents_begin.begin(), dependents_begin.end() - 1);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].slices == 0) {
      continue;
    }
    const plan::Transfer& t = g.transfers()[i];
    for (const TransferId dependency : g.dependencies(TransferId(i))) {
      if (transfers[dependency.index()].slices == 0) {
        continue;
      }
      const plan::Transfer& d = g.transfer(dependency);
      const bool same = d.chunk_begin == t.chunk_begin && d.chunk_count == t.chunk_count;
      dependents[cursor[dependency.index()]++] = {static_cast<std::uint32_t>(i), !same};
    }
  }
  const std::vector<plan::EncodingSource> sources = plan::encoding_sources(g);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    transfers[i].encoding = sources[i].kind;
    transfers[i].encoded_by = sources[i].from.value();
  }
}

}  // namespace rackrail::sim

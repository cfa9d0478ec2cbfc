#include "sim/graph_index.hpp"

#include <algorithm>
#include <map>

namespace rackrail::sim {

namespace {

bool same_range(const plan::Transfer& a, const plan::Transfer& b) {
  return a.chunk_begin == b.chunk_begin && a.chunk_count == b.chunk_count;
}

}  // namespace

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
      ++(same_range(d, t) ? info.slice_waits : info.whole_waits);
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
      dependents[cursor[dependency.index()]++] = {static_cast<std::uint32_t>(i), !same_range(d, t)};
    }
  }
  const std::vector<plan::EncodingSource> sources = plan::encoding_sources(g);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    transfers[i].encoding = sources[i].kind;
    transfers[i].encoded_by = sources[i].from.value();
  }
  order_additions();
}

// Additions into a chunk of a rank are applied in the order of their ids.
void GraphIndex::order_additions() {
  constexpr std::uint32_t kNone = UINT32_MAX;
  const std::size_t chunks = graph.chunk_count();
  std::vector<std::uint32_t> last(graph.rank_count() * chunks, kNone);
  std::vector<std::uint32_t> before;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const plan::Transfer& t = graph.transfers()[i];
    if (t.op != plan::TransferOp::kReduce || transfers[i].slices == 0) {
      continue;
    }
    before.clear();
    for (std::size_t c = t.chunk_begin; c < std::size_t{t.chunk_begin} + t.chunk_count; ++c) {
      std::uint32_t& addition = last[t.dst.index() * chunks + c];
      if (addition != kNone) {
        before.push_back(addition);
      }
      addition = static_cast<std::uint32_t>(i);
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    if (!before.empty() && next_additions.empty()) {
      next_additions.resize(transfers.size());
    }
    for (const std::uint32_t addition : before) {
      const bool whole = !same_range(graph.transfers()[addition], t);
      next_additions[addition].push_back({static_cast<std::uint32_t>(i), whole});
      ++transfers[i].additions_before;
    }
  }
}

}  // namespace rackrail::sim

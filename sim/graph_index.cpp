#include "sim/graph_index.hpp"

#include <map>
#include <tuple>
#include <unordered_map>

namespace rackrail::sim {

namespace {

std::uint64_t chunk_key(Rank rank, std::uint32_t chunk) {
  return (static_cast<std::uint64_t>(rank.value()) << 32U) | chunk;
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
  // Encodings, in id order: an encoding stands until something writes a chunk of its range.
  bool lossy = false;
  for (const plan::Codec& codec : g.codecs()) {
    lossy = lossy || codec.is_lossy();
  }
  if (!lossy) {
    return;
  }
  std::unordered_map<std::uint64_t, std::uint32_t> last_write;  // (rank, chunk) → transfer + 1
  std::map<std::tuple<Rank, std::uint32_t, std::uint32_t, std::uint8_t>, std::uint32_t> encoders;
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const plan::Transfer& t = g.transfers()[i];
    TransferInfo& info = transfers[i];
    if (g.codecs()[t.codec].is_lossy()) {
      std::uint32_t written = 0;
      bool one_writer = true;
      for (std::uint32_t c = 0; c < t.chunk_count; ++c) {
        const auto it = last_write.find(chunk_key(t.src, t.chunk_begin + c));
        const std::uint32_t by = it == last_write.end() ? 0 : it->second;
        one_writer = one_writer && (c == 0 || by == written);
        written = std::max(written, by);
      }
      const auto key = std::tuple(t.src, t.chunk_begin, t.chunk_count, t.codec);
      const auto before = encoders.find(key);
      if (before != encoders.end() && before->second + 1 > written) {
        const bool forwarded =
            transfers[before->second].encoding == EncodingSource::kForwarded;
        info.encoding = forwarded ? EncodingSource::kForwarded : EncodingSource::kShared;
        info.encoded_by = before->second;
      } else {
        encoders[key] = static_cast<std::uint32_t>(i);
        if (one_writer && written > 0) {
          const plan::Transfer& w = g.transfers()[written - 1];
          if (w.op == plan::TransferOp::kCopy && w.codec == t.codec &&
              w.chunk_begin == t.chunk_begin && w.chunk_count == t.chunk_count) {
            info.encoding = EncodingSource::kForwarded;
          }
        }
      }
    }
    for (std::uint32_t c = 0; c < t.chunk_count; ++c) {
      last_write[chunk_key(t.dst, t.chunk_begin + c)] = static_cast<std::uint32_t>(i) + 1;
    }
  }
}

}  // namespace rackrail::sim

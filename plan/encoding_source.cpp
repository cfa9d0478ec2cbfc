#include "plan/encoding_source.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace rackrail::plan {

namespace {

std::uint64_t place(Rank rank, std::uint32_t chunk) {
  return (static_cast<std::uint64_t>(rank.value()) << 32U) | chunk;
}

}  // namespace

std::vector<EncodingSource> encoding_sources(const TransferGraph& graph) {
  std::vector<EncodingSource> sources(graph.transfers().size());
  if (std::none_of(graph.codecs().begin(), graph.codecs().end(),
                   [](const Codec& codec) { return codec.is_lossy(); })) {
    return sources;
  }
  // The latest transfer that wrote each chunk of each rank, and the latest transfer that encoded (or
  // forwarded) each range: an encoding stands until one of its chunks is written again.
  std::unordered_map<std::uint64_t, TransferId> written_by;
  std::map<std::tuple<Rank, std::uint32_t, std::uint32_t, std::uint8_t>, TransferId> encoded_by;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TransferId id(i);
    const Transfer& transfer = graph.transfer(id);
    if (graph.codecs()[transfer.codec].is_lossy()) {
      std::optional<TransferId> newest;
      bool one_writer = true;
      for (std::uint32_t c = 0; c < transfer.chunk_count; ++c) {
        const auto it = written_by.find(place(transfer.src, transfer.chunk_begin + c));
        const auto writer = it == written_by.end() ? std::nullopt : std::optional(it->second);
        one_writer = one_writer && (c == 0 || writer == newest);
        newest = std::max(newest, writer);
      }
      const auto key = std::tuple(transfer.src, transfer.chunk_begin, transfer.chunk_count,
                                  transfer.codec);
      const auto before = encoded_by.find(key);
      if (before != encoded_by.end() && (!newest.has_value() || *newest < before->second)) {
        const EncodingSource& first = sources[before->second.index()];
        sources[i] = first.kind == EncodingKind::kForwarded
                         ? first
                         : EncodingSource{EncodingKind::kShared, before->second};
      } else {
        encoded_by[key] = id;
        if (one_writer && newest.has_value()) {
          const Transfer& writer = graph.transfer(*newest);
          if (writer.op == TransferOp::kCopy && writer.codec == transfer.codec &&
              writer.chunk_begin == transfer.chunk_begin &&
              writer.chunk_count == transfer.chunk_count) {
            sources[i] = {EncodingKind::kForwarded, *newest};
          }
        }
      }
    }
    for (std::uint32_t c = 0; c < transfer.chunk_count; ++c) {
      written_by[place(transfer.dst, transfer.chunk_begin + c)] = id;
    }
  }
  return sources;
}

}  // namespace rackrail::plan

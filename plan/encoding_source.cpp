#include "plan/encoding_source.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace rackrail::plan {
namespace {

/// The last writer of each chunk of each rank.
class Writers {
 public:
  void set(Rank rank, const Transfer& range, TransferId writer) {
    for (std::uint32_t c = 0; c < range.chunk_count; ++c) {
      writers_[key(rank, range.chunk_begin + c)] = writer;
    }
  }

  struct Answer {
    std::optional<TransferId> newest;  ///< of the writers of the range
    bool is_only = true;               ///< whether it wrote all of the range
  };
  Answer of(Rank rank, const Transfer& range) const {
    Answer answer;
    for (std::uint32_t c = 0; c < range.chunk_count; ++c) {
      const auto found = writers_.find(key(rank, range.chunk_begin + c));
      const auto writer = found == writers_.end() ? std::nullopt : std::optional(found->second);
      answer.is_only = answer.is_only && (c == 0 || writer == answer.newest);
      answer.newest = std::max(answer.newest, writer);
    }
    return answer;
  }

 private:
  static std::uint64_t key(Rank rank, std::uint32_t chunk) {
    return (std::uint64_t{rank.value()} << 32U) | chunk;
  }
  std::unordered_map<std::uint64_t, TransferId> writers_;
};

bool same_range(const Transfer& a, const Transfer& b) {
  return a.chunk_begin == b.chunk_begin && a.chunk_count == b.chunk_count;
}

}  // namespace

std::vector<EncodingSource> encoding_sources(const TransferGraph& graph) {
  std::vector<EncodingSource> sources(graph.transfers().size());
  if (std::none_of(graph.codecs().begin(), graph.codecs().end(),
                   [](const Codec& codec) { return codec.is_lossy(); })) {
    return sources;
  }
  Writers writers;
  // The latest encoding of each range of each rank, by codec and op.
  using Key = std::tuple<Rank, std::uint32_t, std::uint32_t, std::uint8_t, TransferOp>;
  std::map<Key, TransferId> encoded_by;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const TransferId id(i);
    const Transfer& transfer = graph.transfer(id);
    if (graph.codecs()[transfer.codec].is_lossy()) {
      const Writers::Answer written = writers.of(transfer.src, transfer);
      const Key key(transfer.src, transfer.chunk_begin, transfer.chunk_count, transfer.codec,
                    transfer.op);
      const auto before = encoded_by.find(key);
      // An encoding that was adopted is its own version's writer.
      if (before != encoded_by.end() && (!written.newest || *written.newest <= before->second)) {
        const EncodingSource& first = sources[before->second.index()];
        sources[i] = first.kind == EncodingKind::kForwarded
                         ? first
                         : EncodingSource{EncodingKind::kShared, before->second};
      } else {
        encoded_by[key] = id;
        if (written.newest && written.is_only) {
          const Transfer& writer = graph.transfer(*written.newest);
          if (writer.dst == transfer.src && writer.op == TransferOp::kCopy &&
              writer.codec == transfer.codec && same_range(writer, transfer)) {
            sources[i] = {EncodingKind::kForwarded, *written.newest};
          }
        }
        if (sources[i].kind == EncodingKind::kOwn && transfer.op == TransferOp::kCopy) {
          writers.set(transfer.src, transfer, id);
        }
      }
    }
    writers.set(transfer.dst, transfer, id);
  }
  return sources;
}

}  // namespace rackrail::plan

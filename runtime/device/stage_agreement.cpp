#include "runtime/device/stage_agreement.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/random.hpp"
#include "plan/encoding_source.hpp"
#include "plan/mutual_sum.hpp"

namespace rackrail::runtime {
namespace {

using plan::EncodingKind;
using plan::Transfer;
using plan::TransferGraph;
using plan::TransferOp;

// Hashes are mixed from these so that no two kinds of expression meet by construction.
constexpr std::uint64_t kContribution = 0x696e707574ULL;
constexpr std::uint64_t kAddition = 0x73756dULL;
constexpr std::uint64_t kEncoding = 0x636f6465ULL;
constexpr std::uint64_t kCollectiveSum = 0x756e6b6e6f776eULL;

/// What a stage does to one chunk.
struct ChunkStage {
  std::uint32_t stage = 0;
  std::uint32_t root = 0;               ///< of a collective
  std::vector<TransferId> transfers{};  ///< of an exchange
};

std::vector<std::vector<ChunkStage>> by_chunk(const TransferGraph& graph,
                                              std::span<const Stage> stages) {
  std::vector<std::vector<ChunkStage>> result(graph.chunk_count());
  for (std::uint32_t s = 0; s < stages.size(); ++s) {
    for (const StagePart& part : stages[s].parts) {
      for (std::uint32_t c = part.chunk_begin; c < part.chunk_begin + part.chunk_count; ++c) {
        result[c].push_back({.stage = s, .root = part.root});
      }
    }
    for (const TransferId id : stages[s].transfers) {
      const Transfer& t = graph.transfer(id);
      for (std::uint32_t c = t.chunk_begin; c < t.chunk_begin + t.chunk_count; ++c) {
        if (result[c].empty() || result[c].back().stage != s) {
          result[c].push_back({.stage = s});
        }
        result[c].back().transfers.push_back(id);
      }
    }
  }
  return result;
}

class Expressions {
 public:
  Expressions(const TransferGraph& graph, const RankGroups& groups, std::span<const Stage> stages)
      : graph_(graph),
        groups_(groups),
        stages_(stages),
        sources_(plan::encoding_sources(graph)),
        sums_(graph),
        values_(graph.rank_count()),
        sent_(graph.transfers().size()) {}

  bool chunk_ends_alike(std::uint32_t chunk, std::span<const ChunkStage> work) {
    const bool gathers = graph_.collective() == plan::Collective::kAllGather;
    for (std::size_t r = 0; r < values_.size(); ++r) {
      const bool has_one = !gathers || graph_.owners()[chunk] == Rank(r);
      values_[r] = {.identity = has_one ? random_bits(kContribution, r) : 0, .fixed_by = 0};
    }
    for (const ChunkStage& part : work) {
      if (stages_[part.stage].kind == StageKind::kExchange) {
        exchange(part.transfers);
      } else {
        collective(part);
      }
    }
    return std::all_of(values_.begin(), values_.end(),
                       [this](const Value& v) { return v.identity == values_.front().identity; });
  }

 private:
  struct Value {
    std::uint64_t identity = 0;
    std::uint8_t fixed_by = 0;  ///< elementwise codec that changes nothing any more; 0: none
  };

  void collective(const ChunkStage& part) {
    const Stage& stage = stages_[part.stage];
    const auto& group = groups_[stage.group];
    const Rank root = group[part.root];
    if (stage.kind == StageKind::kBroadcast) {
      for (const Rank rank : group) {
        values_[rank.index()] = values_[root.index()];
      }
      return;
    }
    const std::uint64_t sum = random_bits(kCollectiveSum, part.stage);
    for (const Rank rank : group) {
      if (stage.kind == StageKind::kAllReduce || rank == root) {
        values_[rank.index()] = {.identity = sum, .fixed_by = 0};
      }
    }
  }

  void exchange(std::span<const TransferId> transfers) {
    for (const TransferId id : transfers) {
      encode(id);
    }
    // FP32 goes out as it is once everything has been encoded.
    for (const TransferId id : transfers) {
      const Transfer& t = graph_.transfer(id);
      if (!graph_.codecs()[t.codec].is_lossy()) {
        sent_[id.index()] = values_[t.src.index()];
      }
    }
    for (const TransferId id : transfers) {
      if (const plan::TransferGroup* sum = sums_.sum_of(id)) {
        if (sum->first == id) {
          add_mutually(*sum);
        }
        continue;
      }
      const Transfer& t = graph_.transfer(id);
      Value& to = values_[t.dst.index()];
      const Value& from = sent_[id.index()];
      to = t.op == TransferOp::kCopy ? from : added(to, from);
    }
  }

  static Value added(const Value& a, const Value& b) {
    const auto [low, high] = std::minmax(a.identity, b.identity);
    return {.identity = random_bits(random_bits(kAddition, low), high), .fixed_by = 0};
  }

  void add_mutually(const plan::TransferGroup& sum) {
    const std::vector<Rank> members = plan::mutual_sum_members(graph_, sum);
    Value total = values_[members.front().index()];
    for (std::size_t m = 1; m < members.size(); ++m) {
      total = added(total, values_[members[m].index()]);
    }
    for (const Rank rank : members) {
      values_[rank.index()] = total;
    }
  }

  void encode(TransferId id) {
    const Transfer& t = graph_.transfer(id);
    const plan::Codec& codec = graph_.codecs()[t.codec];
    if (!codec.is_lossy()) {
      return;
    }
    const plan::EncodingSource& source = sources_[id.index()];
    if (source.kind != EncodingKind::kOwn) {
      sent_[id.index()] = sent_[source.from.index()];
      return;
    }
    Value& from = values_[t.src.index()];
    sent_[id.index()] = decoded(t, codec.is_elementwise(), from);
    if (t.op == TransferOp::kCopy) {
      from = sent_[id.index()];  // the sender goes on with what the others get
    }
  }

  static Value decoded(const Transfer& t, bool is_elementwise, const Value& value) {
    if (is_elementwise) {
      return value.fixed_by == t.codec
                 ? value
                 : Value{.identity = random_bits(random_bits(kEncoding, t.codec), value.identity),
                         .fixed_by = t.codec};
    }
    const std::uint64_t range = (std::uint64_t{t.chunk_begin} << 32U) | t.chunk_count;
    const std::uint64_t who = t.op == TransferOp::kReduce ? std::uint64_t{1} + t.src.value() : 0;
    std::uint64_t hash = random_bits(kEncoding, t.codec);
    for (const std::uint64_t each : {range, who, value.identity}) {
      hash = random_bits(hash, each);
    }
    return {.identity = hash, .fixed_by = 0};
  }

  const TransferGraph& graph_;
  const RankGroups& groups_;
  std::span<const Stage> stages_;
  std::vector<plan::EncodingSource> sources_;
  plan::MutualSums sums_;
  std::vector<Value> values_;  ///< by rank, of the chunk at hand
  std::vector<Value> sent_;    ///< by transfer
};

}  // namespace

bool all_end_alike(const TransferGraph& graph, const RankGroups& groups,
                   std::span<const Stage> stages) {
  if (graph.collective() == plan::Collective::kReduceScatter) {
    return true;
  }
  Expressions expressions(graph, groups, stages);
  const auto work = by_chunk(graph, stages);
  for (std::uint32_t c = 0; c < graph.chunk_count(); ++c) {
    if (!expressions.chunk_ends_alike(c, work[c])) {
      return false;
    }
  }
  return true;
}

}  // namespace rackrail::runtime

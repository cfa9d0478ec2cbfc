#include "runtime/device/stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "plan/encoding_source.hpp"
#include "plan/mutual_sum.hpp"
#include "runtime/device/stage_agreement.hpp"

namespace rackrail::runtime {
namespace {

using plan::EncodingKind;
using plan::EncodingSource;
using plan::Transfer;
using plan::TransferGraph;
using plan::TransferOp;

bool has_same_range(const Transfer& a, const Transfer& b) {
  return a.chunk_begin == b.chunk_begin && a.chunk_count == b.chunk_count;
}

/// Where each rank is in the groups.
struct GroupPlaces {
  GroupPlaces(const RankGroups& groups, std::size_t ranks) : group(ranks, ranks), position(ranks) {
    std::size_t members = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      for (std::size_t i = 0; i < groups[g].size(); ++i, ++members) {
        const std::size_t rank = groups[g][i].index();
        if (rank >= ranks || group[rank] != ranks) {
          refuse(rank >= ranks ? "is not in the graph" : "is there twice", rank);
        }
        group[rank] = g;
        position[rank] = i;
      }
    }
    if (members != ranks) {
      const auto missing = std::find(group.begin(), group.end(), ranks) - group.begin();
      refuse("is missing", static_cast<std::size_t>(missing));
    }
  }

  bool is_inside(const Transfer& t) const { return group[t.src.index()] == group[t.dst.index()]; }

  std::vector<std::size_t> group;     ///< by rank
  std::vector<std::size_t> position;  ///< by rank, in its group

 private:
  [[noreturn]] static void refuse(const char* what, std::size_t rank) {
    throw PlanError(ErrorContext{.file = {},
                                 .where = "groups of ranks",
                                 .found = fmt::format("rank {} {}", rank, what),
                                 .expected = "each rank once"});
  }
};

/// Something that must not come later than a transfer.
struct Before {
  TransferId id;
  bool may_share_round = false;
};

/// What every transfer waits for, and the phase and round that follow from it.
class Timing {
 public:
  Timing(const TransferGraph& graph, const GroupPlaces& members)
      : graph_(graph), sources_(plan::encoding_sources(graph)) {
    const std::size_t count = graph.transfers().size();
    phase.resize(count);
    round.resize(count);
    const plan::MutualSums sums(graph);
    for (std::size_t i = 0; i < count;) {
      const plan::TransferGroup* sum = sums.sum_of(TransferId(i));
      const std::size_t end = sum == nullptr ? i + 1 : i + sum->count;
      place(i, end, members);
      i = end;
    }
  }

  std::vector<std::uint32_t> phase;  ///< by transfer
  std::vector<std::uint32_t> round;  ///< by transfer, in its phase, if nothing were a collective

 private:
  /// These are at the same time: one transfer, or a mutual sum.
  void place(std::size_t begin, std::size_t end, const GroupPlaces& members) {
    std::vector<Before> before;
    std::uint32_t parity = 0;
    for (std::size_t i = begin; i < end; ++i) {
      collect(TransferId(i), before);
      parity = members.is_inside(graph_.transfers()[i]) ? parity : 1;
    }
    std::erase_if(before, [&](const Before& b) { return b.id.index() >= begin; });
    std::uint32_t own_phase = parity;
    for (const Before& b : before) {
      const std::uint32_t other = phase[b.id.index()];
      own_phase = std::max(own_phase, other + (other % 2 == parity ? 0 : 1));
    }
    std::uint32_t own_round = 0;
    for (const Before& b : before) {
      if (phase[b.id.index()] == own_phase) {
        own_round = std::max(own_round, round[b.id.index()] + (b.may_share_round ? 0 : 1));
      }
    }
    for (std::size_t i = begin; i < end; ++i) {
      phase[i] = own_phase;
      round[i] = own_round;
    }
  }

  void collect(TransferId id, std::vector<Before>& before) {
    const Transfer& t = graph_.transfer(id);
    const EncodingSource& source = sources_[id.index()];
    const bool adopts = graph_.codecs()[t.codec].is_lossy() && t.op == TransferOp::kCopy &&
                        source.kind == EncodingKind::kOwn;
    for (const TransferId dependency : graph_.dependencies(id)) {
      const Transfer& d = graph_.transfer(dependency);
      // Both only read, and what is encoded is encoded before anything is sent.
      const bool reads_alike = d.src == t.src && has_same_range(d, t) && !adopts;
      before.push_back({dependency, reads_alike});
    }
    if (source.kind != EncodingKind::kOwn) {
      before.push_back({source.from, source.kind == EncodingKind::kShared});
    }
    if (t.op == TransferOp::kReduce) {
      for (std::uint32_t c = t.chunk_begin; c < t.chunk_begin + t.chunk_count; ++c) {
        const std::uint64_t place = (std::uint64_t{t.dst.value()} << 32U) | c;
        const auto [last, is_first] = last_addition_.try_emplace(place, id);
        if (!is_first) {
          before.push_back({std::exchange(last->second, id), true});
        }
      }
    }
  }

  const TransferGraph& graph_;
  std::vector<EncodingSource> sources_;
  std::unordered_map<std::uint64_t, TransferId> last_addition_;
};

/// What the transfers of a phase inside a group do to a chunk.
struct Effect {
  StageKind kind = StageKind::kExchange;
  std::uint32_t root = 0;
};

/// Sets of contributions of the members of a group to one chunk.
class Contributions {
 public:
  explicit Contributions(std::size_t members)
      : members_(members), words_((members + 63) / 64), bits_(members * words_) {
    for (std::size_t m = 0; m < members; ++m) {
      bits_[m * words_ + m / 64] = std::uint64_t{1} << (m % 64);
    }
  }

  void copy(std::size_t from, std::size_t to) {
    std::copy_n(&bits_[from * words_], words_, &bits_[to * words_]);
  }
  /// False where a contribution would be there twice.
  bool add(std::size_t from, std::size_t to) {
    for (std::size_t w = 0; w < words_; ++w) {
      std::uint64_t& target = bits_[to * words_ + w];
      const std::uint64_t source = bits_[from * words_ + w];
      if ((target & source) != 0) {
        return false;
      }
      target |= source;
    }
    return true;
  }
  /// All of these have what any of them had; false as of add().
  bool add_mutually(const std::vector<std::size_t>& members) {
    for (std::size_t m = 1; m < members.size(); ++m) {
      if (!add(members[m], members[0])) {
        return false;
      }
    }
    for (std::size_t m = 1; m < members.size(); ++m) {
      copy(members[0], members[m]);
    }
    return true;
  }
  std::size_t count(std::size_t member) const {
    std::size_t bits = 0;
    for (std::size_t w = 0; w < words_; ++w) {
      bits += static_cast<std::size_t>(__builtin_popcountll(bits_[member * words_ + w]));
    }
    return bits;
  }
  bool has(std::size_t member, std::size_t contribution) const {
    return (bits_[member * words_ + contribution / 64] >> (contribution % 64) & 1U) != 0;
  }

  Effect effect() const {
    std::vector<std::size_t> full;
    for (std::size_t m = 0; m < members_; ++m) {
      if (count(m) == members_) {
        full.push_back(m);
      }
    }
    if (full.size() == members_) {
      return {StageKind::kAllReduce, 0};
    }
    if (full.size() == 1) {
      return {StageKind::kReduce, static_cast<std::uint32_t>(full.front())};
    }
    std::size_t root = 0;
    while (!has(0, root)) {
      ++root;  // a member always has something
    }
    for (std::size_t m = 0; m < members_; ++m) {
      if (count(m) != 1 || !has(m, root)) {
        return {};
      }
    }
    return {StageKind::kBroadcast, static_cast<std::uint32_t>(root)};
  }

 private:
  std::size_t members_;
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

class StageFinder {
 public:
  StageFinder(const TransferGraph& graph, const RankGroups& groups)
      : graph_(graph),
        groups_(groups),
        members_(groups, graph.rank_count()),
        timing_(graph, members_),
        sums_(graph),
        by_chunk_(graph.chunk_count()) {
    for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
      const Transfer& t = graph.transfers()[i];
      for (std::uint32_t c = t.chunk_begin; c < t.chunk_begin + t.chunk_count; ++c) {
        by_chunk_[c].emplace_back(i);
      }
      by_phase_[timing_.phase[i]].emplace_back(i);
    }
  }

  std::vector<Stage> find(bool sums_may_be_collectives) const {
    std::vector<Stage> stages;
    for (const auto& [phase, transfers] : by_phase_) {
      std::vector<TransferId> rest = transfers;
      if (phase % 2 == 0) {
        rest = append_collectives(phase, transfers, sums_may_be_collectives, stages);
      }
      append_rounds(phase, rest, stages);
    }
    return stages;
  }

 private:
  /// Returns the transfers that are part of no collective.
  std::vector<TransferId> append_collectives(std::uint32_t phase,
                                             const std::vector<TransferId>& transfers,
                                             bool sums_may_be_collectives,
                                             std::vector<Stage>& stages) const {
    std::vector<std::vector<TransferId>> by_group(groups_.size());
    for (const TransferId id : transfers) {
      by_group[members_.group[graph_.transfer(id).src.index()]].push_back(id);
    }
    std::vector<TransferId> rest;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::map<std::uint32_t, Effect> effects = effects_of(phase, g, by_group[g]);
      if (!sums_may_be_collectives) {
        for (auto& [chunk, effect] : effects) {
          effect.kind = effect.kind == StageKind::kBroadcast ? effect.kind : StageKind::kExchange;
        }
      }
      spread_exchanges(by_group[g], effects);
      append_group(phase, g, effects, stages);
      std::copy_if(
          by_group[g].begin(), by_group[g].end(), std::back_inserter(rest), [&](TransferId id) {
            return effects.at(graph_.transfer(id).chunk_begin).kind == StageKind::kExchange;
          });
    }
    std::sort(rest.begin(), rest.end());
    return rest;
  }

  std::map<std::uint32_t, Effect> effects_of(std::uint32_t phase, std::size_t group,
                                             const std::vector<TransferId>& transfers) const {
    std::map<std::uint32_t, std::vector<TransferId>> moving;
    for (const TransferId id : transfers) {
      const Transfer& t = graph_.transfer(id);
      for (std::uint32_t c = t.chunk_begin; c < t.chunk_begin + t.chunk_count; ++c) {
        moving[c].push_back(id);
      }
    }
    std::map<std::uint32_t, Effect> effects;
    for (const auto& [chunk, ids] : moving) {
      effects[chunk] = effect_of(phase, group, chunk, ids);
    }
    return effects;
  }

  Effect effect_of(std::uint32_t phase, std::size_t group, std::uint32_t chunk,
                   const std::vector<TransferId>& transfers) const {
    Contributions contributions(groups_[group].size());
    for (const TransferId id : transfers) {
      if (const plan::TransferGroup* sum = sums_.sum_of(id)) {
        if (sum->first == id && !contributions.add_mutually(positions(*sum))) {
          return {};
        }
        continue;
      }
      const Transfer& t = graph_.transfer(id);
      const std::size_t from = members_.position[t.src.index()];
      const std::size_t to = members_.position[t.dst.index()];
      if (graph_.codecs()[t.codec].is_lossy()) {
        return {};
      }
      if (t.op == TransferOp::kCopy) {
        contributions.copy(from, to);
      } else if (!contributions.add(from, to)) {
        return {};
      }
    }
    const Effect effect = contributions.effect();
    if (effect.kind != StageKind::kReduce) {
      return effect;
    }
    for (std::size_t m = 0; m < groups_[group].size(); ++m) {
      if (m != effect.root && is_needed_after(phase, groups_[group][m], chunk)) {
        return {};
      }
    }
    return effect;
  }

  /// Of those that take part, in the group that they are in.
  std::vector<std::size_t> positions(const plan::TransferGroup& sum) const {
    std::vector<std::size_t> result;
    for (const Rank rank : plan::mutual_sum_members(graph_, sum)) {
      result.push_back(members_.position[rank.index()]);
    }
    return result;
  }

  /// Whether what a rank has of a chunk after a phase is read before it is overwritten.
  bool is_needed_after(std::uint32_t phase, Rank rank, std::uint32_t chunk) const {
    for (const TransferId id : by_chunk_[chunk]) {
      const Transfer& t = graph_.transfer(id);
      if (timing_.phase[id.index()] <= phase || (t.src != rank && t.dst != rank)) {
        continue;
      }
      return t.src == rank || t.op == TransferOp::kReduce;
    }
    return graph_.collective() != plan::Collective::kReduceScatter ||
           graph_.owners()[chunk] == rank;
  }

  /// Chunks that a transfer moves together with one that is exchanged are exchanged, too.
  void spread_exchanges(const std::vector<TransferId>& transfers,
                        std::map<std::uint32_t, Effect>& effects) const {
    bool has_changed = true;
    while (has_changed) {
      has_changed = false;
      for (const TransferId id : transfers) {
        const Transfer& t = graph_.transfer(id);
        const auto begin = effects.find(t.chunk_begin);
        const auto end = std::next(begin, t.chunk_count);
        const auto exchanged = std::count_if(
            begin, end, [](const auto& e) { return e.second.kind == StageKind::kExchange; });
        if (exchanged != 0 && exchanged != std::ptrdiff_t{t.chunk_count}) {
          std::for_each(begin, end, [](auto& e) { e.second = {}; });
          has_changed = true;
        }
      }
    }
  }

  static void append_group(std::uint32_t phase, std::size_t group,
                           const std::map<std::uint32_t, Effect>& effects,
                           std::vector<Stage>& stages) {
    for (const StageKind kind :
         {StageKind::kReduce, StageKind::kAllReduce, StageKind::kBroadcast}) {
      Stage stage{.kind = kind, .phase = phase, .group = static_cast<std::uint32_t>(group)};
      for (const auto& [chunk, effect] : effects) {
        if (effect.kind != kind) {
          continue;
        }
        StagePart* last = stage.parts.empty() ? nullptr : &stage.parts.back();
        if (last != nullptr && last->root == effect.root &&
            last->chunk_begin + last->chunk_count == chunk) {
          ++last->chunk_count;
        } else {
          stage.parts.push_back({chunk, 1, effect.root});
        }
      }
      if (!stage.parts.empty()) {
        stages.push_back(std::move(stage));
      }
    }
  }

  void append_rounds(std::uint32_t phase, const std::vector<TransferId>& transfers,
                     std::vector<Stage>& stages) const {
    std::map<std::uint32_t, std::vector<TransferId>> rounds;
    for (const TransferId id : transfers) {
      rounds[timing_.round[id.index()]].push_back(id);
    }
    for (auto& [round, ids] : rounds) {
      stages.push_back({.kind = StageKind::kExchange, .phase = phase, .transfers = std::move(ids)});
    }
  }

  const TransferGraph& graph_;
  const RankGroups& groups_;
  GroupPlaces members_;
  Timing timing_;
  plan::MutualSums sums_;
  std::vector<std::vector<TransferId>> by_chunk_;
  std::map<std::uint32_t, std::vector<TransferId>> by_phase_;
};

}  // namespace

std::vector<Stage> find_stages(const TransferGraph& graph, const RankGroups& groups) {
  const StageFinder finder(graph, groups);
  std::vector<Stage> stages = finder.find(true);
  if (!all_end_alike(graph, groups, stages)) {
    stages = finder.find(false);
  }
  return stages;
}

}  // namespace rackrail::runtime

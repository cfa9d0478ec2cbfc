#include "planner/algorithms/exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "planner/algorithms/exchange_chunks.hpp"
#include "planner/algorithms/exchange_rounds.hpp"
#include "planner/algorithms/exchange_ways.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/pipeline/move_writer.hpp"

namespace rackrail::planner {

namespace {

// Of all rounds: pairs of a chunk and a rank, which interpreters may have to look at.
constexpr std::uint64_t kMostMovementsOfAll = std::uint64_t{1} << 25U;
// Values of a digit for each member of the largest group, where groups are of several sizes: the
// first that makes no more than so many times the transfers that groups of one size would have.
constexpr std::size_t kValuesPerMember[] = {8, 4, 2, 1};
constexpr std::uint64_t kMostTimesTheFewest = 4;
constexpr std::uint64_t kMostTransfersOfUneven = 250'000;  // each way
// By how many rounds the copies of the last level are behind its sums, and those of each level
// below behind these: when a route has its turn of copies, what they wait for has come.
constexpr double kRoundsBehind = 1;
constexpr double kRoundsBetweenLevels = 2;
constexpr std::uint64_t kTooManyTransfers = std::uint64_t{1} << 40U;
constexpr double kAfterFirstStep = 0.5;  // of a turn
constexpr double kLaterInTurn = 0.01;    // of a level, among what has the same turn

/// Values of the next level's digit that are passed on together.
struct Block {
  std::size_t number = 0;
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// A part of a round being written, or only counted.
class PartWriter {
 public:
  PartWriter(const ExchangePart& part, std::size_t per_member)
      : part_(part), digits_(part, per_member), last_(part.hierarchy.levels().size() - 1) {}

  const ChunkDigits& digits() const { return digits_; }

  /// Transfers in each direction.
  std::uint64_t transfers() const {
    if (digits_.is_too_large()) {
      return kTooManyTransfers;
    }
    std::uint64_t all = 0;
    for (std::size_t l = 0; l <= last_; ++l) {
      std::map<std::size_t, std::size_t> runs;  // by members
      for (const RankHierarchy::Group& group : part_.hierarchy.level(l)) {
        const std::size_t members = group.members.size();
        const auto [known, is_new] = runs.emplace(members, 0);
        if (is_new) {
          known->second = digits_.runs(l, members).size();
        }
        all += digits_.prefixes_before(l) * known->second * blocks(l, group, false).size() *
               (members - 1);
      }
    }
    return all;
  }
  /// What groups of one size would have, or other digits.
  std::uint64_t fewest_transfers() const {
    std::uint64_t all = 0;
    for (std::size_t l = 0; l <= last_; ++l) {
      for (const RankHierarchy::Group& group : part_.hierarchy.level(l)) {
        all += group.ranks * blocks(l, group, false).size() * (group.members.size() - 1);
      }
    }
    return all;
  }

  /// By which a part of a round more increases that: the last step of the last level, and what it
  /// brings inside groups.
  std::uint64_t transfers_of_last_step() const {
    std::uint64_t all = digits_.prefixes_before(last_) * digits_.values(last_);
    for (const RankHierarchy::Group& group : part_.hierarchy.level(0)) {
      all += digits_.values(0) * (group.members.size() - 1);
    }
    return all;
  }

  /// Of a round in parts of such sizes. Chunks of no weight are left out.
  void write(MoveWriter& writer, plan::Collective what, std::span<const std::uint32_t> weights,
             const ExchangeRound& round, std::optional<double> turn, bool is_back) {
    std::vector<std::uint32_t> left;
    std::vector<Rank> owners;
    number_.clear();
    for (std::size_t chunk = 0; chunk < weights.size(); ++chunk) {
      number_.push_back(static_cast<std::uint32_t>(left.size()));
      for (std::size_t i = 0; i < round.parts.size() && weights[chunk] > 0; ++i) {
        left.push_back(weights[chunk] * round.parts[i]);
        owners.push_back(digits_.home(chunk));
      }
    }
    round_ = &round;
    number_.push_back(static_cast<std::uint32_t>(left.size()));
    writer.begin_chunks(left, owners);
    writer_ = &writer;
    turn_ = turn;
    is_back_ = is_back != part_.is_back;
    passed_on_.assign(part_.hierarchy.rank_count(), {});
    if (what != plan::Collective::kAllGather) {
      reduce();
    }
    if (what == plan::Collective::kReduceScatter) {
      hand_over(false);
    }
    if (what == plan::Collective::kAllGather) {
      hand_over(true);
    }
    if (what != plan::Collective::kReduceScatter) {
      gather();
    }
  }

 private:
  using Range = MoveWriter::Range;

  /// Whether sums of the lowest level are made step by step of the next one.
  bool sums_as_needed() const {
    return last_ > 0 && part_.levels[0].growth == 1 &&
           (digits_.way(1) == Way::kRing || digits_.way(1) == Way::kDirect);
  }

  void reduce() {
    std::size_t next = 0;
    if (sums_as_needed()) {
      reduce_as_needed();
      next = 2;
    }
    for (std::size_t l = next; l <= last_; ++l) {
      for (std::size_t block = block_count(l); block-- > 0;) {
        move(l, block, std::nullopt, false);
      }
    }
  }
  /// Of the lowest level what the next one is about to pass on: what comes inside a group is added
  /// before what the next level brings, or it would wait for that, but not long before, or devices
  /// would be busy with it while what arrives waits.
  void reduce_as_needed() {
    const std::size_t steps = block_count(0) - 1;
    move(0, steps, std::nullopt, false);
    for (std::size_t step = 0; step < steps; ++step) {
      // Those of the second step wait for nothing either, but the first step of all rounds is
      // first.
      writer_->delay(step == 0 ? kAfterFirstStep : 0);
      move(0, steps - 1 - step, std::nullopt, false);
      writer_->delay(0);
      for (std::size_t block = block_count(1); block-- > 0;) {
        move(1, block, step, false);
      }
    }
  }

  void gather() {
    for (std::size_t l = last_ + 1; l-- > 0;) {
      for (std::size_t block = 0; block < block_count(l); ++block) {
        move(l, block, std::nullopt, true);
      }
    }
  }

  /// Between who owns a chunk and who carries it.
  void hand_over(bool to_carrier) {
    for (std::size_t chunk = 0; chunk < digits_.chunk_count(); ++chunk) {
      const Rank home = digits_.home(chunk);
      const Rank carrier = digits_.carrier(chunk);
      if (const Range range = range_of(chunk, 1); home != carrier && range.count > 0) {
        writer_->copy(to_carrier ? home : carrier, to_carrier ? carrier : home, range, turn_);
      }
    }
  }

  Range range_of(std::size_t begin, std::size_t count) const {
    return {number_[begin], number_[begin + count] - number_[begin]};
  }

  std::size_t block_count(std::size_t l) const {
    if (l == last_ || part_.levels[l].growth == 0) {
      return 1;
    }
    return digits_.way(l + 1) == Way::kTree
               ? digits_.values(l + 1)
               : block_at(part_.hierarchy.largest(l + 1) - 1, part_.levels[l].growth) + 1;
  }
  /// In which a group of the level passes on what it has of the next one's digit.
  std::vector<Block> blocks(std::size_t l, const RankHierarchy::Group& group, bool gathers) const {
    const std::uint32_t growth = part_.levels[l].growth;
    if (l == last_ || growth == 0) {
      return {{0, 0, l == last_ ? 1 : digits_.values(l + 1)}};
    }
    const std::size_t members = part_.hierarchy.level(l + 1)[group.parent].members.size();
    const Way next = digits_.way(l + 1);
    const std::vector<DigitRun> runs = digits_.runs(l + 1, members);
    std::vector<Block> blocks;
    for (const DigitRun& run : runs) {
      const std::size_t number =
          next == Way::kTree
              ? run.begin
              : block_at(distance(next, members, group.position, run.owner, gathers, is_back_),
                         growth);
      if (blocks.empty() || blocks.back().number != number) {
        blocks.push_back({number, run.begin, 0});
      }
      blocks.back().count += run.count;
    }
    return blocks;
  }

  /// Groups of a level that have as many members, and what these do in one direction.
  struct Alike {
    std::vector<DigitRun> runs;
    std::vector<ExchangeArc> arcs;  ///< by step
    /// By number: of groups that have such a block.
    std::vector<std::vector<std::pair<std::size_t, Block>>> groups_by_block;
  };

  const std::vector<Alike>& alike(std::size_t l, bool gathers) {
    std::vector<Alike>& known = alike_[{l, gathers, is_back_}];
    if (!known.empty()) {
      return known;
    }
    std::map<std::size_t, std::size_t> number;  // by members
    const RankHierarchy::Level& level = part_.hierarchy.level(l);
    for (std::size_t g = 0; g < level.size(); ++g) {
      const std::size_t members = level[g].members.size();
      const auto [at, is_new] = number.emplace(members, known.size());
      if (is_new) {
        Alike& one = known.emplace_back();
        one.runs = digits_.runs(l, members);
        one.arcs = arcs_of(digits_.way(l), members, one.runs, gathers, is_back_);
        one.groups_by_block.resize(block_count(l));
      }
      for (const Block& block : blocks(l, level[g], gathers)) {
        known[at->second].groups_by_block[block.number].emplace_back(g, block);
      }
    }
    return known;
  }

  /// A block of a level, all of it or one step.
  void move(std::size_t l, std::size_t block, std::optional<std::size_t> step, bool gathers) {
    for (const Alike& of : alike(l, gathers)) {
      auto arc = of.arcs.begin();
      auto end = of.arcs.end();
      if (step) {
        const auto at_step = std::ranges::equal_range(of.arcs, *step, {}, &ExchangeArc::step);
        arc = at_step.begin();
        end = at_step.end();
      }
      for (; arc != end; ++arc) {
        for (const auto& [g, of_next] : of.groups_by_block[block]) {
          for (std::size_t before = 0; before < digits_.prefixes_before(l); ++before) {
            send(l, part_.hierarchy.level(l)[g].members, *arc, of.runs[arc->run], of_next, before,
                 gathers);
          }
        }
      }
    }
  }

  void send(std::size_t l, const std::vector<std::size_t>& members, const ExchangeArc& arc,
            const DigitRun& run, const Block& block, std::size_t before, bool gathers) {
    const std::size_t prefix = before * digits_.values(l) + run.begin;
    const Rank src = digits_.holder(l, members[arc.from], prefix);
    const Rank dst = digits_.holder(l, members[arc.to], prefix);
    std::size_t begin = prefix * digits_.width(l);
    std::size_t count = run.count * digits_.width(l);
    if (l < last_ && part_.levels[l].growth > 0) {
      begin += block.begin * digits_.width(l + 1);
      count = block.count * digits_.width(l + 1);
    }
    const Range range = range_of(begin, count);
    if (range.count == 0 || (gathers && count == 1 && dst == digits_.home(begin))) {
      return;  // there is nothing, or it lent it
    }
    const std::optional<double> turn = turn_of(l, block.number, arc.step, gathers);
    const bool is_last = gathers && (l == last_ ? arc.step + 2 == members.size()
                                                : block.number + 1 == block_count(l));
    const auto parts = static_cast<std::uint32_t>(round_->parts.size());
    if (is_last && round_->ends.size() == parts) {
      for (std::uint32_t i = 0; i < parts; ++i) {
        writer_->delay(l == last_ ? round_->ends[i] : 0);
        writer_->copy(src, dst, {range.begin + i, 1}, turn);
      }
      writer_->delay(0);
      return;
    }
    if (gathers) {
      writer_->copy(src, dst, range, turn);
      return;
    }
    const std::uint32_t number =
        l == 0 && sums_as_needed() ? writer_->reduce(src, dst, range, turn, passed_on_[src.index()])
                                   : writer_->reduce(src, dst, range, turn);
    if (l == 1 && digits_.way(1) == Way::kRing) {
      passed_on_[src.index()] = {number};
    }
  }

  /// Where rounds take turns, copies are some rounds behind; where levels are rings that wait for
  /// one another, they are one after the other, as parts share links; else the usual turns.
  std::optional<double> turn_of(std::size_t l, std::size_t block, std::size_t step,
                                bool gathers) const {
    const auto below = static_cast<double>(last_ - l);
    if (turn_) {
      return *turn_ +
             (gathers ? kRoundsBehind + kRoundsBetweenLevels * below + kLaterInTurn * (below + 1)
                      : 0);
    }
    if (part_.levels[0].growth == 1) {
      return std::nullopt;
    }
    const std::size_t phase = gathers ? 2 * last_ + 1 - l : l;
    const std::size_t before = gathers ? block : block_count(l) - 1 - block;
    return static_cast<double>(
        (phase * part_.hierarchy.rank_count() + before) * part_.hierarchy.rank_count() + step);
  }

  const ExchangePart& part_;
  ChunkDigits digits_;
  std::size_t last_;  ///< level
  // Of the round that is being written:
  MoveWriter* writer_ = nullptr;
  std::vector<std::uint32_t> number_;  ///< by chunk, among those that have a weight; their count
  const ExchangeRound* round_ = nullptr;
  std::optional<double> turn_;
  bool is_back_ = false;
  std::vector<MoveWriter::Numbers> passed_on_;  ///< by rank: what it sent last along a ring
  /// By level, whether it gathers, and whether rings go back.
  std::map<std::tuple<std::size_t, bool, bool>, std::vector<Alike>> alike_;
};

/// In digits that make few transfers.
PartWriter writer_of(const ExchangePart& part) {
  for (const std::size_t per_member : kValuesPerMember) {
    PartWriter writer(part, per_member);
    const bool is_last = per_member == std::end(kValuesPerMember)[-1];
    if (is_last ||
        (!writer.digits().is_too_large() &&
         writer.transfers() <=
             std::min(kMostTransfersOfUneven, kMostTimesTheFewest * writer.fewest_transfers()))) {
      return writer;
    }
  }
  return {part, 1};
}

/// What it is like in more rounds, by few of them.
FormShape in_more_rounds(const FormShape& few, const std::vector<ExchangeRound>& few_rounds,
                         const std::vector<ExchangeRound>& rounds, std::uint64_t of_last_step) {
  const auto sum = [](const auto& all) {
    return std::accumulate(
        all.begin(), all.end(), std::int64_t{0},
        [](std::int64_t before, const ExchangeRound& round) { return before + round.size(); });
  };
  const auto largest = [&](const auto& all) {
    std::uint32_t most = 0;
    for (const ExchangeRound& round : all) {
      most = std::max(most, round.size());
    }
    return most / static_cast<double>(sum(all));
  };
  const auto more = static_cast<std::int64_t>(rounds.size() / few_rounds.size());
  FormShape shape = few;
  shape.largest_share *= largest(rounds) / largest(few_rounds);
  shape.transfers =
      (few.transfers - static_cast<std::int64_t>(more_parts(few_rounds) * of_last_step)) * more +
      static_cast<std::int64_t>(more_parts(rounds) * of_last_step);
  // More parts are rounded, maybe on another link that is as full, and no chunk is empty once each
  // has an element.
  shape.bound->rounding =
      shape.bound->rounding * (2 * (more + static_cast<std::int64_t>(more_parts(rounds))));
  shape.bound->fewest_elements *= sum(rounds);
  return shape;
}

}  // namespace

bool Exchange::takes_turns() const {
  return std::ranges::all_of(parts, [](const ExchangePart& part) {
    return std::ranges::all_of(part.levels, [](const ExchangeLevel& level) {
      return level.way == Way::kDirect || level.way == Way::kTree;
    });
  });
}

std::optional<std::string> exchange_refusal(const Exchange& exchange, plan::Collective what) {
  for (const ExchangePart& part : exchange.parts) {
    const PartWriter writer = writer_of(part);
    if (writer.digits().is_too_large()) {
      return "it would have too many chunks";
    }
    if (!weights_of(part, writer.digits(), what)) {
      return "ranks would own unequal parts";
    }
  }
  return std::nullopt;
}

std::size_t exchange_chunks(const Exchange& exchange) {
  std::size_t chunks = 0;
  for (const ExchangePart& part : exchange.parts) {
    chunks += writer_of(part).digits().chunk_count();
  }
  return chunks;
}

std::uint64_t exchange_transfers(const Exchange& exchange, plan::Collective what,
                                 std::size_t rounds, bool alternate) {
  std::uint64_t transfers = 0;
  for (const ExchangePart& part : exchange.parts) {
    transfers += writer_of(part).transfers();
  }
  transfers *= rounds * (what == plan::Collective::kAllReduce ? 2 : 1);
  if (transfers < kTooManyTransfers && exchange.is_ring_of_groups()) {
    transfers += more_parts(rounds_of(exchange, what, rounds, alternate)) *
                 writer_of(exchange.parts.front()).transfers_of_last_step();
  }
  return transfers;
}

plan::TransferGraph make_exchange(const Exchange& exchange, plan::Collective what,
                                  const ScheduleRequest& request, std::size_t rounds,
                                  bool alternate) {
  MoveWriter writer(exchange.name, request, what);
  std::vector<PartWriter> parts;
  std::vector<std::vector<std::uint32_t>> weights;
  for (const ExchangePart& part : exchange.parts) {
    parts.push_back(writer_of(part));
    weights.push_back(weights_of(part, parts.back().digits(), what).value());
  }
  const bool takes_turns = exchange.takes_turns();
  const auto sizes = rounds_of(exchange, what, rounds, alternate);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t p = 0; p < parts.size(); ++p) {
      parts[p].write(writer, what, weights[p], sizes[round],
                     takes_turns ? std::optional(static_cast<double>(round)) : std::nullopt,
                     alternate && round % 2 == 1);
    }
  }
  return exchange.mechanism.empty()
             ? writer.take()
             : with_mechanism(writer.take(),
                              fmt::format("{}{}, {}", exchange.mechanism,
                                          alternate ? " both ways" : "", in_rounds_text(rounds)));
}

std::vector<CollectiveForm> exchange_forms(const Exchange& exchange, plan::Collective what,
                                           const ScheduleRequest& request,
                                           std::span<const std::size_t> rounds, bool alternate) {
  std::vector<CollectiveForm> forms;
  if (exchange_refusal(exchange, what)) {
    return forms;
  }
  const auto shared = std::make_shared<const Exchange>(exchange);
  const std::uint64_t movements = exchange_chunks(exchange) * request.topology.rank_count();
  std::vector<ExchangeRound> few;  // of the first that there is
  const std::uint64_t of_last_step =
      exchange.is_ring_of_groups() ? writer_of(exchange.parts.front()).transfers_of_last_step() : 0;
  for (const std::size_t count : rounds) {
    if (count > request.most_rounds || count * movements > kMostMovementsOfAll ||
        exchange_transfers(exchange, what, count, alternate) > request.most_transfers) {
      break;
    }
    auto parts = rounds_of(exchange, what, count, alternate);
    if (few.empty()) {
      forms.emplace_back(make_exchange(exchange, what, request, count, alternate),
                         request.topology);
      few = std::move(parts);
      continue;
    }
    forms.emplace_back(in_more_rounds(forms.front().shape(), few, parts, of_last_step),
                       [shared, what, request, count, alternate] {
                         return make_exchange(*shared, what, request, count, alternate);
                       });
  }
  return forms;
}

}  // namespace rackrail::planner
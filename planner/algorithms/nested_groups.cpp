#include "planner/algorithms/nested_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"
#include "topology/tiers.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kFewestLevels = 3;
constexpr std::size_t kRounds[] = {1, 4, 16, 64, 128, 256};
constexpr std::size_t kMostRoundsOfTables = 64;  // where more than one size is looked at
// The same in rounds of unlike sizes (sizes_of_swelling_rounds), which need fewer.
constexpr std::size_t kSwellingRounds[] = {24, 48, 96};
constexpr double kLargestRound = 64;  // times the unit of weight
constexpr double kSmallestRound = 4;
// By how many rounds the copies of an all-reduce are behind its sums, and further at each level:
// when a route has its turn of copies, what they wait for has come.
constexpr std::size_t kRoundsBehind = 3;
// Values of a digit for each member of the largest group: the first that makes no more than so
// many times the transfers that groups of one size would have.
constexpr std::size_t kValuesPerMember[] = {8, 4, 2, 1};
constexpr std::size_t kMostTimesTheFewest = 4;
// Of chunks, each moved by all ranks, in all rounds: what interpreters may have to look at.
constexpr std::size_t kMostMovements = std::size_t{1} << 24U;

/// A part of a round's chunks that a rank sends to where it is summed up, and gets back.
struct Handover {
  Rank from;
  Rank to;
  GraphBuilder::Range range;
};

struct Group {
  std::vector<std::size_t> members;  ///< groups of the level below, places of ranks at the lowest
  std::size_t ranks = 0;
};

struct Level {
  std::vector<Group> groups;
  std::size_t values = 1;     ///< of its digit
  std::size_t prefixes = 1;   ///< of the digits up to its own
  std::vector<Rank> holders;  ///< by group and prefix
};

/// Members are by their places in near order, so that those of several groups that deal with each
/// other sit alike in their machines, whatever their numbers.
std::vector<Level> levels_of(const topology::Topology& topology, const std::vector<Rank>& order) {
  std::vector<Level> levels;
  std::vector<std::size_t> inner(order.size());  // by place, the group of the level below
  std::iota(inner.begin(), inner.end(), 0);
  for (const auto& partition : topology::nested_groups(topology)) {
    std::vector<std::size_t> group_of(order.size());  // by rank
    for (std::size_t g = 0; g < partition.size(); ++g) {
      for (const Rank rank : partition[g].ranks) {
        group_of[rank.index()] = g;
      }
    }
    Level& level = levels.emplace_back();
    std::vector<std::optional<std::size_t>> number(partition.size());
    for (std::size_t place = 0; place < order.size(); ++place) {
      std::optional<std::size_t>& g = number[group_of[order[place].index()]];
      if (!g) {
        g = level.groups.size();
        level.groups.emplace_back();
      }
      Group& group = level.groups[*g];
      ++group.ranks;
      group.members.push_back(inner[place]);
      inner[place] = *g;
    }
    for (Group& group : level.groups) {
      std::sort(group.members.begin(), group.members.end());
      group.members.erase(std::unique(group.members.begin(), group.members.end()),
                          group.members.end());
    }
  }
  return levels;
}

class Nesting {
 public:
  explicit Nesting(const topology::Topology& topology)
      : order_(near_order(topology)), levels_(levels_of(topology, order_)) {}

  std::size_t level_count() const { return levels_.size(); }
  std::size_t chunk_count() const { return levels_.back().prefixes; }

  /// Transfers of a round in one direction, at least.
  std::size_t fewest_moves() const {
    std::size_t moves = 0;
    for (const Level& level : levels_) {
      for (const Group& group : level.groups) {
        moves += group.ranks * (group.members.size() - 1);
      }
    }
    return moves;
  }

  /// Says who sums up which chunks, by digits of at most so many values for each member of the
  /// largest group; false where that makes too many chunks.
  bool choose_digits(std::size_t per_member);

  /// Of a level, in the order in which they are to be sent.
  std::vector<Handover> moves(std::size_t level) const;

  /// By chunk of a round the rank that sums it up in the end.
  const std::vector<Rank>& owners() const { return levels_.back().holders; }

 private:
  /// Where a member of a group of the level has the chunks of a prefix of the level.
  Rank holder_in(std::size_t level, std::size_t member, std::size_t prefix) const {
    if (level == 0) {
      return order_[member];
    }
    const Level& below = levels_[level - 1];
    return below.holders[member * below.prefixes + prefix / levels_[level].values];
  }
  /// The place of the member that sums up the chunks of a prefix.
  std::size_t owner(std::size_t level, const Group& group, std::size_t prefix) const {
    const std::size_t values = levels_[level].values;
    return prefix % values * group.members.size() / values;
  }

  std::vector<Rank> order_;
  std::vector<Level> levels_;
};

std::size_t digit_values(const Level& level, std::size_t per_member) {
  std::size_t largest = 0;
  std::size_t values = 1;
  for (const Group& group : level.groups) {
    largest = std::max(largest, group.members.size());
  }
  for (const Group& group : level.groups) {
    values = std::lcm(values, group.members.size());
    if (values > per_member * largest) {
      return per_member * largest;
    }
  }
  return values;
}

bool Nesting::choose_digits(std::size_t per_member) {
  std::size_t prefixes = 1;
  for (Level& level : levels_) {
    level.values = digit_values(level, per_member);
    prefixes *= level.values;
    level.prefixes = prefixes;
    level.holders.clear();
    if (prefixes > kMostMovements / (2 * order_.size())) {
      return false;
    }
  }
  for (std::size_t l = 0; l < levels_.size(); ++l) {
    for (const Group& group : levels_[l].groups) {
      for (std::size_t prefix = 0; prefix < levels_[l].prefixes; ++prefix) {
        levels_[l].holders.push_back(holder_in(l, group.members[owner(l, group, prefix)], prefix));
      }
    }
  }
  return true;
}

std::vector<Handover> Nesting::moves(std::size_t l) const {
  const Level& level = levels_[l];
  const std::size_t width = chunk_count() / level.prefixes;
  std::size_t largest = 0;
  for (const Group& group : level.groups) {
    largest = std::max(largest, group.members.size());
  }
  std::vector<Handover> moves;
  // At each offset every member sends to one other, and to another than the others do.
  for (std::size_t offset = 1; offset < largest; ++offset) {
    for (const Group& group : level.groups) {
      const std::size_t k = group.members.size();
      if (offset >= k) {
        continue;
      }
      const std::size_t first = moves.size();
      for (std::size_t prefix = 0; prefix < level.prefixes; ++prefix) {
        const std::size_t to = owner(l, group, prefix);
        const std::size_t from = (to + k - offset) % k;
        const Handover move{
            holder_in(l, group.members[from], prefix),
            holder_in(l, group.members[to], prefix),
            {static_cast<std::uint32_t>(prefix * width), static_cast<std::uint32_t>(width)}};
        if (moves.size() > first && moves.back().from == move.from && moves.back().to == move.to) {
          moves.back().range.count += move.range.count;
        } else {
          moves.push_back(move);
        }
      }
    }
  }
  return moves;
}

/// Of a collective that runs alone. What the first round takes at the first level, and the last one
/// at the last, is time in which other links wait; in the middle small rounds would cost messages.
/// So a third of the rounds grow, from a sixteenth of the largest, and a third shrink again.
std::vector<std::uint32_t> sizes_of_swelling_rounds(std::size_t rounds) {
  const auto growing = static_cast<double>(rounds / 3);
  std::vector<std::uint32_t> sizes;
  for (std::size_t i = 0; i < rounds; ++i) {
    const auto from_end = static_cast<double>(std::min(i, rounds - 1 - i));
    const double smaller = std::max(0.0, 1 - from_end / growing);
    sizes.push_back(static_cast<std::uint32_t>(
        std::lround(kLargestRound * std::pow(kSmallestRound / kLargestRound, smaller))));
  }
  return sizes;
}

/// The chunks of all rounds, those of a round alike.
std::vector<std::uint32_t> chunks_of_rounds(std::size_t chunks,
                                            const std::vector<std::uint32_t>& sizes) {
  std::vector<std::uint32_t> weights;
  for (const std::uint32_t size : sizes) {
    weights.insert(weights.end(), chunks, size);
  }
  return weights;
}

/// The collective of some rounds being made. Transfers of a pair leave in the order of their ids,
/// and a pair meets at one level only. So that nothing of a round waits there for the copies of the
/// one before, all sums of an all-reduce come before its copies; or, if they `take_turns`, those of
/// later rounds between its copies, which fills links while the last sums are made.
class Rounds {
 public:
  Rounds(plan::Collective what, const ScheduleRequest& request, std::size_t chunks,
         const std::vector<std::uint32_t>& sizes, bool take_turns)
      : what_(what),
        take_turns_(take_turns),
        chunks_(chunks),
        rounds_(sizes.size()),
        ranks_(request.topology.rank_count()),
        has_codecs_(request.codecs.inside.is_lossy() || request.codecs.across.is_lossy()),
        builder_("hierarchical", request, chunks_of_rounds(chunks, sizes), what),
        sums_(ranks_ * rounds_),
        arrived_(ranks_ * rounds_),
        sent_(ranks_ * rounds_) {}

  plan::TransferGraph make(const std::vector<std::vector<Handover>>& by_level,
                           const std::vector<Rank>& owners);

 private:
  /// A transfer that others may wait for.
  struct Event {
    GraphBuilder::Range range;
    TransferId id;
    std::size_t level = 0;
  };
  using Events = std::vector<Event>;  // of one rank in one round

  void make_in_turns(const std::vector<std::vector<Handover>>& by_level);
  void reduce(std::size_t round, const Handover& move);
  void copy(std::size_t round, std::size_t level, bool is_outermost, const Handover& move);
  void wait_for(const Events& events, GraphBuilder::Range range) {
    for (const Event& event : events) {
      if (event.range.begin < range.begin + range.count &&
          range.begin < event.range.begin + event.range.count) {
        after_.push_back(event.id);
      }
    }
  }
  GraphBuilder::Range in_round(std::size_t round, GraphBuilder::Range range) const {
    return {static_cast<std::uint32_t>(round * chunks_) + range.begin, range.count};
  }

  plan::Collective what_;
  bool take_turns_;
  std::size_t chunks_;
  std::size_t rounds_;
  std::size_t ranks_;
  bool has_codecs_;
  GraphBuilder builder_;
  // By round and rank.
  std::vector<Events> sums_;     ///< into it
  std::vector<Events> arrived_;  ///< copies into it
  std::vector<Events> sent_;     ///< copies out of it that others wait for
  std::vector<TransferId> after_;
};

plan::TransferGraph Rounds::make(const std::vector<std::vector<Handover>>& by_level,
                                 const std::vector<Rank>& owners) {
  if (what_ == plan::Collective::kAllReduce && take_turns_) {
    make_in_turns(by_level);
    return builder_.take();
  }
  if (what_ != plan::Collective::kAllGather) {
    for (const std::vector<Handover>& moves : by_level) {
      for (std::size_t round = 0; round < rounds_; ++round) {
        for (const Handover& move : moves) {
          reduce(round, move);
        }
      }
    }
  }
  if (what_ != plan::Collective::kReduceScatter) {
    for (std::size_t level = by_level.size(); level-- > 0;) {
      for (std::size_t round = 0; round < rounds_; ++round) {
        for (const Handover& move : by_level[level]) {
          copy(round, level, level + 1 == by_level.size(), move);
        }
      }
    }
  }
  plan::TransferGraph graph = builder_.take();
  if (what_ != plan::Collective::kAllReduce) {
    std::vector<Rank> of_all;
    for (std::size_t round = 0; round < rounds_; ++round) {
      of_all.insert(of_all.end(), owners.begin(), owners.end());
    }
    graph.set_owners(std::move(of_all));
  }
  return graph;
}

void Rounds::make_in_turns(const std::vector<std::vector<Handover>>& by_level) {
  const std::size_t levels = by_level.size();
  for (std::size_t turn = 0; turn < rounds_ + kRoundsBehind * levels; ++turn) {
    for (std::size_t level = 0; level < levels && turn < rounds_; ++level) {
      for (const Handover& move : by_level[level]) {
        reduce(turn, move);
      }
    }
    for (std::size_t level = levels; level-- > 0;) {
      const std::size_t behind = kRoundsBehind * (levels - level);
      for (const Handover& move : by_level[level]) {
        if (turn >= behind && turn - behind < rounds_) {
          copy(turn - behind, level, level + 1 == levels, move);
        }
      }
    }
  }
}

void Rounds::reduce(std::size_t round, const Handover& move) {
  after_.clear();
  wait_for(sums_[round * ranks_ + move.from.index()], move.range);
  const TransferId id = builder_.reduce(move.from, move.to, in_round(round, move.range), after_);
  sums_[round * ranks_ + move.to.index()].push_back({move.range, id});
}

// What a rank has of a result is what arrived there and what it summed up itself, which it has sent
// at the outermost level, since every chunk goes to other members there. Others of the same level
// wait for the first copy of a range alone. With codecs those of inner levels must see what all
// copies made of the value; without, they only need what the first ones waited for.
void Rounds::copy(std::size_t round, std::size_t level, bool is_outermost, const Handover& move) {
  const Rank src = move.to;
  const Rank dst = move.from;
  Events& sent = sent_[round * ranks_ + src.index()];
  const auto first = std::find_if(sent.begin(), sent.end(), [&](const Event& event) {
    return event.level == level && event.range.begin <= move.range.begin &&
           move.range.begin + move.range.count <= event.range.begin + event.range.count;
  });
  after_.clear();
  const bool is_first = first == sent.end();
  if (!is_first) {
    after_.push_back(first->id);
  } else if (is_outermost) {
    wait_for(sums_[round * ranks_ + src.index()], move.range);
  } else {
    wait_for(arrived_[round * ranks_ + src.index()], move.range);
    wait_for(sent, move.range);
  }
  const TransferId id = builder_.copy(src, dst, in_round(round, move.range), after_);
  arrived_[round * ranks_ + dst.index()].push_back({move.range, id, level});
  if (is_first || has_codecs_) {
    sent.push_back({move.range, id, level});
  }
}

bool may_nest(const plan::Codec& codec) {
  return survives_many_hops(codec) && (!codec.is_lossy() || codec.is_elementwise());
}

bool own_as_many(const std::vector<Rank>& owners, std::size_t ranks) {
  std::vector<std::size_t> count(ranks);
  for (const Rank owner : owners) {
    ++count[owner.index()];
  }
  return std::ranges::all_of(count, [&](std::size_t own) { return own * ranks == owners.size(); });
}

}  // namespace

std::vector<plan::TransferGraph> nested_all_reduces(const ScheduleRequest& request) {
  return nested_collectives(plan::Collective::kAllReduce, request);
}

std::vector<plan::TransferGraph> nested_collectives(plan::Collective what,
                                                    const ScheduleRequest& request) {
  if (!may_nest(request.codecs.inside) || !may_nest(request.codecs.across)) {
    return {};
  }
  Nesting nesting(request.topology);
  const std::size_t ways = what == plan::Collective::kAllReduce ? 2 : 1;
  const std::size_t fewest = ways * nesting.fewest_moves();
  if (nesting.level_count() < kFewestLevels || fewest > request.most_transfers) {
    return {};
  }
  std::vector<std::vector<Handover>> by_level;
  std::size_t transfers = 0;
  for (const std::size_t per_member : kValuesPerMember) {
    if (!nesting.choose_digits(per_member)) {
      continue;
    }
    by_level.clear();
    transfers = 0;
    for (std::size_t level = 0; level < nesting.level_count(); ++level) {
      by_level.push_back(nesting.moves(level));
      transfers += ways * by_level.back().size();
    }
    if (transfers <= kMostTimesTheFewest * fewest) {
      break;
    }
  }
  if (by_level.empty() || (what != plan::Collective::kAllReduce &&
                           !own_as_many(nesting.owners(), request.topology.rank_count()))) {
    return {};
  }
  const std::size_t movements = ways * request.topology.rank_count() * nesting.chunk_count();
  const std::size_t most_rounds = request.is_of_one_size
                                      ? request.most_rounds
                                      : std::min(request.most_rounds, kMostRoundsOfTables);
  std::vector<plan::TransferGraph> graphs;
  const auto add = [&](const std::vector<std::uint32_t>& sizes, bool take_turns) {
    if (sizes.size() <= most_rounds && sizes.size() * transfers <= request.most_transfers &&
        sizes.size() * movements <= kMostMovements) {
      graphs.push_back(with_mechanism(
          Rounds(what, request, nesting.chunk_count(), sizes, take_turns)
              .make(by_level, nesting.owners()),
          fmt::format("{} levels, {}{}", nesting.level_count(), in_rounds_text(sizes.size()),
                      take_turns ? " that swell" : "")));
    }
  };
  // First: their times rule out the others by their bounds.
  for (const std::size_t rounds : kSwellingRounds) {
    if (request.is_of_one_size) {
      add(sizes_of_swelling_rounds(rounds), true);
    }
  }
  for (const std::size_t rounds : kRounds) {
    add(std::vector<std::uint32_t>(rounds, 1), false);
  }
  return graphs;
}

}  // namespace rackrail::planner

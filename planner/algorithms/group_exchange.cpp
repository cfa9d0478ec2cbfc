#include "planner/algorithms/group_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/algorithms/families.hpp"
#include "planner/groups/rank_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostLinesPerMember = 8;
constexpr std::size_t kMostTransfersOfUneven = 500'000;
constexpr std::size_t kMostDependencies = 4'000'000;

/// One all-reduce being made.
class Exchange {
 public:
  Exchange(const ScheduleRequest& request, const std::vector<std::uint32_t>& weights,
           std::size_t rounds);

  plan::TransferGraph make();

 private:
  Rank holder(std::size_t group, std::size_t line) const {
    return member_on_line(groups_[group], line);
  }
  // Of the round that is being made:
  GraphBuilder::Range chunk(std::size_t line, std::size_t owner) const {
    return {numbers_[place(line, owner)], 1};
  }
  bool is_empty(std::size_t line, std::size_t owner) const {
    return numbers_[place(line, owner)] == kNone;
  }
  std::size_t place(std::size_t line, std::size_t owner) const {
    return (round_ * lines_ + line) * groups_.size() + owner;
  }
  /// Of chunk (line, owner) in a group.
  std::size_t slot(std::size_t group, std::size_t line, std::size_t owner) const {
    return place(line, owner) * groups_.size() + group;
  }

  void sum_inside();
  void sum_across();
  void copy_across();
  void copy_inside();

  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::vector<topology::RankGroup> groups_;
  std::size_t lines_ = 0;
  std::size_t largest_ = 0;
  std::vector<std::uint32_t> numbers_;  ///< of chunks, by place(); none: there is nothing
  std::size_t rounds_ = 1;
  std::size_t round_ = 0;  ///< that is being made
  bool waits_for_first_copy_ = false;
  GraphBuilder builder_;
  std::vector<std::vector<TransferId>> sums_;  ///< by slot: what the holder's sum waits for
  std::vector<TransferId> results_;            ///< by slot: what brings the result to the holder
  std::vector<TransferId> first_copies_;       ///< by slot: the first one inside the group
};

std::size_t largest_group(const std::vector<topology::RankGroup>& groups) {
  std::size_t largest = 0;
  for (const topology::RankGroup& group : groups) {
    largest = std::max(largest, group.ranks.size());
  }
  return largest;
}

/// Whether the first copy of a chunk is what its other copies wait for, instead of all that it
/// sums up.
bool waits_for_first_copy(const std::vector<topology::RankGroup>& groups,
                          const TierCodecs& codecs) {
  const std::size_t k = groups.size();
  const std::size_t dependencies = exchange_lines(groups) * k * k * (largest_group(groups) + k);
  return codecs.inside.is_lossy() || codecs.across.is_lossy() || dependencies > kMostDependencies;
}

/// Parts of the buffer, by round: the first and the last two are smaller, since nothing goes across
/// before the first sums inside are there, and what came across last is then still to be copied
/// inside.
std::vector<std::uint32_t> parts_of_rounds(std::size_t rounds) {
  constexpr std::size_t kSmaller = 2;  // rounds at either end
  std::vector<std::uint32_t> parts(rounds);
  for (std::size_t i = 0; i < rounds; ++i) {
    parts[i] = 1U << std::min({i, rounds - 1 - i, kSmaller});
  }
  return parts;
}

/// Of the chunks that there are, in all rounds.
std::vector<std::uint32_t> positive(const std::vector<std::uint32_t>& weights, std::size_t count,
                                    std::size_t rounds) {
  std::vector<std::uint32_t> all;
  for (const std::uint32_t part : parts_of_rounds(rounds)) {
    for (std::size_t i = 0; i < count; ++i) {
      if (weights.empty() || weights[i] > 0) {
        all.push_back(part * (weights.empty() ? 1 : weights[i]));
      }
    }
  }
  return all;
}

Exchange::Exchange(const ScheduleRequest& request, const std::vector<std::uint32_t>& weights,
                   std::size_t rounds)
    : groups_(tier_groups(request.topology)),
      lines_(exchange_lines(groups_)),
      largest_(largest_group(groups_)),
      rounds_(rounds),
      waits_for_first_copy_(waits_for_first_copy(groups_, request.codecs)),
      builder_("hierarchical", request, positive(weights, lines_ * groups_.size(), rounds)),
      sums_(rounds * groups_.size() * lines_ * groups_.size()),
      results_(sums_.size()),
      first_copies_(sums_.size()) {
  std::uint32_t next = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t c = 0; c < lines_ * groups_.size(); ++c) {
      numbers_.push_back(weights.empty() || weights[c] > 0 ? next++ : kNone);
    }
  }
}

plan::TransferGraph Exchange::make() {
  // By how many rounds a phase is behind the first one: what is summed inside is there before its
  // turn across, and copies take theirs among sums that are made meanwhile.
  constexpr std::size_t kSumAcross = 0;
  constexpr std::size_t kCopyAcross = 1;
  constexpr std::size_t kCopyInside = 3;
  for (std::size_t turn = 0; turn < rounds_ + kCopyInside; ++turn) {
    const auto make_phase = [&](std::size_t behind, void (Exchange::*phase)()) {
      if (turn >= behind && turn - behind < rounds_) {
        round_ = turn - behind;
        (this->*phase)();
      }
    };
    make_phase(0, &Exchange::sum_inside);
    make_phase(kSumAcross, &Exchange::sum_across);
    make_phase(kCopyAcross, &Exchange::copy_across);
    make_phase(kCopyInside, &Exchange::copy_inside);
  }
  return builder_.take();
}

void Exchange::sum_inside() {
  const std::size_t k = groups_.size();
  for (std::size_t owner_step = 0; owner_step < k; ++owner_step) {
    for (std::size_t offset = 1; offset < largest_; ++offset) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::size_t members = groups_[i].ranks.size();
        const std::size_t blocks = (lines_ + members - 1) / members;
        // Chunks of far owners first: they have the longer way.
        const std::size_t j = (i + 1 + owner_step) % k;
        for (std::size_t m = 0; m < blocks * members && offset < members; ++m) {
          // In a block of lines each member sends once, and to another than the others do.
          const std::size_t l = m - m % members + (m + offset) % members;
          if (l < lines_ && !is_empty(l, j)) {
            sums_[slot(i, l, j)].push_back(
                builder_.reduce(holder(i, m), holder(i, l), chunk(l, j), {}));
          }
        }
      }
    }
  }
}

void Exchange::sum_across() {
  const std::size_t k = groups_.size();
  for (std::size_t offset = 1; offset < k; ++offset) {
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t j = (i + offset) % k;
      for (std::size_t l = 0; l < lines_; ++l) {
        if (is_empty(l, j)) {
          continue;
        }
        const TransferId id =
            builder_.reduce(holder(i, l), holder(j, l), chunk(l, j), sums_[slot(i, l, j)]);
        sums_[slot(j, l, j)].push_back(id);
      }
    }
  }
}

void Exchange::copy_across() {
  const std::size_t k = groups_.size();
  for (std::size_t offset = 1; offset < k; ++offset) {
    for (std::size_t j = 0; j < k; ++j) {
      const std::size_t i = (j + offset) % k;
      for (std::size_t l = 0; l < lines_; ++l) {
        if (is_empty(l, j)) {
          continue;
        }
        TransferId& sent = results_[slot(j, l, j)];
        const TransferId id =
            offset == 1 || !waits_for_first_copy_
                ? builder_.copy(holder(j, l), holder(i, l), chunk(l, j), sums_[slot(j, l, j)])
                : builder_.copy(holder(j, l), holder(i, l), chunk(l, j), {&sent, 1});
        if (offset == 1) {
          sent = id;
        }
        results_[slot(i, l, j)] = id;
      }
    }
  }
}

void Exchange::copy_inside() {
  const std::size_t k = groups_.size();
  // A copy inside must see what the copies across made of the value, so it comes after them all;
  // the first one inside is what the rest wait for.
  std::vector<std::vector<TransferId>> across(k * lines_);
  for (std::size_t j = 0; j < k; ++j) {
    for (std::size_t i = 0; i < k; ++i) {
      for (std::size_t l = 0; l < lines_ && i != j; ++l) {
        if (is_empty(l, j)) {
          continue;
        }
        across[j * lines_ + l].push_back(results_[slot(i, l, j)]);
      }
    }
  }
  // Chunks of the own group are there first, or, where they wait for copies across and others are
  // there meanwhile, last.
  const std::size_t first_step = waits_for_first_copy_ && rounds_ > 1 ? 1 : 0;
  for (std::size_t owner_step = first_step; owner_step < k + first_step; ++owner_step) {
    for (std::size_t offset = 1; offset < largest_; ++offset) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::size_t j = (i + owner_step) % k;
        for (std::size_t l = 0; l < lines_ && offset < groups_[i].ranks.size(); ++l) {
          if (is_empty(l, j)) {
            continue;
          }
          const Rank src = holder(i, l);
          const Rank dst = holder(i, l + offset);
          TransferId& leader = first_copies_[slot(i, l, j)];
          if (offset > 1 && waits_for_first_copy_) {
            builder_.copy(src, dst, chunk(l, j), {&leader, 1});
          } else if (i == j) {
            leader = builder_.copy(
                src, dst, chunk(l, j),
                waits_for_first_copy_ ? across[j * lines_ + l] : sums_[slot(j, l, j)]);
          } else {
            leader = builder_.copy(src, dst, chunk(l, j), {&results_[slot(i, l, j)], 1});
          }
        }
      }
    }
  }
}

}  // namespace

std::size_t exchange_transfers_per_line(const std::vector<topology::RankGroup>& groups) {
  std::size_t others = 0;  // members beside the holder, over all groups
  for (const topology::RankGroup& group : groups) {
    others += group.ranks.size() - 1;
  }
  return 2 * groups.size() * (others + groups.size() - 1);
}

std::size_t exchange_lines(const std::vector<topology::RankGroup>& groups) {
  const std::size_t largest = largest_group(groups);
  const std::size_t most =
      std::max(largest, std::min(kMostLinesPerMember * largest,
                                 kMostTransfersOfUneven / exchange_transfers_per_line(groups)));
  std::size_t lines = 1;
  for (const topology::RankGroup& group : groups) {
    lines = std::lcm(lines, group.ranks.size());
    if (lines > most) {
      return most;
    }
  }
  return lines;
}

plan::TransferGraph make_group_exchange(const ScheduleRequest& request,
                                        const std::vector<std::uint32_t>& weights,
                                        std::size_t rounds) {
  return with_mechanism(
      Exchange(request, weights, rounds).make(),
      fmt::format("direct exchange across groups{}, {}", weights.empty() ? "" : " in unequal parts",
                  in_rounds_text(rounds)));
}

std::vector<CollectiveForm> group_exchange_forms(const ScheduleRequest& request,
                                                 const FormShape& one,
                                                 const std::vector<std::uint32_t>& weights) {
  std::vector<CollectiveForm> forms;
  for (std::size_t rounds = 2; rounds <= request.most_rounds; rounds *= 2) {
    const auto count = static_cast<std::int64_t>(rounds);
    FormShape shape = one;
    const std::vector<std::uint32_t> parts = parts_of_rounds(rounds);
    const auto sum = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    shape.largest_share *= std::ranges::max(parts) / static_cast<double>(sum);
    shape.transfers *= count;
    if (shape.transfers > static_cast<std::int64_t>(request.most_transfers)) {
      break;
    }
    // More parts are rounded, and no chunk is empty once each has an element.
    shape.bound->rounding = shape.bound->rounding * count;
    shape.bound->fewest_elements *= sum;  // the smallest part is 1
    forms.emplace_back(shape, [request, weights, rounds] {
      return make_group_exchange(request, weights, rounds);
    });
  }
  return forms;
}

}  // namespace rackrail::planner

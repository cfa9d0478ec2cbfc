#include "planner/algorithms/exchange_rounds.hpp"

#include <algorithm>
#include <numeric>
#include <span>

namespace rackrail::planner {

namespace {

constexpr std::size_t kSmallerRounds = 4;  // at either end, each half of the next one
// A round around one ring of groups, in units, and how much before the end of all that goes its way
// the last copies are cut, in 64ths. An all-reduce has additions to wait for meanwhile, and gains
// less by more messages.
constexpr std::uint32_t kUnitsOfRound = 24;
constexpr std::uint32_t kCutUnits = 64;
constexpr std::uint32_t kCuts[] = {1, 2, 4, 6, 10, 14, 22, 30, 46};
constexpr std::uint32_t kCutsOfAllReduce[] = {2, 4, 8};

/// Whether copies are cut so much before the end of what goes their way round.
bool are_copies_cut(plan::Collective what, std::uint32_t left, std::uint32_t all) {
  const auto cuts = what == plan::Collective::kAllReduce
                        ? std::span<const std::uint32_t>(kCutsOfAllReduce)
                        : std::span<const std::uint32_t>(kCuts);
  return what != plan::Collective::kReduceScatter &&
         std::ranges::any_of(cuts, [&](std::uint32_t cut) {
           return left == (cut * all + kCutUnits / 2) / kCutUnits;
         });
}

}  // namespace

std::uint32_t ExchangeRound::size() const {
  return std::accumulate(parts.begin(), parts.end(), std::uint32_t{0});
}

std::vector<std::uint32_t> round_sizes(std::size_t rounds) {
  const std::size_t smaller = std::min(rounds / 3, kSmallerRounds);
  std::vector<std::uint32_t> sizes;
  for (std::size_t i = 0; i < rounds; ++i) {
    sizes.push_back(1U << std::min({i, rounds - 1 - i, smaller}));
  }
  return sizes;
}

bool Exchange::is_ring_of_groups() const {
  return parts.size() == 1 && parts.front().levels.size() == 2 &&
         parts.front().levels[0].growth == 1 && parts.front().levels[1].way == Way::kRing;
}

std::vector<ExchangeRound> rounds_of(const Exchange& exchange, plan::Collective what,
                                     std::size_t rounds, bool alternate) {
  std::vector<ExchangeRound> all;
  if (rounds == 1 || !exchange.is_ring_of_groups()) {
    for (const std::uint32_t size : round_sizes(rounds)) {
      all.push_back({{size}, {}});
    }
    return all;
  }
  const std::size_t ways = alternate ? 2 : 1;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::size_t of_way = (rounds - round % ways + ways - 1) / ways;
    const auto units = static_cast<std::uint32_t>(of_way * kUnitsOfRound);
    ExchangeRound& one = all.emplace_back(ExchangeRound{{0}, {0}});
    for (std::uint32_t unit = 0; unit < kUnitsOfRound; ++unit) {
      const auto before = static_cast<std::uint32_t>(round / ways * kUnitsOfRound + unit);
      if (unit > 0 && are_copies_cut(what, units - before, units)) {
        one.parts.push_back(0);
        one.ends.push_back(0);
      }
      ++one.parts.back();
      one.ends.back() = (before + 1.0) / (units + 1.0);
    }
  }
  return all;
}

std::uint64_t more_parts(const std::vector<ExchangeRound>& rounds) {
  std::uint64_t more = 0;
  for (const ExchangeRound& round : rounds) {
    more += round.parts.size() - 1;
  }
  return more;
}

}  // namespace rackrail::planner

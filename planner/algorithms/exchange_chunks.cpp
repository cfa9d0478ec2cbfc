#include "planner/algorithms/exchange_chunks.hpp"

#include <algorithm>
#include <numeric>

#include "planner/algorithms/binary_tree.hpp"

namespace rackrail::planner {

namespace {

// Chunks of a round, each moved by all ranks: what interpreters may have to look at.
constexpr std::uint64_t kMostMovements = std::uint64_t{1} << 24U;
constexpr std::uint64_t kLargestUnit = 4096;  // of the weights of chunks of which ranks own as much

}  // namespace

ChunkDigits::ChunkDigits(const ExchangePart& part, std::size_t per_member) : part_(part) {
  const auto& levels = part.hierarchy.levels();
  std::size_t prefixes = 1;
  for (std::size_t l = 0; l < levels.size(); ++l) {
    values_.push_back(values_of(l, per_member));
    prefixes *= values_.back();
    prefixes_.push_back(prefixes);
    if (is_too_large()) {
      return;
    }
  }
  for (std::size_t l = 0; l < levels.size(); ++l) {
    auto& holders = holders_.emplace_back();
    for (const RankHierarchy::Group& group : levels[l]) {
      const std::size_t members = group.members.size();
      for (std::size_t prefix = 0; prefix < prefixes_[l]; ++prefix) {
        const std::size_t member = group.members[owner(l, members, prefix % values_[l])];
        holders.push_back(holder(l, member, prefix));
      }
    }
  }
}

bool ChunkDigits::is_too_large() const {
  return prefixes_.back() > kMostMovements / part_.hierarchy.rank_count();
}

Rank ChunkDigits::home(std::size_t chunk) const {
  const LineLane* lane_of = lane(chunk);
  if (lane_of == nullptr || lane_of->owner == lane_of->line) {
    return carrier(chunk);
  }
  const RankHierarchy& hierarchy = part_.hierarchy;
  const auto& members = hierarchy.level(0)[hierarchy.group_of(carrier(chunk))].members;
  return hierarchy.rank_at(members[lane_of->owner % members.size()]);
}

std::vector<DigitRun> ChunkDigits::runs(std::size_t l, std::size_t members) const {
  const bool may_join = l > 0 && part_.levels[l].growth == 0 && way(l) != Way::kTree;
  std::vector<DigitRun> runs;
  for (std::size_t value = 0; value < values_[l]; ++value) {
    const std::size_t of = owner(l, members, value);
    if (may_join && !runs.empty() && runs.back().owner == of) {
      ++runs.back().count;
    } else {
      runs.push_back({value, 1, of});
    }
  }
  return runs;
}

std::size_t ChunkDigits::values_of(std::size_t l, std::size_t per_member) const {
  if (way(l) == Way::kTree) {
    return 2;
  }
  if (l == 0 && !part_.lanes.empty()) {
    return part_.lanes.size();
  }
  if (part_.levels[l].values > 0) {
    return part_.levels[l].values;
  }
  const std::size_t most = per_member * part_.hierarchy.largest(l);
  std::size_t values = 1;
  for (const RankHierarchy::Group& group : part_.hierarchy.level(l)) {
    values = std::lcm(values, group.members.size());
    if (values > most) {
      return most;
    }
  }
  return values;
}

std::size_t ChunkDigits::owner(std::size_t l, std::size_t members, std::size_t value) const {
  if (way(l) == Way::kTree) {
    return make_binary_tree(members, value == 1).from_root.front();
  }
  if (l == 0 &&
      part_.levels[l].values ==
          0) {  // lines, each at the same member of groups of all sizes if they have as many
    return (part_.lanes.empty() ? value : part_.lanes[value].line) % members;
  }
  return value * members / values_[l];
}

std::optional<std::vector<std::uint32_t>> weights_of(const ExchangePart& part,
                                                     const ChunkDigits& digits,
                                                     plan::Collective what) {
  const std::size_t chunks = digits.chunk_count();
  std::vector<std::uint64_t> weights(part.weights.begin(), part.weights.end());
  for (std::size_t chunk = weights.size(); chunk < chunks; ++chunk) {
    const LineLane* lane = digits.lane(chunk);
    weights.push_back(lane == nullptr ? 1 : lane->weight);
  }
  if (what == plan::Collective::kAllReduce) {
    // Nobody owns anything before it. Of lanes larger groups have as much for each member.
    for (std::size_t chunk = 0; chunk < chunks && digits.lane(chunk) != nullptr; ++chunk) {
      weights[chunk] *=
          part.hierarchy.level(0)[part.hierarchy.group_of(digits.home(chunk))].members.size();
    }
  } else {
    std::vector<std::uint64_t> owned(part.hierarchy.rank_count());
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      owned[digits.home(chunk).index()] += weights[chunk];
    }
    const std::uint64_t most = *std::ranges::max_element(owned) * kLargestUnit;
    std::uint64_t unit = 1;
    for (const std::uint64_t own : owned) {
      unit = own == 0 || unit > most ? 0 : std::lcm(unit, own);
      if (unit == 0) {
        return std::nullopt;
      }
    }
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      weights[chunk] *= unit / owned[digits.home(chunk).index()];
    }
  }
  std::uint64_t common = 0;
  for (const std::uint64_t weight : weights) {
    common = std::gcd(common, weight);
  }
  std::vector<std::uint32_t> lowest;
  for (const std::uint64_t weight : weights) {
    lowest.push_back(
        static_cast<std::uint32_t>(part.weight * weight / std::max<std::uint64_t>(common, 1)));
  }
  return lowest;
}

}  // namespace rackrail::planner

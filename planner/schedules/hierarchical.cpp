// Hierarchical all-reduce over groups of ranks (hosts, or racks of single-rank hosts).
//
// With k groups of g ranks the buffer has g·k chunks; chunk (l, j) is summed inside each group at
// the group's member l, then across groups at group j's member l, and goes back the same way. Only
// 2(k−1)/k of the buffer per group crosses groups, spread over the g members ("rails"): member l
// talks to the members l of the other groups only. All phases are one hop, so every codec is
// possible on either tier; chunks are the same in all phases, so slices pipeline through them.
//
// With a codec the sender of a copy goes on with what the receiver decodes, so that all end with
// the same bits: what it sends of the chunk afterwards waits for that. Without one it does not,
// unless there were very many to be waited for.
//
// Chunks are alike; where links are not, a second choice has chunks of the sizes that load links
// most evenly (planner/part_loads.hpp): a host with slow adapters owns little or nothing.
//
// Where groups are parts of larger ones (hosts of racks), there are also all-reduces that exchange
// level by level (planner/schedules/nested_groups.hpp).
//
// One collective that runs alone may also go along rings of groups (group_rings.hpp), which fill
// links better where ranks are very many; reduce-scatter and all-gather do so only.
//
// Groups of several sizes have as many lines l as each size divides, so that the members of a group
// have equally many: line l is at member l mod g of a group of g. Where that were more than eight
// times the largest group, or made more than half a million transfers, fewer: some members then
// have one line more than others.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "planner/forest/colours.hpp"
#include "planner/part_loads.hpp"
#include "planner/schedules/builder.hpp"
#include "planner/schedules/group_rings.hpp"
#include "planner/schedules/nested_groups.hpp"

namespace rackrail::planner {

namespace {

constexpr std::size_t kMostLinesPerMember = 8;
constexpr std::size_t kMostTransfersOfUneven = 500'000;
constexpr std::size_t kMostDependencies = 4'000'000;
// Of chunks whose sizes are chosen, by a linear program and the routes of all transfers.
constexpr std::size_t kMostChunksSized = 512;
constexpr std::size_t kMostTransfersSized = 100'000;
constexpr double kWorthSizing = 0.98;        // of the time with chunks that are alike
constexpr double kWeightScale = 1024;        // of a chunk of mean size
constexpr double kWorthAChunk = 0.01;        // of the mean size
constexpr std::int64_t kElements = 1 << 20;  // of which a codec's ratio is taken

/// One all-reduce being made.
class Phases {
 public:
  /// `weights` are those of chunks, line by line and in each by the owning group; none: all alike.
  explicit Phases(const ScheduleRequest& request, std::vector<std::uint32_t> weights = {});

  plan::TransferGraph make();

 private:
  Rank holder(std::size_t group, std::size_t line) const {
    const std::vector<Rank>& ranks = groups_[group].ranks;
    return ranks[line % ranks.size()];
  }
  GraphBuilder::Range chunk(std::size_t line, std::size_t owner) const {
    return {numbers_[line * groups_.size() + owner], 1};
  }
  bool is_empty(std::size_t line, std::size_t owner) const {
    return numbers_[line * groups_.size() + owner] == kNone;
  }
  /// Of chunk (line, owner) in a group.
  std::size_t slot(std::size_t group, std::size_t line, std::size_t owner) const {
    return (group * lines_ + line) * groups_.size() + owner;
  }

  void sum_inside();
  void sum_across();
  void copy_across();
  void copy_inside();

  static constexpr std::uint32_t kNone = UINT32_MAX;

  std::vector<topology::RankGroup> groups_;
  std::size_t lines_ = 0;
  std::size_t largest_ = 0;
  std::vector<std::uint32_t> numbers_;  ///< of chunks, by line and owner; none: there is nothing
  bool waits_for_first_copy_ = false;
  GraphBuilder builder_;
  std::vector<std::vector<TransferId>> sums_;  ///< by slot: what the holder's sum waits for
  std::vector<TransferId> results_;            ///< by slot: what brings the result to the holder
};

std::size_t largest_group(const std::vector<topology::RankGroup>& groups) {
  std::size_t largest = 0;
  for (const topology::RankGroup& group : groups) {
    largest = std::max(largest, group.ranks.size());
  }
  return largest;
}

/// Transfers of the chunks of one line.
std::size_t transfers_per_line(const std::vector<topology::RankGroup>& groups) {
  std::size_t others = 0;  // members beside the holder, over all groups
  for (const topology::RankGroup& group : groups) {
    others += group.ranks.size() - 1;
  }
  return 2 * groups.size() * (others + groups.size() - 1);
}

std::size_t line_count(const std::vector<topology::RankGroup>& groups) {
  const std::size_t largest = largest_group(groups);
  const std::size_t most = std::max(
      largest,
      std::min(kMostLinesPerMember * largest, kMostTransfersOfUneven / transfers_per_line(groups)));
  std::size_t lines = 1;
  for (const topology::RankGroup& group : groups) {
    lines = std::lcm(lines, group.ranks.size());
    if (lines > most) {
      return most;
    }
  }
  return lines;
}

/// Whether the first copy of a chunk is what its other copies wait for, instead of all that it
/// sums up.
bool waits_for_first_copy(const std::vector<topology::RankGroup>& groups,
                          const TierCodecs& codecs) {
  const std::size_t k = groups.size();
  const std::size_t dependencies = line_count(groups) * k * k * (largest_group(groups) + k);
  return codecs.inside.is_lossy() || codecs.across.is_lossy() || dependencies > kMostDependencies;
}

std::vector<std::uint32_t> positive(std::vector<std::uint32_t> weights, std::size_t count) {
  if (weights.empty()) {
    weights.assign(count, 1);
  }
  std::erase(weights, 0U);
  return weights;
}

Phases::Phases(const ScheduleRequest& request, std::vector<std::uint32_t> weights)
    : groups_(tier_groups(request.topology)),
      lines_(line_count(groups_)),
      largest_(largest_group(groups_)),
      waits_for_first_copy_(waits_for_first_copy(groups_, request.codecs)),
      builder_("hierarchical", request, positive(weights, lines_ * groups_.size())),
      sums_(groups_.size() * lines_ * groups_.size()),
      results_(sums_.size()) {
  std::uint32_t next = 0;
  for (std::size_t c = 0; c < lines_ * groups_.size(); ++c) {
    numbers_.push_back(weights.empty() || weights[c] > 0 ? next++ : kNone);
  }
}

plan::TransferGraph Phases::make() {
  sum_inside();
  sum_across();
  copy_across();
  copy_inside();
  return builder_.take();
}

void Phases::sum_inside() {
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

void Phases::sum_across() {
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

void Phases::copy_across() {
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

void Phases::copy_inside() {
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
  std::vector<TransferId> first(results_.size());
  for (std::size_t owner_step = 0; owner_step < k; ++owner_step) {
    for (std::size_t offset = 1; offset < largest_; ++offset) {
      for (std::size_t i = 0; i < k; ++i) {
        const std::size_t j = (i + owner_step) % k;
        for (std::size_t l = 0; l < lines_ && offset < groups_[i].ranks.size(); ++l) {
          if (is_empty(l, j)) {
            continue;
          }
          const Rank src = holder(i, l);
          const Rank dst = holder(i, l + offset);
          TransferId& leader = first[slot(i, l, j)];
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

double ratio(const plan::Codec& codec) {
  return static_cast<double>(plan::encoded_size(codec, kElements).count()) / (4.0 * kElements);
}

/// What each chunk moves over the links, line by line and in each by the owning group.
PartLoads chunk_loads(const ScheduleRequest& request,
                      const std::vector<topology::RankGroup>& groups) {
  PartLoads loads(request.topology);
  const double inside = request.codecs.inside.is_lossy() ? ratio(request.codecs.inside) : 1;
  const double across = request.codecs.across.is_lossy() ? ratio(request.codecs.across) : 1;
  const auto holder = [&](std::size_t group, std::size_t line) {
    return groups[group].ranks[line % groups[group].ranks.size()];
  };
  const auto exchange = [&](Rank one, Rank other, double bytes) {
    loads.cross(request.router.route(one, other), bytes);
    loads.cross(request.router.route(other, one), bytes);
  };
  const std::size_t lines = line_count(groups);
  for (std::size_t line = 0; line < lines; ++line) {
    for (std::size_t owner = 0; owner < groups.size(); ++owner) {
      for (std::size_t i = 0; i < groups.size(); ++i) {
        for (const Rank rank : groups[i].ranks) {
          if (rank != holder(i, line)) {
            exchange(rank, holder(i, line), inside);
          }
        }
        if (i != owner) {
          exchange(holder(i, line), holder(owner, line), across);
        }
      }
      loads.end_part();
    }
  }
  return loads;
}

/// Of chunks in the sizes that load links most evenly, where that is worth it; else none.
std::vector<std::uint32_t> best_weights(const ScheduleRequest& request) {
  const auto groups = tier_groups(request.topology);
  const std::size_t chunks = line_count(groups) * groups.size();
  if (chunks > kMostChunksSized ||
      line_count(groups) * transfers_per_line(groups) > kMostTransfersSized ||
      !are_ranks_unlike(request.topology)) {
    return {};
  }
  const PartLoads loads = chunk_loads(request, groups);
  const auto shares = loads.best_shares();
  const double mean = 1 / static_cast<double>(chunks);
  if (!shares ||
      loads.time(*shares) > kWorthSizing * loads.time(std::vector<double>(chunks, mean))) {
    return {};
  }
  std::vector<std::uint32_t> weights;
  for (const double share : *shares) {
    weights.push_back(share < kWorthAChunk * mean
                          ? 0
                          : static_cast<std::uint32_t>(std::lround(kWeightScale * share / mean)));
  }
  return weights;
}

class Hierarchical final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "hierarchical"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    const auto groups = tier_groups(topology);
    if (auto refusal = refuse_no_tiers(groups)) {
      return refusal;
    }
    // A rank that is alone in its group gets no copy inside, so it would keep what the codec
    // across made of the sum, where the others have what the one inside made of that.
    const bool has_single = std::any_of(groups.begin(), groups.end(),
                                        [](const auto& group) { return group.ranks.size() == 1; });
    if (has_single && codecs.inside.is_lossy() && !(codecs.inside == codecs.across)) {
      return "a group of one rank has no inside, so its bits would differ by another codec there";
    }
    return std::nullopt;
  }

  GraphSize graph_size(const topology::Topology& topology) const override {
    const auto groups = tier_groups(topology);
    const std::uint64_t transfers = line_count(groups) * transfers_per_line(groups);
    return {transfers, transfers};
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return Phases(request).make();
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(all_reduce(request));
    if (const std::vector<std::uint32_t> weights = best_weights(request); !weights.empty()) {
      graphs.push_back(Phases(request, weights).make());
    }
    for (plan::TransferGraph& graph : nested_all_reduces(request)) {
      graphs.push_back(std::move(graph));
    }
    return graphs;
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    // Ever more transfers, then fewer: series of their own (DivisionSearch).
    std::vector<CollectiveForm> forms = group_ring_forms(what, request);
    for (CollectiveForm& form : ScheduleFamily::collectives(what, request)) {
      forms.push_back(std::move(form));
    }
    return forms;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical() { return std::make_unique<Hierarchical>(); }

}  // namespace rackrail::planner

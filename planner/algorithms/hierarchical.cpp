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
// Chunks are equal; where links are not, a second choice has chunks of the sizes that load links
// most evenly (planner/algorithms/part_loads.hpp): a host with slow adapters owns little or
// nothing. In rounds that fills the links of hosts of two kinds or sizes: those of which the others
// wait send what they have once, and receive the sum once.
//
// Where groups are parts of larger ones (hosts of racks), there are also collectives that exchange
// level by level (planner/algorithms/nested_groups.hpp).
//
// One collective that runs alone may also go along rings of groups (group_rings.hpp), which fill
// links better where ranks are very many, or along rings of rings (group_grids.hpp), which are
// fewer hops; reduce-scatter and all-gather do so, or level by level, and where some lines are slow
// the others carry more. Where some groups are slow on some lines, all-reduces pass these by
// (bypass_rings.hpp). Or it goes as above in several rounds, which overlap (group_exchange.hpp).
//
// Groups of several sizes have as many lines l as each size divides, so that the members of a group
// have equally many: line l is at member l mod g of a group of g. Where that were more than eight
// times the largest group, or made more than half a million transfers, fewer: some members then
// have one line more than others.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "planner/algorithms/bypass_rings.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/group_exchange.hpp"
#include "planner/algorithms/group_grids.hpp"
#include "planner/algorithms/group_rings.hpp"
#include "planner/algorithms/nested_groups.hpp"
#include "planner/algorithms/part_loads.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/colours.hpp"

namespace rackrail::planner {

namespace {

// Of chunks whose sizes are chosen, by a linear program and the routes of all transfers.
constexpr std::size_t kMostChunksSized = 512;
constexpr std::size_t kMostTransfersSized = 100'000;
constexpr double kWorthSizing = 0.98;        // of the time with chunks that are alike
constexpr double kWeightScale = 1024;        // of a chunk of mean size
constexpr double kWorthAChunk = 0.01;        // of the mean size
constexpr std::int64_t kElements = 1 << 20;  // of which a codec's ratio is taken

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
    return member_on_line(groups[group], line);
  };
  const auto exchange = [&](Rank one, Rank other, double bytes) {
    loads.cross(request.router.route(one, other), bytes);
    loads.cross(request.router.route(other, one), bytes);
  };
  const std::size_t lines = exchange_lines(groups);
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
  const std::size_t chunks = exchange_lines(groups) * groups.size();
  if (chunks > kMostChunksSized ||
      exchange_lines(groups) * exchange_transfers_per_line(groups) > kMostTransfersSized ||
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
    const std::uint64_t transfers = exchange_lines(groups) * exchange_transfers_per_line(groups);
    return {transfers, transfers};
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return make_group_exchange(request);
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(all_reduce(request));
    if (const std::vector<std::uint32_t> weights = best_weights(request); !weights.empty()) {
      graphs.push_back(make_group_exchange(request, weights));
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
    std::ranges::move(group_grid_forms(what, request), std::back_inserter(forms));
    if (what != plan::Collective::kAllReduce) {
      for (plan::TransferGraph& graph : nested_collectives(what, request)) {
        forms.emplace_back(std::move(graph), request.topology);
      }
      return forms;
    }
    const bool has_rings = !forms.empty();
    std::ranges::move(bypass_ring_forms(request), std::back_inserter(forms));
    // That of all_reduce() in ever more rounds is one series.
    forms.emplace_back(all_reduce(request), request.topology);
    // Where there are rings, they are as fast by prediction, and faster over TCP: the more ranks
    // share a link, the more is lost (1.02 instead of 1.08 of the bound on four racks of two).
    if (!has_rings) {
      const FormShape one = forms.back().shape();
      std::ranges::move(group_exchange_forms(request, one), std::back_inserter(forms));
    }
    if (const std::vector<std::uint32_t> weights = best_weights(request); !weights.empty()) {
      forms.emplace_back(make_group_exchange(request, weights), request.topology);
      const FormShape one = forms.back().shape();
      std::ranges::move(group_exchange_forms(request, one, weights), std::back_inserter(forms));
    }
    for (plan::TransferGraph& graph : nested_all_reduces(request)) {
      forms.emplace_back(std::move(graph), request.topology);
    }
    return forms;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical() { return std::make_unique<Hierarchical>(); }

}  // namespace rackrail::planner

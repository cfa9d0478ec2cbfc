// Hierarchical collectives over groups of ranks (hosts, or racks of single-rank hosts):
// group_exchanges.hpp.
//
// The usual one, of every bucket, goes across groups in one hop: with k groups of g ranks the
// buffer has g·k chunks; chunk (l, j) is summed inside each group at the group's member l, then
// across groups at group j's member l, and goes back the same way. Only 2(k−1)/k of the buffer per
// group crosses groups, spread over the g members ("rails"): member l talks to the members l of the
// other groups only. All phases are one hop, so every codec is possible on either tier; chunks are
// the same in all phases, so slices pipeline through them.
//
// Chunks are equal; where links are not, a second choice has chunks of the sizes that load links
// most evenly (planner/algorithms/part_loads.hpp): a host with slow adapters owns little or
// nothing. In rounds that fills the links of hosts of two kinds or sizes: those of which the others
// wait send what they have once, and receive the sum once.
//
// Where groups are parts of larger ones (hosts of racks), there are also exchanges level by level.
// Large collectives may also go along rings of groups, which fill links better where ranks are very
// many, or along rings of rings, which are fewer hops; where some lines are slow the others carry
// more. Where some groups are slow on some lines, all-reduces pass these by (bypass_rings.hpp).
#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "planner/algorithms/bypass_rings.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/group_exchanges.hpp"
#include "planner/algorithms/part_loads.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/colours.hpp"

namespace rackrail::planner {

namespace {

// Of chunks whose sizes are chosen, by a linear program and the routes of all transfers.
constexpr std::size_t kMostChunksSized = 512;
constexpr std::size_t kMostTransfersSized = 100'000;
// Ever more transfers. Those along rings may go both ways round, every other one.
constexpr std::size_t kRoundsOfRings[] = {1, 2, 3, 4, 6, 8, 16, 32};
constexpr std::size_t kRoundsBothWays[] = {2, 4, 6, 8, 16, 32};
constexpr std::size_t kRoundsOfGrids[] = {1, 2, 3, 4, 6, 8, 16};
constexpr std::size_t kRoundsOfGridsBothWays[] = {1, 2, 4, 6, 8, 16};
constexpr std::size_t kRoundsOfDirect[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
constexpr std::size_t kRoundsOfLevels[] = {1, 4, 16, 24, 48, 96, 192};
constexpr std::size_t kFewestLevels = 3;     // fewer are groups
constexpr double kWorthSizing = 0.98;        // of the time with chunks that are alike
constexpr double kWeightScale = 1024;        // of a chunk of mean size
constexpr double kWorthAChunk = 0.01;        // of the mean size
constexpr std::int64_t kElements = 1 << 20;  // of which a codec's ratio is taken

double ratio(const plan::Codec& codec) {
  return static_cast<double>(plan::encoded_size(codec, kElements).count()) / (4.0 * kElements);
}

/// What each chunk moves over the links, line by line and in each by the owning group.
PartLoads chunk_loads(const ScheduleRequest& request, std::size_t lines) {
  const std::vector<topology::RankGroup> groups = ring_of_groups(request.topology);
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
  const Exchange exchange = direct_exchange(request.topology);
  const std::size_t chunks = exchange_chunks(exchange);
  if (chunks > kMostChunksSized || !are_ranks_unlike(request.topology) ||
      exchange_transfers(exchange, plan::Collective::kAllReduce) > kMostTransfersSized) {
    return {};
  }
  const PartLoads loads = chunk_loads(request, chunks / tier_groups(request.topology).size());
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
    const std::uint64_t transfers =
        exchange_transfers(direct_exchange(topology), plan::Collective::kAllReduce);
    return {transfers, transfers};
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return make_exchange(direct_exchange(request.topology), plan::Collective::kAllReduce, request);
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(all_reduce(request));
    if (const std::vector<std::uint32_t> weights = best_weights(request); !weights.empty()) {
      graphs.push_back(make_exchange(direct_exchange(request.topology, weights),
                                     plan::Collective::kAllReduce, request));
    }
    for (const CollectiveForm& form : by_levels(plan::Collective::kAllReduce, request)) {
      graphs.push_back(form.graph());
    }
    return graphs;
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    // Ever more transfers, then fewer: series of their own (DivisionSearch).
    std::vector<CollectiveForm> forms = along_rings(what, request);
    const bool has_rings = !forms.empty();
    if (what == plan::Collective::kAllReduce) {
      append(bypass_ring_forms(request), forms);
      // Where there are rings, they are as fast by prediction, and faster over TCP: the more ranks
      // share a link, the more is lost (1.02 instead of 1.08 of the bound on four racks of two).
      const std::span<const std::size_t> rounds = kRoundsOfDirect;
      append(exchange_forms(direct_exchange(request.topology), what, request,
                            has_rings ? rounds.first(1) : rounds),
             forms);
      if (const std::vector<std::uint32_t> weights = best_weights(request); !weights.empty()) {
        append(exchange_forms(direct_exchange(request.topology, weights), what, request, rounds),
               forms);
      }
    }
    append(by_levels(what, request), forms);
    return forms;
  }

 private:
  static void append(std::vector<CollectiveForm> more, std::vector<CollectiveForm>& forms) {
    std::ranges::move(more, std::back_inserter(forms));
  }

  static std::vector<CollectiveForm> by_levels(plan::Collective what,
                                               const ScheduleRequest& request) {
    const Exchange exchange = level_exchange(request.topology);
    const auto may_nest = [](const plan::Codec& codec) {
      return !codec.is_lossy() || codec.is_elementwise();
    };
    if (!may_nest(request.codecs.inside) || !may_nest(request.codecs.across) ||
        exchange.parts.front().levels.size() < kFewestLevels) {
      return {};
    }
    return exchange_forms(exchange, what, request, kRoundsOfLevels);
  }

  static std::span<const std::size_t> rounds_of_grids(bool is_one_way) {
    return is_one_way ? std::span<const std::size_t>(kRoundsOfGrids)
                      : std::span<const std::size_t>(kRoundsOfGridsBothWays);
  }

  /// With uneven loads of lines first, so that even ones need not be looked at where these are
  /// faster than their bounds.
  static std::vector<CollectiveForm> along_rings(plan::Collective what,
                                                 const ScheduleRequest& request) {
    std::vector<CollectiveForm> forms;
    const topology::Topology& topology = request.topology;
    if (refuse_group_rings(topology, request.codecs)) {
      return forms;
    }
    const auto add = [&](const GridSides& sides, const LineLanes& lanes,
                         std::span<const std::size_t> rounds, bool goes_both_ways) {
      append(exchange_forms(ring_exchange(topology, sides, lanes), what, request, rounds,
                            goes_both_ways),
             forms);
    };
    const LineLanes lanes = uneven_lanes(what, request);
    const GridSides one = {tier_groups(topology).size()};
    if (!lanes.empty()) {
      add(one, lanes, kRoundsOfRings, false);
      add(one, lanes, kRoundsBothWays, true);
    }
    add(one, {}, kRoundsOfRings, false);
    add(one, {}, kRoundsBothWays, true);
    if (request.codecs.inside.is_lossy()) {
      return forms;  // what several rings brought is copied inside in one range
    }
    // A message's overhead keeps its pair of ranks from sending, not the link, so pieces that go
    // both ways round lose less; but the last copies of both then come together. Along uneven lanes
    // both would share what the slowest member has.
    const bool is_copy = what == plan::Collective::kAllGather;
    if (!lanes.empty()) {
      for (const GridSides& sides : two_sides(topology)) {
        const bool is_one_way = what != plan::Collective::kReduceScatter;
        add(sides, lanes, rounds_of_grids(is_one_way), !is_one_way);
      }
    }
    for (const GridSides& sides : group_grid_sides(topology)) {
      add(sides, {}, rounds_of_grids(is_copy), !is_copy);
    }
    return forms;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_hierarchical() { return std::make_unique<Hierarchical>(); }

}  // namespace rackrail::planner

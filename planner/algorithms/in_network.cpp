// All-reduce by switches that add and copy what passes (NVSwitch, SHARP): each byte is summed on
// its way to one rank, its root, and copied on its way back, so that a link carries it once in each
// direction, where a ring carries it nearly twice.
//
// Two shapes. Flat: every chunk has a tree over all ranks. In groups (hosts): with g ranks in each
// group, g shards are summed inside at one member each, the members of one number sum across groups
// over trees of their own, and all goes back the same way; a link across carries 1/g of the buffer.
// On a set of ranks where switches cannot add, or cannot copy, that half is done by direct
// transfers from or to the root.
//
// Roots take turns, and trees take the emptiest links (switch_trees.hpp). The more chunks, the more
// evenly links and additions are used, and the more transfers there are: the fewest are taken that
// are within kGoodEnough of the best, by what the fullest link and the busiest rank need. Where the
// sums across groups are direct transfers, more rounds of chunks are a second choice: groups then
// begin with different roots, and the phases overlap.
//
// A message's overhead keeps its sender from the next one to the same root, so links wait for it
// between slices, where small ones would fill the pipeline soonest. For a large collective alone
// there is a third choice, in which chunks have two roots in turn, so that one sends while the
// other prepares. Both are in one group: sums and copies of two groups would meet on the links of
// either, and hold each other up where one pauses. In that group shard s is at member s for one
// chunk and at member s + 1 for the next, whose own links have as much room as it leaves on the
// first one's. Chunks grow, as a second one is only there once the inside of groups, which is a
// little faster than what is across, is ahead by it; and they shrink, as copies inside begin with
// the next chunk when those of the one before are all made.
//
// Before all of these, where links are heterogeneous and the bound allows more than such trees,
// those that switch_packing.hpp packs are tried; switch_schedule.hpp sends along them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "base/work.hpp"
#include "plan/alpha_beta.hpp"
#include "plan/cost_model.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/in_network_shards.hpp"
#include "planner/groups/rank_groups.hpp"
#include "planner/packing/switch_packing.hpp"
#include "planner/packing/switch_trees.hpp"
#include "planner/pipeline/switch_schedule.hpp"

namespace rackrail::planner {

namespace {

using plan::TransferOp;
using Shape = ShardShape;

constexpr std::size_t kMostTransfersInNetwork = 130'000;
constexpr std::size_t kMostTransfersInTurn = 520'000;  // as 1,024 ranks have
constexpr std::size_t kMostRanksInNetwork = 1024;
constexpr std::size_t kMostChunks = 64;  // per shard
constexpr std::size_t kInNetworkRounds[] = {16, 32};
constexpr double kGoodEnough = 0.002;
// Of packed trees: what the bound must be above others' rate, and they above it; and rounds, of
// which more fill the pipeline sooner.
constexpr double kWorthPacking = 1.005;
constexpr std::size_t kPackedRoundsOfBuckets[] = {1, 4, 16};
constexpr std::size_t kPackedRounds[] = {1, 4, 16, 32, 64, 96, 128, 192, 256};
constexpr std::size_t kMostPackedTransfers = 500'000;
constexpr double kBytesPerElement = 4;
constexpr double kSliceBytes = 1 << 20;  // an addition's fixed cost is of a slice like this

std::vector<Shape> shapes_of(const topology::Topology& topology) {
  std::vector<Shape> shapes(1);
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    shapes[0].groups.push_back({Rank(r)});
  }
  if (!refuse_uneven_groups(topology)) {
    Shape& grouped = shapes.emplace_back();
    for (const topology::RankGroup& group : tier_groups(topology)) {
      grouped.groups.push_back(group.ranks);
    }
  }
  return shapes;
}

/// Seconds per byte that the fullest link and the rank with most additions need at least.
double cost(const plan::TransferGraph& graph, const topology::Topology& topology) {
  std::vector<double> added(topology.rank_count());
  const auto weights = graph.chunk_weights();
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t next = 0;
  const auto groups = graph.groups();
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const plan::Transfer& t = graph.transfers()[i];
    while (next < groups.size() && groups[next].first.index() + groups[next].count <= i) {
      ++next;
    }
    const bool is_counted = next < groups.size() && groups[next].first.index() < i;
    if (t.op == TransferOp::kReduce && !is_counted) {
      added[t.dst.index()] += weights[t.chunk_begin] / whole;  // it is of one chunk
    }
  }
  double most = plan::alpha_beta(graph, topology).seconds_per_element / kBytesPerElement;
  for (std::size_t r = 0; r < added.size(); ++r) {
    const plan::DeviceRates rates = plan::device_rates(topology, Rank(r));
    most = std::max(most, added[r] * (1 / static_cast<double>(rates.reduce.bytes_per_second()) +
                                      rates.launch.seconds() / kSliceBytes));
  }
  return most;
}

/// A graph, and what it costs.
using Found = std::pair<double, plan::TransferGraph>;

/// Powers of two and `most`; and as many as some switch has ways on, and these doubled: chunks that
/// three or five ways divide evenly.
std::set<std::size_t> chunk_counts(const topology::Topology& topology, std::size_t most) {
  std::set<std::size_t> ways = {1};
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    if (topology.rank_of(NodeId(v))) {
      continue;
    }
    const auto links = topology.links_out_of(NodeId(v));
    const auto onward = std::ranges::count_if(
        links, [&](LinkId link) { return !topology.rank_of(topology.link(link).to); });
    ways.insert(std::max<std::size_t>(1, static_cast<std::size_t>(onward)));
  }
  std::set<std::size_t> counts = {most};
  for (const std::size_t first : ways) {
    for (std::size_t count = first; count < most; count *= 2) {
      counts.insert(count);
    }
  }
  return counts;
}

/// The graph of a shape with the fewest chunks that are enough, and some with more rounds where it
/// has one for each root; none without a group in it. Where work is stopped, what was found so far.
std::vector<Found> best_of(const ScheduleRequest& request, const Shape& shape) {
  std::optional<Found> best;
  std::size_t best_chunks = 0;
  std::vector<Found> found;
  try {
    for (const std::size_t chunks :
         chunk_counts(request.topology, std::min(shape.groups.size(), kMostChunks))) {
      plan::TransferGraph graph = make_shards(request, shape, even_cut(shape, chunks));
      if (graph.groups().empty() || (best && graph.transfers().size() > kMostTransfersInNetwork)) {
        break;
      }
      const double seconds = cost(graph, request.topology);
      if (!best || seconds < best->first * (1 - kGoodEnough)) {
        best.emplace(seconds, std::move(graph));
        best_chunks = chunks;
      }
    }
  } catch (const WorkStopped&) {
    if (best) {
      found.push_back(std::move(*best));
    }
    return found;
  }
  if (!best) {
    return found;
  }
  const double seconds = best->first;
  const std::size_t most =
      std::min(request.most_rounds, kMostTransfersInNetwork / best->second.transfers().size());
  found.push_back(std::move(*best));
  std::size_t last = 1;
  for (const std::size_t fine : kInNetworkRounds) {
    const std::size_t rounds = std::min(fine, most);
    if (shape.shards() > 1 && best_chunks == shape.groups.size() && rounds > last) {
      found.emplace_back(seconds,
                         make_shards(request, shape, even_cut(shape, best_chunks * rounds)));
      last = rounds;
    }
  }
  return found;
}

/// All that best_of() finds, the cheapest first.
std::vector<plan::TransferGraph> by_cost(std::vector<Found> found) {
  std::stable_sort(found.begin(), found.end(),
                   [](const Found& a, const Found& b) { return a.first < b.first; });
  std::vector<plan::TransferGraph> graphs;
  for (auto& [seconds, graph] : found) {
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

/// Bytes per second of the buffer that a graph's links leave room for.
double rate_by_links(const plan::TransferGraph& graph, const topology::Topology& topology) {
  return kBytesPerElement / plan::alpha_beta(graph, topology).seconds_per_element;
}

/// Trees that are packed, where the bound says that they may be better than what was found, and
/// they are; else null.
std::shared_ptr<const SwitchPacking> packed_trees(const ScheduleRequest& request,
                                                  const std::vector<Found>& found) {
  const topology::Topology& topology = request.topology;
  if (topology.rank_count() > kMostRanksOfSwitchTrees) {
    return nullptr;
  }
  double rate = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [seconds, graph] : found) {
    rate = std::max(rate, rate_by_links(graph, topology));
    least = std::min(least, seconds);
  }
  const Bandwidth bound = topology::joint_allreduce_bound(topology, true).algbw;
  if (rate * kWorthPacking >= static_cast<double>(bound.bytes_per_second())) {
    return nullptr;
  }
  auto packing = pack_switch_trees(topology, bound);
  if (!packing) {
    return nullptr;
  }
  const plan::TransferGraph once = all_reduce_along(*packing, request, 1, false);
  const bool is_better = cost(once, topology) * kWorthPacking <= least;
  return is_better && !once.groups().empty()
             ? std::make_shared<const SwitchPacking>(*std::move(packing))
             : nullptr;
}

/// Calls `visit` with numbers of rounds, and whether there are rates, that a graph may have.
template <typename Visit>
void for_each_packed_form(const SwitchPacking& packing, const ScheduleRequest& request,
                          std::span<const std::size_t> all_rounds, Visit visit) {
  const std::size_t once = transfers_in(packing);
  const std::size_t most =
      std::clamp(request.most_of_pipelines, kMostTransfersInNetwork, kMostPackedTransfers);
  for (const bool has_rates : {false, true}) {
    for (const std::size_t rounds : all_rounds) {
      if (rounds <= request.most_rounds && rounds * once <= most &&
          (!has_rates || request.may_have_rates)) {
        visit(rounds, has_rates);
      }
    }
  }
}

bool has_overheads(const topology::Topology& topology) {
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    if (topology.link(LinkId(l)).overhead > Duration()) {
      return true;
    }
  }
  return false;
}

/// Of a shape whose groups' sums switches add, where messages cost something and links carry no
/// more than in the shape's best graph.
std::optional<plan::TransferGraph> in_turn(const ScheduleRequest& request, const Shape& shape,
                                           const Found& best) {
  if (shape.shards() < 2 || !has_overheads(request.topology) || request.most_rounds < 2) {
    return std::nullopt;
  }
  const ShardCut cut = cut_in_turn();
  const std::size_t of_a_chunk = best.second.transfers().size() / best.second.chunk_count();
  const std::size_t most =
      std::clamp(request.most_of_pipelines, kMostTransfersInNetwork, kMostTransfersInTurn);
  if (of_a_chunk * shape.shards() * cut.weights.size() > most) {
    return std::nullopt;
  }
  if (!sums_across_in_network(request, shape, cut)) {
    return std::nullopt;
  }
  plan::TransferGraph graph = make_shards(request, shape, cut);
  if (cost(graph, request.topology) > best.first * (1 + kGoodEnough)) {
    return std::nullopt;
  }
  return graph;
}

class InNetworkFamily final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "in-network"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    if (topology.rank_count() > kMostRanksInNetwork) {
      return "there are too many ranks to look for trees over all of them";
    }
    topology::Router router(topology);
    const SwitchTrees trees(topology);
    if (!trees.any(TransferOp::kReduce) && !trees.any(TransferOp::kCopy)) {
      return "no switch reduces or multicasts";
    }
    if (codecs.inside.is_lossy() || codecs.across.is_lossy()) {
      return "switches add FP32 only";
    }
    for (const Shape& shape : shapes_of(topology)) {
      if (!make_shards({topology, router, codecs}, shape, even_cut(shape, 1)).groups().empty()) {
        return std::nullopt;
      }
    }
    return "no switch that reduces or multicasts joins the ranks of a group, or of all groups";
  }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    return std::move(all_reduces(request).front());
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    std::vector<Found> found;
    for (const Shape& shape : shapes_of(request.topology)) {
      std::ranges::move(best_of(request, shape), std::back_inserter(found));
    }
    std::vector<plan::TransferGraph> graphs;
    try {
      Work::ask();
      if (const auto packing = packed_trees(request, found)) {
        for_each_packed_form(
            *packing, request, kPackedRoundsOfBuckets, [&](std::size_t rounds, bool has_rates) {
              graphs.push_back(all_reduce_along(*packing, request, rounds, has_rates));
            });
      }
    } catch (const WorkStopped&) {
      if (found.empty()) {
        throw;
      }
      graphs.clear();
    }
    std::ranges::move(by_cost(std::move(found)), std::back_inserter(graphs));
    return graphs;
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    std::vector<CollectiveForm> forms;
    if (what != plan::Collective::kAllReduce) {
      return forms;
    }
    std::vector<Found> found;
    for (const Shape& shape : shapes_of(request.topology)) {
      std::vector<Found> of_shape = best_of(request, shape);
      if (of_shape.empty()) {
        continue;
      }
      if (auto graph = in_turn(request, shape, of_shape.front())) {
        forms.emplace_back(std::move(*graph), request.topology);
      }
      std::ranges::move(of_shape, std::back_inserter(found));
    }
    const auto packing = packed_trees(request, found);
    for (plan::TransferGraph& graph : by_cost(std::move(found))) {
      forms.emplace_back(std::move(graph), request.topology);
    }
    if (packing) {
      add_packed_forms(packing, request, forms);
    }
    return forms;
  }

 private:
  static void add_packed_forms(const std::shared_ptr<const SwitchPacking>& packing,
                               const ScheduleRequest& request, std::vector<CollectiveForm>& forms) {
    const FormShape once =
        CollectiveForm(all_reduce_along(*packing, request, 1, false), request.topology).shape();
    for_each_packed_form(*packing, request, kPackedRounds, [&](std::size_t rounds, bool has_rates) {
      forms.emplace_back(in_rounds(once, *packing, rounds), [packing, request, rounds, has_rates] {
        return all_reduce_along(*packing, request, rounds, has_rates);
      });
    });
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_in_network() { return std::make_unique<InNetworkFamily>(); }

}  // namespace rackrail::planner

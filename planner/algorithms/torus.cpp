// Collectives on grids and tori of directly linked ranks.
//
// The bucket algorithm: the buffer is divided into parts, one for each dimension, twice as many
// where there are rings. Part p is scattered along dimension p, what is left of it along dimension
// p + 1, and so on around all dimensions, and gathered back in the reverse order: an exchange
// (exchange.hpp) whose levels are dimensions. As every part starts in another dimension and twin
// parts go round rings in opposite directions, all links are busy in every phase: on a torus of N
// ranks with D equal dimensions a link carries (1 − 1/N)/(2D) of the buffer in each half, the least
// that the 2D links of a rank can do (Jain, Sabharwal, "Optimal bucket algorithms for large MPI
// collectives on torus interconnects", ICS 2010). Either half alone is a reduce-scatter or an
// all-gather: on a grid of paths the links of a corner are busy all the time.
//
// Where dimensions differ, parts of unequal weights load all links equally (grid_shares.hpp), but
// then they do not change dimensions together. So what a rank passes on along its next dimension
// may go in blocks: what it has had from the beginning at once, then what came first, then ever
// more (gathering; the reverse when scattering). Messages are as many times more.
//
// For all-reduces where there are paths there are also trees (grid_trees.hpp).
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/work.hpp"
#include "planner/algorithms/exchange.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/grid_shares.hpp"
#include "planner/algorithms/grid_trees.hpp"
#include "planner/algorithms/torus_exchange.hpp"
#include "planner/groups/rank_grid.hpp"

namespace rackrail::planner {

namespace {

constexpr std::uint32_t kGrowths[] = {4, 2};  // of blocks: ever more transfers

/// Whether parts that begin in different dimensions change them at the same time.
bool are_dimensions_alike(const RankGrid& grid, const topology::Topology& topology) {
  const std::vector<double> rates = dimension_rates(grid, topology);
  for (std::size_t d = 1; d < rates.size(); ++d) {
    if (grid.dimensions[d].size != grid.dimensions[0].size ||
        grid.dimensions[d].is_ring != grid.dimensions[0].is_ring || rates[d] < rates[0] ||
        rates[0] < rates[d]) {
      return false;
    }
  }
  return true;
}

/// With pairs of alike dimensions of two as rings of four: as many links, but fewer dimensions
/// whose phases have to fit together.
RankGrid with_rings_of_four(const RankGrid& grid, const topology::Topology& topology) {
  constexpr std::uint32_t kAround[2][2] = {{0, 1}, {3, 2}};
  const std::vector<double> rates = dimension_rates(grid, topology);
  RankGrid merged;
  merged.coordinates.resize(grid.coordinates.size());
  std::vector<bool> is_merged(rates.size());
  for (std::size_t d = 0; d < rates.size(); ++d) {
    if (is_merged[d]) {
      continue;
    }
    std::size_t other = d + 1;
    while (other < rates.size() &&
           (grid.dimensions[d].size != 2 || grid.dimensions[other].size != 2 || is_merged[other] ||
            rates[d] < rates[other] || rates[other] < rates[d])) {
      ++other;
    }
    const bool merges = other < rates.size();
    if (merges) {
      is_merged[other] = true;
    }
    merged.dimensions.push_back(merges ? RankGrid::Dimension{4, true} : grid.dimensions[d]);
    for (std::size_t r = 0; r < grid.coordinates.size(); ++r) {
      const auto& place = grid.coordinates[r];
      merged.coordinates[r].push_back(merges ? kAround[place[d]][place[other]] : place[d]);
    }
  }
  return merged;
}

/// Parts of such weights that they load all links alike; in ever finer blocks, too, where they
/// would wait for each other.
void add_balanced_forms(plan::Collective what, const RankGrid& grid, const ScheduleRequest& request,
                        std::vector<CollectiveForm>& forms) {
  const std::vector<std::uint32_t> weights = bucket_weights(grid, request.topology);
  const auto add = [&](std::uint32_t growth, std::uint64_t most) {
    const Exchange exchange = torus_exchange(grid, weights, growth);
    if (exchange_transfers(exchange, what) <= most) {
      forms.emplace_back(make_exchange(exchange, what, request), request.topology);
    }
  };
  add(0, kMostPlannedTransfers);
  if (!are_dimensions_alike(grid, request.topology)) {
    for (const std::uint32_t growth : kGrowths) {
      add(growth, request.most_pieces());
    }
  }
}

class Torus final : public ScheduleFamily {
 public:
  std::string_view name() const override { return "torus"; }

  std::optional<std::string> refusal(const topology::Topology& topology,
                                     const TierCodecs& codecs) const override {
    auto found = find_rank_grid(topology);
    if (auto* reason = std::get_if<std::string>(&found)) {
      return std::move(*reason);
    }
    return refuse_lossy_hops(codecs, Ranges::kJoined);
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const auto found = find_rank_grid(request.topology);
    return make_exchange(torus_exchange(std::get<RankGrid>(found)), plan::Collective::kAllReduce,
                         request);
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const auto found = find_rank_grid(request.topology);
    const auto& grid = std::get<RankGrid>(found);
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(all_reduce(request));
    const Exchange balanced =
        torus_exchange(grid, bucket_weights(grid, request.topology), kGrowths[0]);
    if (!are_dimensions_alike(grid, request.topology) &&
        exchange_transfers(balanced, plan::Collective::kAllReduce) <= request.most_transfers) {
      Work::step();
      graphs.push_back(make_exchange(balanced, plan::Collective::kAllReduce, request));
    }
    for (plan::TransferGraph& graph : grid_trees_of_buckets(grid, request)) {
      graphs.push_back(std::move(graph));
    }
    return graphs;
  }

  std::vector<CollectiveForm> collectives(plan::Collective what,
                                          const ScheduleRequest& request) const override {
    std::vector<CollectiveForm> forms;
    const auto found = find_rank_grid(request.topology);
    if (!std::holds_alternative<RankGrid>(found)) {
      return forms;
    }
    const auto& grid = std::get<RankGrid>(found);
    if (what == plan::Collective::kAllReduce) {
      forms = grid_tree_forms(grid, request);  // what is slower than these is not simulated then
      forms.emplace_back(all_reduce(request), request.topology);
    }
    const bool are_alike = are_dimensions_alike(grid, request.topology);
    if (!are_alike || what != plan::Collective::kAllReduce) {  // else of the usual weights
      add_balanced_forms(what, grid, request, forms);
    }
    if (const RankGrid merged = with_rings_of_four(grid, request.topology);
        !are_alike && merged.dimensions.size() < grid.dimensions.size()) {
      add_balanced_forms(what, merged, request, forms);
    }
    return forms;
  }
};

}  // namespace

std::unique_ptr<ScheduleFamily> make_torus() { return std::make_unique<Torus>(); }

}  // namespace rackrail::planner

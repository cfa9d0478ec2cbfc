// Collectives on grids and tori of directly linked ranks: the bucket algorithm
// (bucket_algorithm.hpp), for an all-reduce and for either half of it; and, for all-reduces where
// there are paths, trees (grid_trees.hpp).
#include <algorithm>
#include <memory>
#include <utility>
#include <variant>

#include "base/work.hpp"
#include "planner/algorithms/bucket_algorithm.hpp"
#include "planner/algorithms/families.hpp"
#include "planner/algorithms/grid_shares.hpp"
#include "planner/algorithms/grid_trees.hpp"
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
  const bool are_alike = are_dimensions_alike(grid, request.topology);
  BucketOptions options{what, bucket_weights(grid, request.topology)};
  if (bucket_transfers(grid, options) > kMostPlannedTransfers) {
    return;
  }
  forms.emplace_back(make_buckets(grid, request, options), request.topology);
  const std::uint64_t most =
      request.is_of_one_size ? kMostPlannedTransfers : request.most_transfers;
  for (const std::uint32_t growth : kGrowths) {
    options.growth = growth;
    if (!are_alike && bucket_transfers(grid, options) <= most) {
      forms.emplace_back(make_buckets(grid, request, options), request.topology);
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
    return refuse_lossy_hops(codecs);
  }

  bool depends_on_codecs() const override { return true; }

  plan::TransferGraph all_reduce(const ScheduleRequest& request) const override {
    const auto found = find_rank_grid(request.topology);
    return make_buckets(std::get<RankGrid>(found), request);
  }

  std::vector<plan::TransferGraph> all_reduces(const ScheduleRequest& request) const override {
    const auto found = find_rank_grid(request.topology);
    const auto& grid = std::get<RankGrid>(found);
    std::vector<plan::TransferGraph> graphs;
    graphs.push_back(make_buckets(grid, request));
    const BucketOptions balanced{plan::Collective::kAllReduce,
                                 bucket_weights(grid, request.topology), kGrowths[0]};
    if (!are_dimensions_alike(grid, request.topology) &&
        bucket_transfers(grid, balanced) <= request.most_transfers) {
      Work::step();
      graphs.push_back(make_buckets(grid, request, balanced));
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
      if (request.is_of_one_size) {  // what is slower than these is not simulated then
        forms = grid_tree_forms(grid, request);
      }
      forms.emplace_back(make_buckets(grid, request), request.topology);
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

#include "planner/pipeline/switch_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/packing/pacing.hpp"
#include "planner/pipeline/builder.hpp"

namespace rackrail::planner {

namespace {

// Without rates; fewer rounds have them all, as other buckets follow.
constexpr std::size_t kLastRounds = 3;

/// An operation of one pair.
struct SwitchStep {
  plan::TransferOp op;
  std::uint32_t pair;
  const SwitchOperation* operation;
};

/// All steps, with their moves over the links of their trees, which are those of the packing.
class SwitchSteps {
 public:
  SwitchSteps(const SwitchPacking& packing, std::size_t ranks) {
    for (std::uint32_t p = 0; p < packing.pairs.size(); ++p) {
      const SwitchPair& pair = packing.pairs[p];
      std::vector<std::vector<std::uint32_t>> arrivals(ranks);  // moves, by rank
      for (const SwitchOperation& sum : pair.reduction) {
        add({plan::TransferOp::kReduce, p, &sum}, pair.units, sum.leaves, {sum.root}, arrivals);
      }
      for (const SwitchOperation& copy : pair.broadcast) {
        add({plan::TransferOp::kCopy, p, &copy}, pair.units, {copy.root}, copy.leaves, arrivals);
      }
    }
  }

  const SwitchStep& step(std::uint32_t move) const { return steps_[move]; }
  const std::vector<Move>& moves() const { return moves_; }

 private:
  void add(const SwitchStep& step, std::int64_t weight, const std::vector<Rank>& from,
           const std::vector<Rank>& to, std::vector<std::vector<std::uint32_t>>& arrivals) {
    const auto id = static_cast<std::uint32_t>(moves_.size());
    Move move{.weight = weight, .route = &step.operation->links, .predecessors = {}};
    move.part = step.pair;
    for (const Rank rank : from) {
      const auto& before = arrivals[rank.index()];
      move.predecessors.insert(move.predecessors.end(), before.begin(), before.end());
    }
    for (const Rank rank : to) {
      if (step.op == plan::TransferOp::kCopy) {
        arrivals[rank.index()].clear();  // it takes the place of what was added
      }
      arrivals[rank.index()].push_back(id);
    }
    moves_.push_back(std::move(move));
    steps_.push_back(step);
  }

  std::vector<SwitchStep> steps_;
  std::vector<Move> moves_;
};

/// By chunk: every pair has its share in as many of one weight.
std::vector<std::uint32_t> switch_chunk_weights(const SwitchPacking& packing, std::size_t rounds) {
  std::int64_t common = 0;
  for (const SwitchPair& pair : packing.pairs) {
    common = std::gcd(common, pair.units);
  }
  std::vector<std::uint32_t> weights;
  for (const SwitchPair& pair : packing.pairs) {
    weights.insert(weights.end(), rounds, static_cast<std::uint32_t>(pair.units / common));
  }
  return weights;
}

class SwitchGraph {
 public:
  SwitchGraph(const SwitchPacking& packing, const ScheduleRequest& request, std::size_t rounds)
      : rounds_(rounds),
        ranks_(request.topology.rank_count()),
        builder_("in-network", request, switch_chunk_weights(packing, rounds)) {}

  void add(const SwitchStep& step, std::uint32_t round, Bandwidth rate) {
    const SwitchOperation& operation = *step.operation;
    const auto chunk = static_cast<std::uint32_t>(step.pair * rounds_ + round);
    std::vector<TransferId> members;
    for (std::size_t i = 0; i < operation.leaves.size(); ++i) {
      const bool copies = step.op == plan::TransferOp::kCopy;
      const Rank src = copies ? operation.root : operation.leaves[i];
      const Rank dst = copies ? operation.leaves[i] : operation.root;
      members.push_back(builder_.add(step.op, src, dst, {chunk, 1}, arrived(src, chunk),
                                     operation.routes[i], rate));
    }
    for (std::size_t i = 0; i < members.size(); ++i) {
      const bool copies = step.op == plan::TransferOp::kCopy;
      auto& at = arrived(copies ? operation.leaves[i] : operation.root, chunk);
      if (copies) {
        at.clear();
      }
      at.push_back(members[i]);
    }
    if (members.size() > 1) {
      builder_.group(members.front(), static_cast<std::uint32_t>(members.size()));
    }
  }

  plan::TransferGraph take() { return builder_.take(); }

 private:
  /// What has come of a chunk to a rank since it was last read: additions, or one copy.
  std::vector<TransferId>& arrived(Rank rank, std::uint32_t chunk) {
    return arrived_[std::size_t{chunk} * ranks_ + rank.index()];
  }

  std::size_t rounds_;
  std::size_t ranks_;
  GraphBuilder builder_;
  std::map<std::size_t, std::vector<TransferId>> arrived_;
};

}  // namespace

std::size_t transfers_in(const SwitchPacking& packing) {
  std::size_t transfers = 0;
  for (const SwitchPair& pair : packing.pairs) {
    for (const auto* half : {&pair.reduction, &pair.broadcast}) {
      for (const SwitchOperation& operation : *half) {
        transfers += operation.leaves.size();
      }
    }
  }
  return transfers;
}

FormShape in_rounds(const FormShape& once, const SwitchPacking& packing, std::size_t rounds) {
  double whole = 0;
  double thinnest = std::numeric_limits<double>::infinity();
  for (const SwitchPair& pair : packing.pairs) {
    whole += static_cast<double>(pair.units);
    thinnest = std::min(thinnest, static_cast<double>(pair.units));
  }
  FormShape shape = once;
  shape.largest_share /= static_cast<double>(rounds);
  shape.transfers *= static_cast<std::int64_t>(rounds);
  if (shape.bound) {
    // Chains of dependencies are as long, links carry as much. More pieces are rounded, and none is
    // empty once the smallest has an element.
    shape.bound->rounding = shape.bound->rounding * static_cast<std::int64_t>(rounds);
    shape.bound->fewest_elements = static_cast<std::int64_t>(std::ceil(
                                       1.001 * whole / thinnest * static_cast<double>(rounds))) +
                                   1;
  }
  return shape;
}

plan::TransferGraph all_reduce_along(const SwitchPacking& packing, const ScheduleRequest& request,
                                     std::size_t rounds, bool has_rates) {
  const SwitchSteps steps(packing, request.topology.rank_count());
  const std::vector<Bandwidth> rates =
      has_rates ? proportional_rates(steps.moves(), request.topology) : std::vector<Bandwidth>{};
  const std::size_t rated = rounds > kRoundsOfBuckets ? rounds - kLastRounds : rounds;
  SwitchGraph graph(packing, request, rounds);
  for (const auto& [move, round] : in_stages(steps.moves(), rounds)) {
    graph.add(steps.step(move), round, has_rates && round < rated ? rates[move] : Bandwidth());
  }
  return with_mechanism(graph.take(),
                        fmt::format("trees through switches, {}{}", in_rounds_text(rounds),
                                    has_rates ? " at fixed rates" : ""));
}

}  // namespace rackrail::planner

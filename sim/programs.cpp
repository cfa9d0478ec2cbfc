#include "sim/programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "sim/results.hpp"

namespace rackrail::sim {

namespace {

Duration longer(Duration duration, double factor) {
  return factor == 1 ? duration : Duration::from_seconds(duration.seconds() * factor);
}

}  // namespace

void require_matching(const plan::Plan& plan, const plan::Workload& workload,
                      const topology::Topology& topology) {
  require_same_ranks("plan '" + plan.name + "'", plan.rank_count(), topology);
  require_matching(plan, workload);
}

void require_matching(const plan::Plan& plan, const plan::Workload& workload) {
  if (plan.workload_digest != workload.digest()) {
    throw PlanError(ErrorContext{"", "plan '" + plan.name + "'",
                                 fmt::format("a plan for model '{}'", plan.workload_name),
                                 fmt::format("one for model '{}'", workload.name)});
  }
  if (plan.batch.local_batch.size() != plan.rank_count()) {
    throw PlanError(ErrorContext{"", "plan '" + plan.name + "'",
                                 fmt::format("{} local batches", plan.batch.local_batch.size()),
                                 fmt::format("{}, one per rank", plan.rank_count())});
  }
}

Program program_of(const plan::Plan& plan, const plan::Workload& workload,
                   const topology::Node& device, Rank rank, std::uint32_t first_run,
                   double factor) {
  const plan::ComputeTimes times =
      plan::compute_times(workload, device, plan.batch.local_batch[rank.index()]);
  Program program{.optimizer = times.optimizer};
  std::vector<ComputePiece>& pieces = program.pieces;
  for (std::int64_t pass = 1; pass < plan.batch.accumulation; ++pass) {
    pieces.push_back({TaskKind::kForward, times.forward, {}});
    pieces.push_back({TaskKind::kBackward, times.backward, {}});
  }
  pieces.push_back({TaskKind::kForward, times.forward, {}});
  std::map<Duration, std::vector<std::uint32_t>> ready;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    Duration last;
    for (const std::uint32_t tensor : plan.buckets[b].tensors) {
      last = std::max(last, times.ready.at(tensor));
    }
    ready[last].push_back(first_run + static_cast<std::uint32_t>(b));
  }
  Duration at;
  for (auto& [when, runs] : ready) {
    pieces.push_back({TaskKind::kBackward, when - at, std::move(runs)});
    at = when;
  }
  if (times.backward > at) {
    pieces.push_back({TaskKind::kBackward, times.backward - at, {}});
  }
  for (ComputePiece& piece : pieces) {
    piece.duration = longer(piece.duration, factor);
  }
  program.optimizer = longer(program.optimizer, factor);
  return program;
}

}  // namespace rackrail::sim

#include "planner/pipeline/switch_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "planner/pipeline/pipeline_writer.hpp"

namespace rackrail::planner {

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
  for (const SwitchPair& pair : packing.pairs) {
    whole += static_cast<double>(pair.units);
  }
  PieceShares shares{once.largest_share / static_cast<double>(rounds), 1,
                     static_cast<std::int64_t>(rounds)};
  for (const SwitchPair& pair : packing.pairs) {
    shares.smallest = std::min(
        shares.smallest, static_cast<double>(pair.units) / whole / static_cast<double>(rounds));
  }
  return in_pieces(once, shares, once.transfers * shares.times);
}

plan::TransferGraph all_reduce_along(const SwitchPacking& packing, const ScheduleRequest& request,
                                     std::size_t rounds, bool has_rates) {
  std::int64_t common = 0;
  for (const SwitchPair& pair : packing.pairs) {
    common = std::gcd(common, pair.units);
  }
  PipelineWriter writer("in-network", request);
  for (const SwitchPair& pair : packing.pairs) {
    const std::int64_t weight = pair.units / common;
    writer.begin_part(pair.root, weight, std::vector<std::int64_t>(rounds, 1),
                      std::vector<std::uint32_t>(rounds, static_cast<std::uint32_t>(weight)));
    for (const SwitchOperation& sum : pair.reduction) {
      writer.operation(plan::TransferOp::kReduce, sum.root, sum.leaves, sum.routes, sum.links);
    }
    for (const SwitchOperation& copy : pair.broadcast) {
      writer.operation(plan::TransferOp::kCopy, copy.root, copy.leaves, copy.routes, copy.links);
    }
  }
  return with_mechanism(writer.take(has_rates ? Pace::kRatedStages : Pace::kStages),
                        fmt::format("trees through switches, {}{}", in_rounds_text(rounds),
                                    has_rates ? " at fixed rates" : ""));
}

}  // namespace rackrail::planner

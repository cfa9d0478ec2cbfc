#include "plan/mutual_sum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace rackrail::plan {

namespace {

/// Of a mutual sum in which each of n ranks sends n − 1 times; 0 if there is no such n.
std::size_t member_count(std::size_t transfers) {
  std::size_t members = 2;
  while (members * (members - 1) < transfers) {
    ++members;
  }
  return members * (members - 1) == transfers ? members : 0;
}

}  // namespace

std::vector<Rank> mutual_sum_members(const TransferGraph& graph, const TransferGroup& sum) {
  const Rank first = graph.transfer(sum.first).src;
  std::vector<Rank> members{first};
  for (std::uint32_t i = 0; i < sum.count; ++i) {
    const Transfer& transfer = graph.transfer(TransferId(sum.first.value() + i));
    if (transfer.src != first) {
      break;
    }
    members.push_back(transfer.dst);
  }
  return members;
}

std::optional<std::string> mutual_sum_problem(const TransferGraph& graph,
                                              const TransferGroup& sum) {
  const std::size_t members = member_count(sum.count);
  if (members == 0) {
    return fmt::format("{} transfers are not those between each two of some ranks", sum.count);
  }
  const std::vector<Rank> ranks = mutual_sum_members(graph, sum);
  if (ranks.size() != members || !std::ranges::is_sorted(ranks, std::less_equal<>())) {
    return fmt::format("rank {} does not send to each of {} others in their order",
                       ranks.front().value(), members - 1);
  }
  const Transfer& first = graph.transfer(sum.first);
  if (first.op != TransferOp::kReduce || graph.codecs()[first.codec].is_lossy()) {
    return "only additions in FP32 can be one";
  }
  std::uint32_t next = sum.first.value();
  for (const Rank src : ranks) {
    for (const Rank dst : ranks) {
      if (src == dst) {
        continue;
      }
      const TransferId id(next++);
      const Transfer& t = graph.transfer(id);
      if (t.src != src || t.dst != dst) {
        return fmt::format("transfer {} is from rank {} to rank {}, not from {} to {}", id.value(),
                           t.src.value(), t.dst.value(), src.value(), dst.value());
      }
      if (t.op != first.op || t.codec != first.codec || t.chunk_begin != first.chunk_begin ||
          t.chunk_count != first.chunk_count) {
        return fmt::format("transfer {} is not of the same kind, codec and range as transfer {}",
                           id.value(), sum.first.value());
      }
      for (const TransferId dependency : graph.dependencies(id)) {
        if (dependency >= sum.first) {
          return fmt::format("transfer {} waits for transfer {} of the same sum", id.value(),
                             dependency.value());
        }
      }
    }
  }
  return std::nullopt;
}

const TransferGroup* MutualSums::sum_of(TransferId id) const {
  const auto sums = graph_.mutual_sums();
  const auto after = std::ranges::upper_bound(sums, id, {}, &TransferGroup::first);
  if (after == sums.begin()) {
    return nullptr;
  }
  const TransferGroup& sum = *std::prev(after);
  return id.value() - sum.first.value() < sum.count ? &sum : nullptr;
}

}  // namespace rackrail::plan

// Small plans for parameter servers.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "runtime/trainer/update_rule.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::test {

/// Rank 0 serves everything: all others push to it, then pull.
inline plan::Plan one_server_plan(std::size_t ranks, const std::vector<std::int64_t>& elements,
                                  std::int64_t slice_elements, const plan::Codec& codec = {}) {
  const plan::TransferGraph by_star = star(ranks, codec);
  plan::TransferGraph graph("parameter-server", plan::Collective::kAllReduce, ranks, {1});
  if (codec.is_lossy()) {
    graph.add_codec(codec);
  }
  for (std::size_t i = 0; i < by_star.transfers().size(); ++i) {
    graph.add_transfer(by_star.transfers()[i], by_star.dependencies(TransferId(i)));
  }
  return plan_of(std::move(graph), elements, slice_elements);
}

/// Plain steps of 1 without momentum or decay: w ← w − g.
inline trainer::UpdateRule plain_rule(const plan::Plan& plan) {
  trainer::UpdateRule rule;
  rule.optimizer = {.momentum = 0, .weight_decay = 0, .clip_norm = {}};
  rule.learning_rate = {
      .peak = 1, .warmup_steps = 0, .total_steps = 100, .decay = trainer::Decay::kConstant};
  rule.shares.assign(plan.rank_count(), 1.0 / static_cast<double>(plan.rank_count()));
  for (const plan::Bucket& bucket : plan.buckets) {
    rule.regions.push_back({{0, static_cast<std::size_t>(bucket.elements), 0.0F}});
  }
  rule.meets = [](std::int64_t) { return false; };
  return rule;
}

}  // namespace rackrail::runtime::test

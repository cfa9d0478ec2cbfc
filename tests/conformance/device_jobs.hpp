// What tests of executors for gradients on a device sum, and what must come out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/plan.hpp"
#include "tests/support/device_simulation.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime {

using Gradients = std::vector<std::vector<std::vector<float>>>;  // by rank and bucket

inline std::vector<std::vector<float>> gradients_of(const plan::Plan& plan, Rank rank,
                                                    std::uint32_t step, bool whole_numbers) {
  std::mt19937 random(31 * step + rank.value());
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> gradients;
  for (const plan::Bucket& bucket : plan.buckets) {
    auto& values = gradients.emplace_back(static_cast<std::size_t>(bucket.elements));
    for (float& value : values) {
      value =
          whole_numbers ? static_cast<float>(static_cast<int>(random() % 31) - 15) : normal(random);
    }
  }
  return gradients;
}

/// The same programs on processors, in one thread.
inline Gradients simulated(const plan::Plan& plan, const RankGroups& groups, std::uint32_t steps) {
  DeviceSimulation simulation(plan, groups, 5);
  Gradients gradients(plan.rank_count());
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::size_t r = 0; r < gradients.size(); ++r) {
      gradients[r] = gradients_of(plan, Rank(r), step, true);
    }
    simulation.run(step, gradients);
  }
  return gradients;
}

/// Two groups of two with a codec between them: sums inside, messages across, copies inside.
inline plan::TransferGraph two_tiers(const plan::Codec& across) {
  plan::TransferGraph graph("2x2", plan::Collective::kAllReduce, 4, {1, 1});
  const std::uint8_t code = graph.add_codec(across);
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    const Rank here(shard);
    const Rank there(2 + shard);
    const auto add = [&](Rank src, Rank dst, plan::TransferOp op, std::uint8_t codec,
                         std::vector<TransferId> after) {
      return graph.add_transfer(
          {.src = src, .dst = dst, .chunk_begin = shard, .op = op, .codec = codec}, after);
    };
    constexpr auto kReduce = plan::TransferOp::kReduce;
    constexpr auto kCopy = plan::TransferOp::kCopy;
    const auto a = add(Rank(1 - shard), here, kReduce, 0, {});
    const auto b = add(Rank(3 - shard), there, kReduce, 0, {});
    const auto sum = add(there, here, kReduce, code, {b});
    const auto back = add(here, there, kCopy, code, {a, sum});
    add(here, Rank(1 - shard), kCopy, 0, {back});
    add(there, Rank(3 - shard), kCopy, 0, {back});
  }
  return graph;
}

inline const RankGroups kPairs{{Rank(0), Rank(1)}, {Rank(2), Rank(3)}};

}  // namespace rackrail::runtime

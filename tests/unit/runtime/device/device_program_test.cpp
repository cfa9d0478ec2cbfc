#include "runtime/device/device_program.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "tests/support/device_simulation.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::runtime::device_program_test {
namespace {

using Gradients = std::vector<std::vector<std::vector<float>>>;  // by rank and bucket

Gradients random_gradients(const plan::Plan& plan, unsigned seed, bool whole_numbers) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Gradients gradients(plan.rank_count());
  for (auto& of_rank : gradients) {
    for (const plan::Bucket& bucket : plan.buckets) {
      auto& values = of_rank.emplace_back(static_cast<std::size_t>(bucket.elements));
      for (float& value : values) {
        value = whole_numbers ? static_cast<float>(static_cast<int>(random() % 63) - 31)
                              : normal(random);
      }
    }
  }
  return gradients;
}

void run_executors(const plan::Plan& plan, std::uint32_t steps, unsigned seed, Gradients& last) {
  Ranks job(plan);
  for (std::uint32_t step = 0; step < steps; ++step) {
    last = random_gradients(plan, seed + step, true);
    on_every_rank(plan.rank_count(), [&](Rank rank) {
      job[rank].begin_step(step);
      for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
        job[rank].launch(BucketId(b), last[rank.index()][b]);
      }
      job[rank].wait_all();
    });
  }
}

RankGroups singles(std::size_t ranks) {
  RankGroups groups;
  for (std::size_t r = 0; r < ranks; ++r) {
    groups.push_back({Rank(r)});
  }
  return groups;
}

TEST_CASE("device program: by messages alone it gives the executor's bits") {
  const std::string codec = GENERATE("none", "fp16", "int8", "topk", "fp8");
  const bool is_ring = GENERATE(true, false);
  const bool fuses = GENERATE(false, true);
  CAPTURE(codec, is_ring, fuses);
  constexpr std::size_t kRanks = 3;
  const plan::Codec descriptor = plan::parse_codec(codec);
  const plan::Plan plan =
      plan_of(is_ring ? ring(kRanks, descriptor) : star(kRanks, descriptor), {10'007, 2}, 1024);
  constexpr std::uint32_t kSteps = 3;  // residuals go on
  Gradients expected;
  run_executors(plan, kSteps, 5, expected);
  const RankGroups groups = singles(kRanks);
  DeviceSimulation simulation(plan, groups, 17, fuses);
  Gradients found;
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    found = random_gradients(plan, 5 + step, true);
    simulation.run(step, found);
  }
  CHECK(found == expected);
}

TEST_CASE("device program: even shards are one call, uneven ones a call each") {
  const std::int64_t elements = GENERATE(4'096, 4'097);
  plan::TransferGraph graph("scatter", plan::Collective::kReduceScatter, 2, {1, 1});
  graph.set_owners({Rank(0), Rank(1)});
  for (const int owner : {0, 1}) {
    graph.add_transfer({.src = Rank(1 - owner),
                        .dst = Rank(owner),
                        .chunk_begin = static_cast<std::uint32_t>(owner),
                        .op = plan::TransferOp::kReduce},
                       {});
  }
  const plan::Plan plan = plan_of(std::move(graph), {elements}, 1024);
  const RankGroups groups{{Rank(0), Rank(1)}};
  const auto stages = find_stages(plan.schedules[0], groups);
  const DeviceProgram program = make_device_program(plan, BucketId(0), Rank(1), groups, stages);
  REQUIRE(program.operations.size() == 1);
  const auto& collective = std::get<CollectiveOperation>(program.operations[0].what);
  CHECK(collective.kind ==
        (elements % 2 == 0 ? CollectiveKind::kReduceScatter : CollectiveKind::kReduce));
  CHECK(program.operations[0].lane == DeviceLane::kSum);
  CHECK(program.scratch_bytes == 0);
  REQUIRE(collective.parts.size() == 2);
  CHECK(collective.parts[1].range.begin == elements / 2);
  CHECK(collective.parts[1].range.end == elements);
}

TEST_CASE("device program: a chunk without elements is left out") {
  const plan::Plan plan = plan_of(ring(4), {2}, 1024);
  const RankGroups groups = singles(4);
  DeviceSimulation simulation(plan, groups, 3);
  Gradients gradients = random_gradients(plan, 8, true);
  Gradients expected;
  run_executors(plan, 1, 8, expected);
  simulation.run(0, gradients);
  CHECK(gradients == expected);
}

TEST_CASE("device program: slices of codes begin at multiples of 16") {
  const plan::Codec codec = plan::parse_codec("topk:density=0.001");
  const auto slices = encoded_slices(codec, {100, 5'000}, 1'024);
  REQUIRE(slices.size() == 5);
  std::size_t end = 0;
  for (const EncodedSlice& slice : slices) {
    CHECK(slice.offset % 16 == 0);
    CHECK(slice.offset >= end);
    CHECK(slice.bytes ==
          static_cast<std::size_t>(plan::encoded_size(codec, slice.range.size()).count()));
    end = slice.offset + slice.bytes;
  }
  CHECK(slices.back().range.end == 5'000);
  CHECK(encoded_slices({}, {100, 5'000}, 1'024).size() == 1);
  CHECK(encoded_slices({}, {7, 7}, 1'024).empty());
}

}  // namespace
}  // namespace rackrail::runtime::device_program_test

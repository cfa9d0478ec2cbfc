// A small plan for seeds, and what holds of every plan that was accepted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace rackrail::fuzz {

/// All others add into rank 0, which copies the sum to them.
inline plan::TransferGraph star(std::size_t ranks, const plan::Codec& codec) {
  plan::TransferGraph graph("star", plan::Collective::kAllReduce, ranks, {1});
  const std::uint8_t code = graph.add_codec(codec);
  std::vector<TransferId> additions;
  for (std::size_t r = 1; r < ranks; ++r) {
    additions.push_back(graph.add_transfer(
        {.src = Rank(r), .dst = Rank(0), .op = plan::TransferOp::kReduce, .codec = code}, {}));
  }
  for (std::size_t r = 1; r < ranks; ++r) {
    graph.add_transfer({.src = Rank(0), .dst = Rank(r), .codec = code}, additions);
  }
  return graph;
}

/// Of buckets of so many elements, which all use the one schedule.
inline plan::Plan plan_of(plan::TransferGraph graph, const plan::Codec& codec,
                          const std::vector<std::int64_t>& elements) {
  plan::Plan plan;
  plan.name = "seed";
  for (std::size_t r = 0; r < graph.rank_count(); ++r) {
    plan.rank_names.push_back("rank" + std::to_string(r));
  }
  plan.schedules.push_back(std::move(graph));
  for (std::size_t b = 0; b < elements.size(); ++b) {
    plan::Bucket bucket;
    bucket.tensors = {static_cast<std::uint32_t>(b)};
    bucket.elements = elements[b];
    bucket.slice_elements = 1024;
    bucket.codec = codec;
    plan.buckets.push_back(bucket);
  }
  return plan;
}

/// Three plans: one with every field, one with a codec, one with routes and adapters.
inline std::vector<plan::Plan> seed_plans() {
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  const plan::Codec top_k{.kind = plan::CodecKind::kTopK, .density = 0.25};
  plan::TransferGraph routed("routed", plan::Collective::kAllReduce, 2, {1, 2});
  routed.add_route({LinkId(0), LinkId(3)}, Bandwidth(1'000'000));
  const TransferId there = routed.add_transfer({.src = Rank(1),
                                                .dst = Rank(0),
                                                .chunk_count = 2,
                                                .op = plan::TransferOp::kReduce,
                                                .route = RouteId(1)},
                                               {});
  const std::vector<TransferId> after{there};
  routed.add_transfer({.src = Rank(0), .dst = Rank(1), .chunk_count = 2, .route = RouteId(1)},
                      after);
  plan::Plan full = plan_of(std::move(routed), {}, {5000, 7});
  full.cluster_name = "c";
  full.batch.local_batch = {32, 32};
  full.batch.learning_rate = 0.1;
  full.only_schedule = "ring";
  full.only_bucket_size = 1_MiB;
  full.compression_warmup_steps = 3;
  full.prediction.step_time = 1_us;
  full.prediction.baselines = {{"ring", 2_us}};
  full.notes = {"a note"};
  full.schedules_by_size = {{1_KiB, "tree"}, {1_MiB, "ring"}};
  full.adapters = {
      {.host = "h", .name = "nic0", .devices = "mlx5_0", .out = {LinkId(0)}, .in = {LinkId(3)}}};
  return {std::move(full), plan_of(star(3, fp16), fp16, {3000}),
          plan_of(star(4, top_k), top_k, {2048, 10})};
}

/// An accepted plan is written and read again as the same, in both forms.
inline void require_lasting(const plan::Plan& plan) {
  const std::string binary = plan::to_binary(plan);
  require(plan::to_binary(plan::parse_plan(binary, "binary")) == binary,
          "another plan when written in binary form");
  require(plan::to_binary(plan::parse_plan(plan::to_json(plan), "json")) == binary,
          "another plan when written as JSON");
}

/// Reads it as production does, and looks at what that gave.
inline void read_plan(std::string_view content) {
  plan::Plan plan;
  if (accepted([&] { plan = plan::parse_plan(content, "plan"); })) {
    require_lasting(plan);
  }
}

}  // namespace rackrail::fuzz

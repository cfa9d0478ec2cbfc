// What plan/reduced_error.hpp says of a schedule, against what its execution does to real sums.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>
#include <string>

#include "plan/reduced_error.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "tests/support/clusters.hpp"
#include "tests/support/rank_threads.hpp"

namespace rackrail::reduced_error_test {
namespace {

using topology::Topology;
using Vectors = std::vector<std::vector<float>>;  // by rank

constexpr std::size_t kElements = 1 << 15;
constexpr std::int64_t kSlice = 1 << 12;

Vectors normal_vectors(std::size_t ranks, bool are_equal) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  Vectors vectors(ranks, std::vector<float>(kElements));
  for (auto& vector : vectors) {
    std::generate(vector.begin(), vector.end(), [&] { return normal(random); });
    if (are_equal) {
      vector = vectors.front();
    }
  }
  return vectors;
}

/// ‖result − sum‖/‖sum‖ on the rank where it is largest.
double measured_error(const plan::TransferGraph& graph, Vectors vectors) {
  std::vector<double> sum(kElements);
  double norm = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    for (const auto& vector : vectors) {
      sum[i] += static_cast<double>(vector[i]);
    }
    norm += sum[i] * sum[i];
  }
  const plan::Plan plan = runtime::plan_of(graph, {kElements}, kSlice);
  runtime::Ranks job(plan);
  runtime::on_every_rank(plan.rank_count(), [&](Rank rank) {
    job[rank].begin_step(0);
    job[rank].launch(BucketId(0), vectors[rank.index()]);
    job[rank].wait_all();
  });
  double worst = 0;
  for (const auto& result : vectors) {
    double error = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      error += std::pow(static_cast<double>(result[i]) - sum[i], 2);
    }
    worst = std::max(worst, std::sqrt(error / norm));
  }
  return worst;
}

double stated_error(const plan::TransferGraph& graph) {
  return plan::reduced_error(graph, plan::relative_error);
}

// One encoding says too little of all that follow each other: 1.7 times as much for exchanges
// inside racks and across, 2.1 times for a ring of eight.
TEST_CASE("reduced gradients are as far off as the model says of their schedule") {
  std::set<std::string> families;
  std::set<std::string> codecs_met;
  double most_over_one = 0;
  for (const Topology& topology :
       {test::racks({{1, 1}, {1, 1}}, {1, 1}), test::racks({{1, 1, 1, 1, 1}}, {1}),
        test::racks({{1, 1}, {1, 1}, {1, 1}, {1, 1}}, {1, 1, 1, 1})}) {
    topology::Router router(topology);
    const Vectors apart = normal_vectors(topology.rank_count(), false);
    const Vectors equal = normal_vectors(topology.rank_count(), true);
    for (const auto& family : planner::schedule_families()) {
      for (const plan::Codec& inside : plan::known_codecs()) {
        for (const plan::Codec& across : plan::known_codecs()) {
          const planner::TierCodecs codecs{inside, across};
          if ((!inside.is_lossy() && !across.is_lossy()) ||
              family->refusal(topology, codecs).has_value()) {
            continue;
          }
          CAPTURE(family->name(), topology.rank_count(), plan::to_string(inside),
                  plan::to_string(across));
          const plan::TransferGraph graph =
              family->all_reduce({.topology = topology, .router = router, .codecs = codecs});
          const double stated = stated_error(graph);
          const double measured = measured_error(graph, apart);
          CHECK(measured <= 1.03 * stated);  // the errors of so many elements differ by chance
          CHECK(measured >= stated / 3);
          CHECK(measured_error(graph, equal) <= 1.1 * stated);  // equal sums are rounded alike
          families.insert(std::string(family->name()));
          codecs_met.insert(plan::to_string(across));
          if (inside == across) {
            most_over_one = std::max(most_over_one, measured / plan::relative_error(inside));
          }
        }
      }
    }
  }
  CHECK(families.size() >= 6);
  CHECK(codecs_met.size() + 1 >= plan::known_codecs().size());
  CHECK(most_over_one > 1.9);
}

TEST_CASE("of chains and exchanges the model says what their formulas say") {
  constexpr double kError = 0.01;
  const auto error_of = [](const plan::Codec&) { return kError; };
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  for (const std::size_t n : {2U, 5U, 8U}) {
    const auto ranks = static_cast<double>(n);
    CAPTURE(n);
    CHECK(plan::reduced_error(runtime::ring(n), error_of) == 0);
    CHECK(plan::reduced_error(runtime::ring(n, fp16), error_of) ==
          Approx(kError * std::sqrt((ranks - 1) / 2 + 1)).epsilon(1e-3));
    CHECK(plan::reduced_error(runtime::star(n, fp16), error_of) ==
          Approx(kError * std::sqrt(2 - 1 / ranks)).epsilon(1e-3));
  }
}

}  // namespace
}  // namespace rackrail::reduced_error_test

// The search against trying everything, through the objective that it minimises.
#include <catch2/catch.hpp>

#include "planner/compression/compression_search.hpp"
#include "random_compression.hpp"

namespace rackrail::planner::compression_property_test {
namespace {

constexpr std::uint64_t kCases = 500;

struct Case {
  RandomCompression made;
  std::size_t buckets = 0;
  std::size_t options = 0;
};

Case random_case(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Case drawn;
  drawn.buckets = 2 + random() % 7;
  drawn.options = 3 + random() % 2;
  if (drawn.buckets == 8) {
    drawn.options = 3;  // 4⁸ would take most of the test's time
  }
  drawn.made = random_compression(random, drawn.buckets, drawn.options);
  return drawn;
}

struct Optimum {
  double seconds = 1e9;
  double best_uniform = 1e9;
};

Optimum by_trying_everything(const Case& drawn) {
  Optimum optimum;
  for_each_assignment(drawn.buckets, drawn.options, [&](const Assignment& assignment) {
    const double step = step_by_definition(drawn.made.problem, assignment);
    optimum.seconds = std::min(optimum.seconds, step);
  });
  for (const Assignment& assignment : drawn.made.uniform) {
    optimum.best_uniform =
        std::min(optimum.best_uniform, step_by_definition(drawn.made.problem, assignment));
  }
  return optimum;
}

/// In how many of the cases what is chosen is within 1 % of the optimum.
struct NearOptimum {
  std::uint64_t searched = 0;
  std::uint64_t uniform = 0;  ///< the best uniform choice, which is also where the search starts
};

NearOptimum count_near_optimum() {
  NearOptimum near;
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    CAPTURE(seed);
    const Case drawn = random_case(seed);
    const Timeline timeline(drawn.made.problem);
    const CompressionChoice choice = search_compression(timeline, drawn.made.uniform);
    const Optimum optimum = by_trying_everything(drawn);
    const double found = step_by_definition(drawn.made.problem, choice.fastest);
    near.searched += found <= optimum.seconds * 1.01 ? 1 : 0;
    near.uniform += optimum.best_uniform <= optimum.seconds * 1.01 ? 1 : 0;
    REQUIRE(found >= optimum.seconds * (1 - 1e-9));
    REQUIRE(found <= optimum.best_uniform * (1 + 1e-9));
    REQUIRE(choice.step.seconds() == Approx(found).epsilon(1e-9));
  }
  return near;
}

TEST_CASE("the timeline follows its definition, whatever resources it leaves out") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    const Case drawn = random_case(seed);
    const Timeline timeline(drawn.made.problem);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20; ++i) {
      Assignment assignment;
      for (std::size_t b = 0; b < drawn.buckets; ++b) {
        assignment.push_back(static_cast<std::uint32_t>(random() % drawn.options));
      }
      REQUIRE(timeline.step(assignment).seconds() ==
              Approx(step_by_definition(drawn.made.problem, assignment)).epsilon(1e-9));
    }
  }
}

TEST_CASE("the choice is nearly always within 1 % of the optimum, never worse than a uniform one") {
  const NearOptimum near = count_near_optimum();
  CHECK(near.searched >= kCases * 95 / 100);
  CHECK(near.uniform < kCases * 3 / 5);  // or the cases would say little
}

TEST_CASE("less harm is taken where the step allows it, and only there") {
  constexpr double kTolerance = 0.01;
  std::size_t changes = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    const Case drawn = random_case(seed);
    const Timeline timeline(drawn.made.problem);
    Assignment assignment = search_compression(timeline, drawn.made.uniform).fastest;
    const double limit =
        step_by_definition(drawn.made.problem, assignment) * (1 + kTolerance) + 1e-12;
    for (const LighterOption& change :
         lighten(timeline, assignment, Duration::from_seconds(limit))) {
      const double before = timeline.harm(assignment);
      assignment[change.bucket] = change.option;
      REQUIRE(timeline.harm(assignment) < before);
      REQUIRE(step_by_definition(drawn.made.problem, assignment) <= limit * (1 + 1e-9));
      ++changes;
    }
    // No single bucket could have been lighter still.
    for (std::size_t b = 0; b < drawn.buckets; ++b) {
      for (std::uint32_t o = 0; o < assignment[b]; ++o) {
        Assignment lighter = assignment;
        lighter[b] = o;
        CHECK(step_by_definition(drawn.made.problem, lighter) > limit * (1 - 1e-9));
      }
    }
  }
  CHECK(changes > 0);
}

TEST_CASE("the same problem gives the same choice") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    const RandomCompression made = random_compression(random, 100, 4);
    const Timeline timeline(made.problem);
    const CompressionChoice first = search_compression(timeline, made.uniform);
    const CompressionChoice second = search_compression(Timeline(made.problem), made.uniform);
    CHECK(first.fastest == second.fastest);
  }
}

}  // namespace
}  // namespace rackrail::planner::compression_property_test

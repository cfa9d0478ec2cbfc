#include "runtime/watch/slow_ranks.hpp"

#include <catch2/catch.hpp>

namespace rackrail::runtime::slow_ranks_test {
namespace {

constexpr ComputeLine kProfile{0.010, 0.001};

using Steps = std::map<Rank, ComputedStep>;

/// Three ranks, of which the last has the line `slow`; the machine is not as its profile was.
Steps steps_of(const ComputeLine& slow, std::int64_t samples_of_others, std::int64_t samples,
               double machine = 1.7) {
  const ComputedStep well{samples_of_others, machine * kProfile.at(samples_of_others)};
  return {{Rank(0), well}, {Rank(1), well}, {Rank(2), {samples, machine * slow.at(samples)}}};
}

SlowRanks profiled() {
  return SlowRanks([](Rank) { return kProfile; });
}

}  // namespace

TEST_CASE("one factor of a slow rank is of all that it computes") {
  const ComputeLine line = slow_line({{32, 3}}, kProfile);
  CHECK(line.fixed == Approx(0.030));
  CHECK(line.per_sample == Approx(0.003));
}

TEST_CASE("two batches tell what a slow rank computes for each sample from the rest") {
  const ComputeLine slow{0.100, 0.004};
  const auto factor = [&](std::int64_t samples) {
    return BatchFactor{samples, slow.at(samples) / kProfile.at(samples)};
  };
  const ComputeLine line = slow_line({factor(128), factor(24)}, kProfile);
  CHECK(line.fixed == Approx(0.100));
  CHECK(line.per_sample == Approx(0.004));
  // It computes no faster than a well one, whatever noise says, and its fixed part is not negative.
  const double few = 5 * kProfile.at(24);
  const ComputeLine flat = slow_line({{128, 0.8 * few / kProfile.at(128)}, {24, 5}}, kProfile);
  CHECK(flat.per_sample == Approx(kProfile.per_sample));
  CHECK(flat.at(24) == Approx(few));
  const ComputeLine steep = slow_line({{128, 10 * few / kProfile.at(128)}, {24, 5}}, kProfile);
  CHECK(steep.fixed == Approx(0).margin(1e-12));
  CHECK(steep.at(24) == Approx(few));
}

TEST_CASE("a slow rank's time for another batch replaces what was assumed of it") {
  const ComputeLine slow{0.100, 0.004};
  SlowRanks ranks = profiled();
  const double first = slow.at(128) / kProfile.at(128);
  ranks.set({{Rank(2), first}}, steps_of(slow, 128, 128));
  CHECK(ranks.is_slow(Rank(2)));
  CHECK_FALSE(ranks.is_slow(Rank(0)));
  CHECK(ranks.factor(Rank(0), 128) == 1);
  // The same batch says nothing new, nor does one that is about as large.
  CHECK(ranks.refine(steps_of(slow, 128, 128)).empty());
  CHECK(ranks.refine(steps_of(slow, 130, 124)).empty());

  // Meanwhile the whole machine has become faster: that is nothing of this rank.
  CHECK(ranks.refine(steps_of(slow, 180, 24, 0.9)) == std::vector<Rank>{Rank(2)});
  CHECK(ranks.factor(Rank(2), 24) == Approx(slow.at(24) / kProfile.at(24)));
  const ComputeLine line = slow_line(ranks.factors().at(Rank(2)), kProfile);
  CHECK(line.fixed == Approx(0.100));
  CHECK(line.per_sample == Approx(0.004));
  // On the line that is known now all batches are as assumed.
  CHECK(ranks.refine(steps_of(slow, 172, 40)).empty());
  CHECK(ranks.refine(steps_of(slow, 190, 4)).empty());
  CHECK(ranks.factor(Rank(2), 4) == Approx(slow.at(4) / kProfile.at(4)));

  ranks.set({{Rank(2), 1.0}}, steps_of(kProfile, 128, 128));
  CHECK_FALSE(ranks.is_slow(Rank(2)));
  CHECK(ranks.factors().empty());
  CHECK(ranks.refine(steps_of(kProfile, 180, 24)).empty());
}

TEST_CASE("a profile without times, or whose line starts below 0, is as good as none") {
  for (const ComputeLine& profile : {ComputeLine{0, 0}, ComputeLine{-1e-12, 1e-12}}) {
    SlowRanks ranks([&](Rank) { return profile; });
    const auto taken = [](std::int64_t samples) {
      const auto seconds = static_cast<double>(samples);
      return Steps{{Rank(0), {4, 4.0}}, {Rank(1), {4, 4.0}}, {Rank(2), {samples, 3 * seconds}}};
    };
    ranks.set({{Rank(2), 3}}, taken(1));
    CHECK(ranks.refine(taken(2)).empty());
    CHECK(ranks.factor(Rank(2), 2) == Approx(3));
  }
}

TEST_CASE("a rank that is as slow for each batch keeps its factor") {
  const ComputeLine slow{0.030, 0.003};
  SlowRanks ranks = profiled();
  ranks.set({{Rank(2), 3.0}}, steps_of(slow, 128, 128));
  CHECK(ranks.refine(steps_of(slow, 164, 56)).empty());
  CHECK(ranks.factors().at(Rank(2)) == std::vector<BatchFactor>{{128, 3.0}});
}

TEST_CASE("where several ranks are slow the others say how slow") {
  const ComputeLine slow{0.100, 0.004};
  SlowRanks ranks = profiled();
  const auto steps = [&](std::int64_t few, std::int64_t many) -> Steps {
    return {{Rank(0), {many, kProfile.at(many)}},
            {Rank(1), {few, slow.at(few)}},
            {Rank(2), {few, slow.at(few)}}};
  };
  const double factor = slow.at(128) / kProfile.at(128);
  ranks.set({{Rank(1), factor}, {Rank(2), factor}}, steps(128, 128));
  CHECK(ranks.refine(steps(16, 352)) == std::vector<Rank>{Rank(1), Rank(2)});
  CHECK(ranks.factor(Rank(1), 16) == Approx(slow.at(16) / kProfile.at(16)));
  CHECK(ranks.factor(Rank(2), 16) == Approx(slow.at(16) / kProfile.at(16)));
}

}  // namespace rackrail::runtime::slow_ranks_test

#include "runtime/coordinator/pair_rates.hpp"

#include <catch2/catch.hpp>
#include <limits>

namespace rackrail::runtime::pair_rates_test {
namespace {

StepMeasurement step_of(std::size_t rank, std::vector<PairTraffic> received) {
  return {.rank = Rank(rank),
          .step = 1,
          .samples = 1,
          .step_time = 1_ms,
          .compute_time = 1_ms,
          .received = std::move(received)};
}

}  // namespace

TEST_CASE("pair rates are those of the latest steps, the slowest pair first") {
  PairRates rates;
  CHECK(rates.rates().empty());
  for (int step = 0; step < 3; ++step) {  // before the latest
    rates.add(step_of(0, {{Rank(1), Bytes(1), 1_s}}));
  }
  for (std::size_t step = 0; step < PairRates::kLatestSteps; ++step) {
    // 2 kB in 1 ms and 4 kB in 5 ms by turns: bytes by time, not the mean of rates.
    rates.add(step_of(0, {step % 2 == 0 ? PairTraffic{Rank(1), Bytes(2000), 1_ms}
                                        : PairTraffic{Rank(1), Bytes(4000), 5_ms}}));
    rates.add(step_of(1, {{Rank(0), Bytes(500), 1_ms}, {Rank(2), Bytes(3000), 1_ms}}));
  }
  const std::vector<PairRate> found = rates.rates();
  REQUIRE(found.size() == 3);
  CHECK(found[0].source == Rank(0));
  CHECK(found[0].destination == Rank(1));
  CHECK(found[0].rate == Bandwidth(500'000));
  CHECK(found[1].source == Rank(1));
  CHECK(found[1].destination == Rank(0));
  CHECK(found[1].rate.bytes_per_second() == Approx(14000 / 0.013).epsilon(1e-6));
  CHECK(found[2].source == Rank(2));
  CHECK(found[2].rate == Bandwidth(3'000'000));
  rates.clear();
  CHECK(rates.rates().empty());
}

TEST_CASE("pairs that moved nothing have no rate, and none is beyond all bounds") {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  PairRates rates;
  rates.add(step_of(0, {{Rank(1), Bytes(0), 1_ms}, {Rank(2), Bytes(5), Duration()}}));
  CHECK(rates.rates().empty());
  for (int step = 0; step < 5; ++step) {
    rates.add(step_of(1, {{Rank(0), Bytes(kMost), Duration(1)}}));
    rates.add(step_of(2, {{Rank(0), Bytes(1), Duration(kMost)}}));
  }
  const std::vector<PairRate> found = rates.rates();
  REQUIRE(found.size() == 2);
  CHECK(found[0].rate == Bandwidth(0));
  CHECK(found[1].rate == Bandwidth(1'000'000'000'000'000'000));
}

}  // namespace rackrail::runtime::pair_rates_test

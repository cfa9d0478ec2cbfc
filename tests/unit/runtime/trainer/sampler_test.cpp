#include "runtime/trainer/sampler.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <set>

#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::sampler_test {
namespace {

TEST_CASE("A permutation has every index once, and every order is as likely") {
  std::vector<int> first_of(4);
  for (std::uint64_t key = 0; key < 4000; ++key) {
    std::vector<std::uint32_t> order = permutation(4, key);
    ++first_of[order.front()];
    std::ranges::sort(order);
    REQUIRE(order == std::vector<std::uint32_t>{0, 1, 2, 3});
  }
  for (const int count : first_of) {
    CHECK(count == Approx(1000).margin(150));  // 5 standard deviations
  }
}

TEST_CASE("The stream goes through all samples epoch by epoch, in another order each time") {
  SampleStream stream(10, 3);
  std::vector<std::vector<std::uint32_t>> epochs(3);
  for (std::int64_t i = 0; i < 30; ++i) {
    epochs[static_cast<std::size_t>(i / 10)].push_back(stream.at(i));
  }
  CHECK(epochs[0] != epochs[1]);
  CHECK(epochs[1] != epochs[2]);
  for (std::vector<std::uint32_t> epoch : epochs) {
    std::ranges::sort(epoch);
    std::vector<std::uint32_t> all(10);
    std::iota(all.begin(), all.end(), 0U);
    CHECK(epoch == all);
  }
  CHECK(stream.at(4) == epochs[0][4]);  // back again
  CHECK(stream.epoch_of(9) == 0);
  CHECK(stream.epoch_of(10) == 1);
}

TEST_CASE("The samples of a step do not depend on how the ranks share it") {
  const auto step_samples = [](const std::vector<std::int64_t>& local_batch,
                               std::int64_t accumulation, std::int64_t position) {
    std::multiset<std::uint32_t> samples;
    for (std::size_t rank = 0; rank < local_batch.size(); ++rank) {
      const Shard shard(local_batch, rank, accumulation);
      REQUIRE(shard.local_batch() == local_batch[rank]);
      SampleStream stream(20, 77);
      for (std::int64_t pass = 0; pass < shard.passes(); ++pass) {
        for (std::int64_t i = 0; i < shard.local_batch(); ++i) {
          samples.insert(stream.at(shard.begin(position, pass) + i));
        }
      }
    }
    return samples;
  };
  for (const std::int64_t position : {0, 12, 24, 36}) {  // the second straddles two epochs
    const auto expected = step_samples({12}, 1, position);
    CHECK(expected.size() == 12);
    CHECK(step_samples({6, 6}, 1, position) == expected);
    CHECK(step_samples({1, 7, 4}, 1, position) == expected);
    CHECK(step_samples({4, 2}, 2, position) == expected);
    CHECK(step_samples({1, 1, 1}, 4, position) == expected);
  }
}

TEST_CASE("Impossible divisions are refused") {
  const auto refused = [](const std::vector<std::int64_t>& local_batch, std::size_t rank,
                          std::int64_t accumulation) {
    return test::context_of<PlanError>([&] { Shard(local_batch, rank, accumulation); }).where;
  };
  CHECK(refused({4, 4}, 2, 1) == "batch.local_batch");
  CHECK(refused({4, 0}, 0, 1) == "batch.local_batch[1]");
  CHECK(refused({4}, 0, 0) == "batch.accumulation");
  CHECK(Shard({3, 5}, 1, 2).global_batch() == 16);
}

}  // namespace
}  // namespace rackrail::trainer::sampler_test

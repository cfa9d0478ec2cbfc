#include "runtime/trainer/buckets.hpp"

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::buckets_test {
namespace {

const std::vector<ParameterTensor> kTensors{
    {"a", {2}, 0, 2}, {"b", {3}, 2, 3}, {"c", {1}, 5, 1}, {"d", {4}, 6, 4}};

plan::Bucket bucket(std::vector<std::uint32_t> tensors, std::int64_t elements) {
  plan::Bucket result;
  result.tensors = std::move(tensors);
  result.elements = elements;
  return result;
}

TEST_CASE("A bucket of neighbours is a span of the arena") {
  BucketSet buckets("plan", kTensors, std::vector{bucket({0, 1}, 5), bucket({2, 3}, 5)});
  std::vector<float> arena(10);
  const std::span<float> second = buckets.gather(BucketId(1), arena);
  CHECK(second.data() == arena.data() + 5);
  CHECK(second.size() == 5);
}

TEST_CASE("Any other bucket is gathered and scattered") {
  BucketSet buckets("plan", kTensors, std::vector{bucket({0, 2, 3}, 7), bucket({1}, 3)});
  std::vector<float> arena(10);
  std::iota(arena.begin(), arena.end(), 0.0F);
  const std::span<float> first = buckets.gather(BucketId(0), arena);
  CHECK(std::ranges::equal(first, std::vector<float>{0, 1, 5, 6, 7, 8, 9}));
  for (float& value : first) {
    value += 100;
  }
  CHECK(arena[5] == 5);
  buckets.scatter(BucketId(0), arena);
  buckets.scatter(BucketId(1), arena);
  CHECK(arena == std::vector<float>{100, 101, 2, 3, 4, 105, 106, 107, 108, 109});
}

TEST_CASE("A bucket is complete with its last gradient, in every pass again") {
  BucketSet buckets("plan", kTensors, std::vector{bucket({1, 2}, 4), bucket({0, 3}, 6)});
  for (int pass = 0; pass < 2; ++pass) {
    CHECK_FALSE(buckets.tensor_ready(0));
    CHECK_FALSE(buckets.tensor_ready(1));
    CHECK(buckets.tensor_ready(2) == BucketId(0));
    CHECK(buckets.tensor_ready(3) == BucketId(1));
    buckets.reset();
  }
}

TEST_CASE("Buckets that do not fit the model are refused") {
  const auto refused = [](const std::vector<plan::Bucket>& buckets) {
    return test::context_of<PlanError>([&] { BucketSet("p.json", kTensors, buckets); });
  };
  CHECK(refused({bucket({0, 1, 2}, 6)}).found == "no bucket for d");
  CHECK(refused({bucket({0, 1, 2}, 6), bucket({3, 1}, 7)}).found == "tensor 1");
  CHECK(refused({bucket({0, 1, 2}, 6), bucket({3, 4}, 7)}).found == "tensor 4");
  CHECK(refused({bucket({0, 1, 2}, 6), bucket({3}, 5)}).where == "buckets[1]");
  CHECK(refused({bucket({0, 1, 2, 3}, 10), bucket({}, 0)}).where == "buckets[1]");
  CHECK(refused({bucket({0}, 2)}).file == "p.json");
}

}  // namespace
}  // namespace rackrail::trainer::buckets_test

#include "planner/tuning/buckets.hpp"

#include <catch2/catch.hpp>
#include <set>

namespace rackrail::planner::buckets_test {
namespace {

plan::Workload workload() {
  plan::Workload model;
  for (int layer = 0; layer < 10; ++layer) {
    model.tensors.push_back({"layer" + std::to_string(layer) + ".bias", 100, 1_us});
    model.tensors.push_back({"layer" + std::to_string(layer) + ".weight", 100'000, 1_us});
  }
  return model;
}

void check_each_tensor_once(const plan::Workload& model, const std::vector<TensorGroup>& groups) {
  std::set<std::uint32_t> seen;
  for (const TensorGroup& group : groups) {
    std::int64_t elements = 0;
    for (const std::uint32_t tensor : group.tensors) {
      CHECK(seen.insert(tensor).second);
      elements += model.tensors[tensor].elements;
    }
    CHECK(elements == group.elements);
  }
  CHECK(seen.size() == model.tensors.size());
}

TEST_CASE("tensors are cut in ready order when a bucket is full") {
  const plan::Workload model = workload();
  const auto groups = group_tensors(model, Bytes(800'000));
  check_each_tensor_once(model, groups);
  CHECK(groups.size() == 5);
  for (std::size_t i = 1; i < groups.size(); ++i) {
    CHECK(groups[i - 1].tensors.back() < groups[i].tensors.front());
  }
}

TEST_CASE("protected tensors get buckets of their own, and none of them waits for all the others") {
  const plan::Workload model = workload();
  const std::vector<bool> apart_by_tensor = protected_tensors(model, false);
  const auto groups = group_tensors(model, Bytes(400'000), apart_by_tensor);
  check_each_tensor_once(model, groups);
  std::size_t apart = 0;
  for (const TensorGroup& group : groups) {
    for (const std::uint32_t tensor : group.tensors) {
      CHECK(model.tensors[tensor].is_protected() == group.is_protected);
    }
    apart += group.is_protected ? 1 : 0;
  }
  CHECK(apart >= 2);
  CHECK(apart <= 4);
}

TEST_CASE("tensors of the first and of the last layer are protected, whatever their size") {
  plan::Workload model = workload();
  const std::vector<bool> by_kind = protected_tensors(model, false);
  const std::vector<bool> by_default = protected_tensors(model, true);
  for (std::size_t i = 0; i < model.tensors.size(); ++i) {
    const bool is_bias = i % 2 == 0;
    CHECK(by_kind[i] == is_bias);
    CHECK(by_default[i] == (is_bias || i == 1 || i + 1 == model.tensors.size()));
  }
  // "layer1" is not part of "layer": only whole names up to the last dot count.
  model.tensors = {{"layer.weight", 100'000, 1_us},
                   {"layer1.weight", 100'000, 1_us},
                   {"embedding", 100'000, 1_us}};
  CHECK(protected_tensors(model, true) == std::vector<bool>{true, false, true});
  // A model with nothing between has no outer layers.
  model.tensors.erase(model.tensors.begin() + 1);
  CHECK(protected_tensors(model, true) == std::vector<bool>{false, false});
}

TEST_CASE("a large protected tensor does not wait for other groups") {
  plan::Workload model = workload();
  model.tensors[1].elements = 2'000'000;
  const auto groups = group_tensors(model, Bytes(400'000'000), protected_tensors(model, true));
  check_each_tensor_once(model, groups);
  REQUIRE(groups[0].is_protected);
  CHECK(groups[0].tensors == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("one bucket holds everything when the size allows it") {
  const plan::Workload model = workload();
  CHECK(group_tensors(model, Bytes(1 << 30)).size() == 1);
}

}  // namespace
}  // namespace rackrail::planner::buckets_test

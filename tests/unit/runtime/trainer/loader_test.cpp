#include "runtime/trainer/loader.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "tests/unit/runtime/trainer/test_data.hpp"

namespace rackrail::trainer::loader_test {
namespace {

/// Sample i is a 3×3 image of the values 10·i + 1 … 10·i + 9, of class i.
Dataset numbered(std::int64_t samples) {
  Dataset dataset({3, 3, 1}, samples);
  for (std::int64_t i = 0; i < samples; ++i) {
    std::vector<float> image;
    for (int pixel = 1; pixel <= 9; ++pixel) {
      image.push_back(static_cast<float>(10 * i + pixel));
    }
    dataset.append(image, static_cast<std::int32_t>(i));
  }
  return dataset;
}

TEST_CASE("The loader hands out the rank's part of the stream in order") {
  const Dataset dataset = numbered(10);
  const Shard shard({2, 3}, 1, 2);
  SampleStream stream(10, 4);
  for (const std::size_t depth : {1, 4}) {
    BatchLoader loader(dataset, shard, {4, 30, 0, depth});
    for (std::int64_t step = 0; step < 12; ++step) {
      for (std::int64_t pass = 0; pass < 2; ++pass) {
        const BatchView batch = loader.next();
        REQUIRE(batch.count() == 3);
        for (std::int64_t i = 0; i < 3; ++i) {
          const std::uint32_t sample = stream.at(shard.begin(30 + step * 10, pass) + i);
          const auto at = static_cast<std::size_t>(i);
          REQUIRE(batch.labels[at] == static_cast<std::int32_t>(sample));
          REQUIRE(std::ranges::equal(batch.features.subspan(at * 9, 9),
                                     dataset.view(sample, 1).features));
        }
      }
    }
  }
}

TEST_CASE("A loader may be left at any moment") {
  const Dataset dataset = numbered(10);
  for (int batches = 0; batches < 20; ++batches) {
    BatchLoader loader(dataset, Shard({4}, 0, 1), {1, 0, 1, 2});
    for (int i = 0; i < batches; ++i) {
      REQUIRE(loader.next().count() == 4);
    }
  }
}

TEST_CASE("Moved images are whole images moved, the same for every division") {
  const Dataset dataset = numbered(6);
  constexpr std::int64_t kBatch = 60;
  BatchLoader one(dataset, Shard({kBatch}, 0, 1), {9, 0, 1, 2});
  BatchLoader second_of_two(dataset, Shard({20, 40}, 1, 1), {9, 0, 1, 2});
  const BatchView batch = one.next();
  const BatchView part = second_of_two.next();
  CHECK(std::ranges::equal(batch.features.subspan(20 * 9), part.features));

  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  for (std::size_t i = 0; i < kBatch; ++i) {
    const std::span<const float> original = dataset.view(batch.labels[i], 1).features;
    const std::span<const float> image = batch.features.subspan(i * 9, 9);
    int matches = 0;
    for (std::int64_t dy = -1; dy <= 1; ++dy) {
      for (std::int64_t dx = -1; dx <= 1; ++dx) {
        std::vector<float> moved;
        for (std::int64_t y = 0; y < 3; ++y) {
          for (std::int64_t x = 0; x < 3; ++x) {
            const bool inside = y + dy >= 0 && y + dy < 3 && x + dx >= 0 && x + dx < 3;
            moved.push_back(inside ? original[static_cast<std::size_t>((y + dy) * 3 + x + dx)]
                                   : 0.0F);
          }
        }
        if (std::ranges::equal(moved, image)) {
          ++matches;
          seen.insert({dy, dx});
        }
      }
    }
    REQUIRE(matches == 1);
  }
  CHECK(seen.size() == 9);  // all moves occur
}

}  // namespace
}  // namespace rackrail::trainer::loader_test

#include "base/disjoint_sets.hpp"

#include <catch2/catch.hpp>
#include <vector>

namespace rackrail::disjoint_sets_test {
namespace {

TEST_CASE("sets that are joined have one number, in the order of their first elements") {
  DisjointSets sets(6);
  CHECK(sets.numbers() == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5});
  sets.join(5, 1);
  sets.join(3, 0);
  sets.join(1, 3);
  CHECK(sets.find(5) == sets.find(0));
  CHECK(sets.find(2) != sets.find(4));
  CHECK(sets.numbers() == std::vector<std::uint32_t>{0, 0, 1, 0, 2, 0});
}

}  // namespace
}  // namespace rackrail::disjoint_sets_test

#include "base/ids.hpp"

#include <catch2/catch.hpp>
#include <type_traits>
#include <unordered_set>

namespace rackrail::ids_test {

using namespace rackrail;

TEST_CASE("ids of different things are different types") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Rank, NodeId>);
  STATIC_REQUIRE_FALSE(std::is_constructible_v<Rank, NodeId>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<int, Rank>);
}

TEST_CASE("ids compare, hash and index by their value") {
  CHECK(Rank(2) < Rank(std::size_t{3}));
  CHECK(Rank(2) == Rank(2U));
  CHECK(Rank().index() == 0);
  const std::unordered_set<NodeId> set{NodeId(1), NodeId(1), NodeId(2)};
  CHECK(set.size() == 2);
}

}  // namespace rackrail::ids_test

#include "runtime/watch/pair_network.hpp"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "tests/support/clusters.hpp"

namespace rackrail::runtime::pair_network_test {
namespace {

RankPair pair(int source, int destination) { return {Rank(source), Rank(destination)}; }

std::set<std::string> names_of(const topology::Topology& cluster, const Strand& strand) {
  std::set<std::string> names;
  for (const LinkId link : strand.links) {
    names.insert(cluster.link_name(link));
  }
  return names;
}

}  // namespace

TEST_CASE("links that the same pairs use are one strand") {
  const topology::Topology cluster = test::two_racks();
  const std::vector<Strand> strands = strands_of(cluster, {pair(0, 1), pair(0, 2), pair(1, 3)});
  std::set<std::vector<RankPair>> users;
  for (const Strand& strand : strands) {
    CHECK(users.insert(strand.pairs).second);
    if (strand.pairs == std::vector{pair(0, 2), pair(1, 3)}) {
      CHECK(strand.links.size() == 2);  // out of one rack and into the other
    } else if (strand.pairs == std::vector{pair(0, 1), pair(0, 2)}) {
      CHECK(strand.links.size() == 1);  // out of host 0
    }
  }
  CHECK(users == std::set<std::vector<RankPair>>{{pair(0, 1)},
                                                 {pair(0, 2)},
                                                 {pair(1, 3)},
                                                 {pair(0, 1), pair(0, 2)},
                                                 {pair(0, 2), pair(1, 3)}});
}

TEST_CASE("a lone pair's whole route is one strand") {
  const topology::Topology cluster = test::two_racks();
  const std::vector<Strand> strands = strands_of(cluster, {pair(1, 2)});
  REQUIRE(strands.size() == 1);
  CHECK(names_of(cluster, strands[0]).size() == 4);
  CHECK(strands_of(cluster, {}).empty());
}

}  // namespace rackrail::runtime::pair_network_test

// What is written is read back the same, for random graphs.
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/file.hpp"
#include "tests/property/topology/random_topology.hpp"
#include "tests/support/paths.hpp"
#include "topology/reader.hpp"

namespace rackrail::readers_property_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::random_topology;

namespace {
constexpr std::uint64_t kSeed = 424242;
}

TEST_CASE("random graphs survive the flat form to the digest, and the edge list to the links") {
  const rackrail::test::TemporaryDirectory folder;
  for (std::uint64_t i = 0; i < 60; ++i) {
    CAPTURE(kSeed, i);
    const Topology t = random_topology(kSeed + i, 12, 6, 999'999'937);
    write_file_atomically(folder.path() / "flat.yaml", to_flat_yaml(t));
    const Topology flat = read_cluster((folder.path() / "flat.yaml").string()).topology;
    REQUIRE(flat.digest() == t.digest());
    REQUIRE(flat.name() == t.name());

    write_file_atomically(folder.path() / "edges.csv", to_edge_list(t));
    const Topology edges = read_cluster((folder.path() / "edges.csv").string()).topology;
    REQUIRE(edges.link_count() == t.link_count());
    REQUIRE(edges.rank_count() == t.rank_count());
    for (std::size_t l = 0; l < t.link_count(); ++l) {
      REQUIRE(edges.link_name(LinkId(l)) == t.link_name(LinkId(l)));
      REQUIRE(edges.link(LinkId(l)).bandwidth == t.link(LinkId(l)).bandwidth);
      REQUIRE(edges.link(LinkId(l)).latency == t.link(LinkId(l)).latency);
    }
  }
}

}  // namespace rackrail::readers_property_test

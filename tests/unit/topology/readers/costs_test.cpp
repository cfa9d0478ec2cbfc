// What messages and machines cost besides bandwidth and latency, as files say it.
#include <catch2/catch.hpp>
#include <set>

#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology::costs_test {
namespace {

using test::error_of;
using test::TextFile;

Topology read_file_of(const std::string& name, const std::string& text) {
  return read_cluster(TextFile(name, text).path()).topology;
}

std::string workers(const std::string& properties) {
  return "name: test\nnode_types: { worker: { rank: host, " + properties +
         " } }\nracks: { hosts: 3 }\n";
}

// The overheads of all links that touch a rank.
std::set<std::pair<Duration, Duration>> overheads_of(const Topology& t) {
  std::set<std::pair<Duration, Duration>> found;
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Link& link = t.link(LinkId(l));
    if (link.kind != LinkKind::kShared) found.emplace(link.overhead, link.receive_overhead);
  }
  return found;
}

TEST_CASE("overheads of both ends come through every format") {
  const std::set<std::pair<Duration, Duration>> expected{{3_us, Duration(700'000)}};
  const Topology spec = read_file_of(
      "cluster.yaml", workers("nics: { link: rdma, overhead: 3 us, receive_overhead: 700 ns }"));
  CHECK(overheads_of(spec) == expected);
  const Topology flat = read_file_of("flat.yaml", to_flat_yaml(spec));
  CHECK(overheads_of(flat) == expected);
  CHECK(flat.digest() == spec.digest());
  const Topology edges = read_file_of("edges.csv",
                                      "source,target,bandwidth,latency,overhead,receive_overhead\n"
                                      "host0,tor0,1 GB/s,1 us,3 us,700 ns\n"
                                      "host1,tor0,1 GB/s,1 us,3 us,700 ns\n");
  CHECK(overheads_of(edges) == expected);
  // A cluster without them keeps the digest that plans know it by.
  const Topology without =
      read_file_of("cluster.yaml", workers("nics: { link: rdma, overhead: 3 us }"));
  CHECK(without.digest() != spec.digest());
  CHECK(overheads_of(without) == std::set<std::pair<Duration, Duration>>{{3_us, Duration()}});
}

TEST_CASE("a negative overhead is refused") {
  for (const char* key : {"overhead", "receive_overhead"}) {
    const std::string message = error_of([&] {
      read_file_of("cluster.yaml",
                   workers(std::string("nics: { link: rdma, ") + key + ": -1 us }"));
    });
    CHECK(message.find(key) != std::string::npos);
  }
}

TEST_CASE("a machine with cores is the processor of all its ranks, and of no others") {
  const Topology t = read_file_of("cluster.yaml", R"(
name: test
node_types:
  box: { gpus: 4, device_class: V100, cores: 32, pcie: { bandwidth: 16 GB/s, latency: 1 us },
         nics: { link: tcp } }
  old: { rank: host, nics: { link: tcp } }
racks: [{ hosts: 2, type: box }, { hosts: 1, type: old }]
network: { wiring: leaf-spine, spine: { count: 1, bandwidth: 10 GB/s, latency: 1 us } }
)");
  REQUIRE(t.rank_count() == 9);
  for (std::size_t r = 0; r < 8; ++r) {
    REQUIRE(t.processor_of(Rank(r)));
    CHECK(*t.processor_of(Rank(r)) == *t.processor_of(Rank(r / 4 * 4)));
    const Link& cores = t.link(*t.processor_of(Rank(r)));
    CHECK(cores.kind == LinkKind::kShared);
    CHECK(cores.cpu_share == Approx(1.0 / 32));
    CHECK(t.node(cores.from).host == t.node(t.node_of(Rank(r))).host);
  }
  CHECK(*t.processor_of(Rank(0)) != *t.processor_of(Rank(4)));
  CHECK_FALSE(t.processor_of(Rank(8)));
  const Topology again = read_file_of("flat.yaml", to_flat_yaml(t));
  CHECK(again.digest() == t.digest());
}

}  // namespace
}  // namespace rackrail::topology::costs_test

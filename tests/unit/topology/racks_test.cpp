#include "topology/racks.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/clusters.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology::racks_test {
namespace {

using Partition = std::set<std::set<std::string>>;  // of the names of ranks

Partition racks_of(const Topology& topology) {
  Partition racks;
  for (const RankGroup& group : ranks_by_rack(topology)) {
    std::set<std::string> names;
    for (const Rank rank : group.ranks) names.insert(topology.node(topology.node_of(rank)).name);
    racks.insert(std::move(names));
  }
  return racks;
}

/// The racks of the edges between vertices of one letter and a number: h0-t0. "host" and "gpu"
/// stand for h and g, which are ranks.
Partition racks_between(const std::string& edges, const std::string& kind = "") {
  std::string text = "source,target,bandwidth,latency,kind\n";
  const auto name = [](const std::string& end) {
    if (end[0] == 'h') return "host" + end.substr(1);
    return end[0] == 'g' ? "gpu" + end.substr(1) : end;
  };
  for (std::size_t i = 0; i < edges.size();) {
    const std::size_t end = std::min(edges.find(' ', i), edges.size());
    const std::size_t middle = edges.find('-', i);
    text += fmt::format("{},{},1 GB/s,1 us,{}\n", name(edges.substr(i, middle - i)),
                        name(edges.substr(middle + 1, end - middle - 1)), kind);
    i = end + 1;
  }
  return racks_of(read_cluster_text("edges.csv", text).topology);
}

bool has_racks(const Partition& racks) {
  return racks.size() > 1 &&
         std::any_of(racks.begin(), racks.end(), [](const auto& rack) { return rack.size() > 1; });
}

/// The same cluster, of whose racks and switches nobody says anything: only host names, what is
/// inside machines, and links are left.
Topology without_names(const Topology& topology) {
  Topology result("nameless");
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    Node node = topology.node(NodeId(v));
    node.rack.clear();
    if (node.host.empty() && !topology.rank_of(NodeId(v))) {
      node.name = fmt::format("x{}", v);
      node.kind = NodeKind::kSwitch;
    }
    result.add_node(std::move(node));
  }
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    result.add_rank(topology.node_of(Rank(r)));
  }
  for (std::size_t l = 0; l < topology.link_count(); ++l) {
    result.add_link(topology.link(LinkId(l)));
  }
  return result;
}

Partition racks_without_names(const Topology& topology) {
  Topology nameless = without_names(topology);
  name_racks(nameless);
  return racks_of(nameless);
}

}  // namespace

TEST_CASE("structure tells the racks that shipped clusters name") {
  std::size_t with_racks = 0;
  for (const std::string& name : shipped_clusters()) {
    CAPTURE(name);
    const Topology cluster = read_cluster(name).topology;
    if (ranks_by_rack(cluster).size() == 1) {
      CHECK(racks_by_structure(without_names(cluster)).empty());
      continue;
    }
    CHECK(racks_without_names(cluster) == racks_of(cluster));
    ++with_racks;
  }
  CHECK(with_racks == 6);
}

TEST_CASE("structure tells the racks around machines of NCCL's files") {
  const std::filesystem::path folder = test::shared_inputs() / "nccl-topology";
  if (!std::filesystem::exists(folder)) {
    RACKRAIL_SKIP("no real topology files beside the source tree");
  }
  const char* wiring = GENERATE("leaf-spine", "rail-optimised", "rail-optimized");
  const test::TextFile overlay(
      "overlay.yaml", fmt::format("racks: {{ count: 3, hosts: 2 }}\nnic: {{ bandwidth: 200 Gbit/s, "
                                  "latency: 1 us }}\nnetwork:\n  wiring: {}\n  spine: {{ count: 2, "
                                  "cables: 1, bandwidth: 200 Gbit/s, latency: 1 us }}\n",
                                  wiring));
  for (const char* file : {"ndv4-topo.xml", "ndv5-topo.xml", "p4d-24xl-topo.xml"}) {
    CAPTURE(file, wiring);
    const Topology cluster =
        read_cluster((folder / file).string(), {.overlay = overlay.path()}).topology;
    REQUIRE(ranks_by_rack(cluster).size() == 3);
    CHECK(racks_without_names(cluster) == racks_of(cluster));
  }
}

TEST_CASE("racks of clusters that say nothing of them but by their links") {
  CHECK(racks_without_names(rackrail::test::clos({4, 4, 3}, 2)).size() == 3);
  CHECK(racks_without_names(rackrail::test::three_tiers({{3, 2}, {1, 4}}, 2)).size() == 4);
  CHECK(racks_without_names(rackrail::test::pods({{{2, 2}, {4}}, {{1, 1}}})).size() == 3);
  // One rail each for GPUs of all boxes, tori, and one switch.
  for (const Topology& topology :
       {rackrail::test::boxes(4, 2), rackrail::test::boxes(4, 8), rackrail::test::grid(4, 4, true),
        rackrail::test::cube_mesh(), rackrail::test::uneven_star(), rackrail::test::pcie_hosts(3),
        rackrail::test::hosts_with_nics(4, {25, 25})}) {
    CAPTURE(topology.name());
    CHECK(racks_by_structure(without_names(topology)).empty());
  }
}

TEST_CASE("racks of edge lists whose switches have any names") {
  const Partition two = {{"host0", "host1"}, {"host2", "host3"}};
  CHECK(racks_between("h0-t0 h1-t0 h2-t1 h3-t1 t0-c t1-c") == two);
  CHECK(racks_between("h0-t0 h1-t0 h2-t1 h3-t1 t0-t1") == two);
  CHECK(racks_between("h0-banana h1-banana h2-spam h3-spam banana-x spam-y x-z y-z") == two);
  CHECK(racks_between("h0-tor0 h1-tor0 h2-x h3-x tor0-core x-core") == two);
  CHECK(racks_between("h0-t0 h1-t0 h2-t0 h3-t1 t0-c t1-c") ==
        Partition{{"host0", "host1", "host2"}, {"host3"}});
  // Two tiers above, and hosts at both ends of them.
  CHECK(racks_between("h0-a h1-a h2-b h3-b h4-s a-r b-r r-s") ==
        Partition{{"host0", "host1"}, {"host2", "host3"}, {"host4"}});
  // A switch of each pair of hosts' cables, and one of each unit's rails.
  CHECK(racks_between("h0-a h0-b h1-a h1-b h2-c h2-d h3-c h3-d a-s b-s c-s d-s") == two);
  // A network for management beside it.
  CHECK(racks_between("h0-t0 h1-t0 h2-t1 h3-t1 t0-c t1-c h0-mgmt h1-mgmt h2-mgmt h3-mgmt") == two);
  // NICs; a storage box on a core switch is no machine with ranks.
  CHECK(racks_between("h0-nic0 h1-nic1 h2-nic2 h3-nic3 nic0-t0 nic1-t0 nic2-t1 nic3-t1 t0-c t1-c "
                      "nic9-c nic9-t1") == two);
}

TEST_CASE("switches inside machines are no racks") {
  // Boxes of two GPUs on a switch of their own, with a rail each.
  CHECK_FALSE(has_racks(racks_between("g0-v0 g1-v0 g2-v1 g3-v1 g0-r0 g2-r0 g1-r1 g3-r1")));
  CHECK_FALSE(
      has_racks(racks_between("g0-v0 g1-v0 g2-v1 g3-v1 g0-r0 g2-r0 g1-r1 g3-r1 r0-s r1-s")));
  // The same in racks of two boxes: all four GPUs are of one.
  CHECK(
      racks_between("g0-v0 g1-v0 g2-v1 g3-v1 g4-v2 g5-v2 g0-t0 g1-t0 g2-t0 g3-t0 g4-t1 g5-t1 t0-c "
                    "t1-c") == Partition{{"gpu0", "gpu1", "gpu2", "gpu3"}, {"gpu4", "gpu5"}});
  // Switches that NVLink or PCIe join are inside, whatever is behind them.
  CHECK_FALSE(has_racks(racks_between("g0-v0 g1-v0 g2-v1 g3-v1 v0-v1", "nvlink")));
  CHECK(has_racks(racks_between("g0-v0 g1-v0 g2-v1 g3-v1 v0-v1", "host-link")));
}

TEST_CASE("no racks where they say nothing") {
  for (const char* edges : {
           "h0-c h1-c h2-c",                                   // one switch
           "h0-c h1-c h2-c c-d",                               // and one above it
           "h0-t0 h1-t1 h2-t2 t0-c t1-c t2-c",                 // a host each
           "h0-h1 h1-h2 h2-h3 h3-h0",                          // a ring
           "h0-r0 h1-r1 h2-r2 h3-r3 r0-r1 r1-r2 r2-r3 r3-r0",  // of switches
           "h0-r0 h0-r1 h1-r0 h1-r1 h2-r0 h2-r1",              // rails of all
           "h0-r0 h0-r1 h1-r0 h1-r1 h2-r0 h2-r1 r0-s r1-s",    // with a spine
           "h0-t0 h1-t0 h2-t1 h3-t1 t0-c t1-c h1-h2",          // a cable across
           "h0-t0 h1-t0 h2-t1 h3-t1 t0-core t1-core h4-core",  // a host on the core
       }) {
    CAPTURE(edges);
    CHECK_FALSE(has_racks(racks_between(edges)));
  }
}

TEST_CASE("the flat form tells racks by structure, unless a key says that there are none") {
  const std::string switches = "- {name: p, kind: switch}\n- {name: q, kind: switch}\n";
  const auto read = [](const std::string& text) {
    return racks_of(read_cluster_text("flat.yaml", text).topology);
  };
  std::string nodes = "nodes:\n";
  std::string links =
      "links:\n- {from: p, to: q, bandwidth: 1 GB/s, latency: 1 us, duplex: true}\n";
  for (int h = 0; h < 4; ++h) {
    nodes += fmt::format("- {{name: n{}, kind: host}}\n", h);
    links +=
        fmt::format("- {{from: n{}, to: {}, bandwidth: 1 GB/s, latency: 1 us, duplex: true}}\n", h,
                    h < 2 ? "p" : "q");
  }
  const Partition two = {{"n0", "n1"}, {"n2", "n3"}};
  CHECK(read(nodes + switches + links) == two);
  CHECK(read(nodes + "- {name: p, kind: tor}\n- {name: q, kind: tor}\n" + links) == two);
  CHECK_FALSE(has_racks(read(nodes + "- {name: p, kind: switch, rack: \"\"}\n" +
                             "- {name: q, kind: switch}\n" + links)));
}

TEST_CASE("a cluster whose racks nobody named keeps to that in the flat form") {
  for (const Topology& topology :
       {rackrail::test::clos({4, 4, 3}, 2), without_names(rackrail::test::clos({2, 3}, 1))}) {
    REQUIRE_FALSE(racks_by_structure(topology).empty());
    CHECK(read_cluster_text("flat.yaml", to_flat_yaml(topology)).topology.digest() ==
          topology.digest());
  }
}

}  // namespace rackrail::topology::racks_test

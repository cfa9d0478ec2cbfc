#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::edge_list_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::TextFile;

namespace {

Topology read_text(const std::string& text) {
  return read_cluster(TextFile("edges.csv", text).path()).topology;
}

const std::string kHeader = "source,target,bandwidth,latency\n";

}  // namespace

TEST_CASE("an edge list: both directions, ranks by name") {
  const Topology t = read_text(
      "# a comment\n\nsource,target,bandwidth,latency,kind\r\n"
      "gpu1,leaf0,25 GB/s,1 us,host-link\r\n"
      " gpu0 , leaf0 , 200 Gbit/s , 1000 ns , host-link \n"
      "leaf0,box,25 GB/s,1 us,uplink\nbox,host7,25 GB/s,1 us,\n");
  CHECK(t.name() == "edges");
  CHECK(t.link_count() == 8);
  CHECK(t.rank_count() == 3);
  CHECK(t.node(t.node_of(Rank(0))).name == "gpu1");
  CHECK(t.node(t.node_of(Rank(2))).kind == NodeKind::kHost);
  CHECK(t.node(*t.find_node("leaf0")).kind == NodeKind::kTor);
  CHECK(t.node(*t.find_node("box")).kind == NodeKind::kSwitch);
  CHECK(t.link(LinkId(0)).kind == LinkKind::kHostLink);
  CHECK(t.link(LinkId(2)).bandwidth == 25_GBps);
  CHECK(t.link(LinkId(2)).latency == 1_us);
}

TEST_CASE("a directed edge list says so in a comment") {
  const Topology t = read_text("# directed\n" + kHeader +
                               "gpu0,gpu1,1 GB/s,1 us\ngpu1,gpu2,1 GB/s,1 us\n"
                               "gpu2,gpu0,1 GB/s,1 us\n");
  CHECK(t.link_count() == 3);
  Router router(t);
  CHECK(router.route(Rank(1), Rank(0)).size() == 2);
}

TEST_CASE("a cable that is listed from both ends is two cables, which a note says") {
  const auto read = [](const std::string& text) {
    return read_cluster(TextFile("edges.csv", text).path());
  };
  const std::string rows = "gpu0,gpu1,1 GB/s,1 us\ngpu0,gpu1,1 GB/s,1 us\ngpu1,gpu0,1 GB/s,1 us\n";
  const ReadResult both = read(kHeader + rows);
  CHECK(both.topology.link_count() == 6);
  REQUIRE(both.notes.size() == 1);
  CHECK_THAT(both.notes[0], Catch::Contains("1 link is there in the other direction already") &&
                                Catch::Contains("line 4") && Catch::Contains("# directed"));
  CHECK(read("# directed\n" + kHeader + rows).notes.empty());
  CHECK(read(kHeader + "gpu0,gpu1,1 GB/s,1 us\ngpu0,gpu1,1 GB/s,1 us\n").notes.empty());
}

TEST_CASE("directed: a bare line, a value, or a column of its own") {
  const std::string edges =
      kHeader + "gpu0,gpu1,1 GB/s,1 us\ngpu1,gpu0,1 GB/s,1 us\ngpu0,gpu1,1 GB/s,1 us\n";
  CHECK(read_text("directed\n" + edges).link_count() == 3);
  CHECK(read_text("#directed: true\n" + edges).link_count() == 3);
  CHECK(read_text("# directed = yes\n" + edges).link_count() == 3);
  CHECK(read_text("# directed: false\n" + edges).link_count() == 6);
  CHECK(read_text("# directed by somebody\n" + edges).link_count() == 6);
  CHECK(read_text("source,target,bandwidth,latency,directed\ngpu0,gpu1,1 GB/s,1 us,false\n"
                  "gpu0,gpu1,1 GB/s,1 us,true\n")
            .link_count() == 3);
  CHECK_THAT(error_of([] {
               read_text("source,target,bandwidth,latency,directed\ngpu0,gpu1,1 GB/s,1 us,up\n");
             }),
             Catch::Contains("column directed: found 'up'"));
}

TEST_CASE("cells in quotes, a byte order mark, and names that need quotes") {
  const Topology t = read_text(
      "\xef\xbb\xbfsource,target,bandwidth,latency\n"
      "\"gpu0\",\"a, \"\"b\"\"\",\"25 GB/s\",\"1 us\"\ngpu1,\"a, \"\"b\"\"\",25 GB/s,1 us\n");
  CHECK(t.rank_count() == 2);
  CHECK(t.find_node("a, \"b\""));
  const Topology again = read_text(to_edge_list(t));
  CHECK(again.link_name(LinkId(0)) == t.link_name(LinkId(0)));
  CHECK_THROWS_AS(read_text(kHeader + "\"gpu0,gpu1,1 GB/s,1 us\n"), ConfigError);
}

TEST_CASE("a second table says who is a rank, and where") {
  const Topology t = read_text(kHeader +
                               "x,s,1 GB/s,1 us\ny,s,1 GB/s,1 us\nhostess,s,1 GB/s,1 us\n"
                               "\nvertex,role,kind,host,rack,device_class,memory\n"
                               "y,rank,gpu,n0,r0,A100,40 GB\nx,rank,gpu,n0,r0,,\n"
                               "hostess,switch,core,,,,\n");
  REQUIRE(t.rank_count() == 2);
  const Node& y = t.node(t.node_of(Rank(0)));
  CHECK(y.name == "y");
  CHECK(y.device_class == "A100");
  CHECK(y.memory == Bytes(40'000'000'000));
  CHECK(ranks_by_host(t).size() == 1);
  CHECK(t.node(*t.find_node("hostess")).kind == NodeKind::kCore);
}

TEST_CASE("what to_edge_list writes reads back as the same graph") {
  std::vector<Topology> clusters;
  for (const std::string& name : shipped_clusters()) {
    clusters.push_back(read_cluster(name).topology);
  }
  clusters.push_back(topology::test::boxes(2, 1'000'000'000));
  clusters.push_back(topology::test::ring(5, 3_GBps));
  Topology& costly = clusters.emplace_back(topology::test::ring(4, 3_GBps));
  Node staged = costly.node(costly.node_of(Rank(2)));
  staged.host_staging = 12_GBps;
  costly.set_node_properties(costly.node_of(Rank(2)), staged);
  costly.add_link({.from = NodeId(0),
                   .to = NodeId(2),
                   .bandwidth = 1_GBps,
                   .latency = 1_us,
                   .tier = "odd, \"one\"",
                   .overhead = 2_us,
                   .cpu_share = 0.35,
                   .receive_overhead = 3_us,
                   .flow_bandwidth = Bandwidth(500'000'000),
                   .burst = 64_KiB});
  for (const Topology& t : clusters) {
    CAPTURE(t.name());
    const Topology again = read_text(to_edge_list(t));
    REQUIRE(again.rank_count() == t.rank_count());
    REQUIRE(again.link_count() == t.link_count());
    for (std::size_t l = 0; l < t.link_count(); ++l) {
      REQUIRE(again.link_name(LinkId(l)) == t.link_name(LinkId(l)));
      REQUIRE(again.link(LinkId(l)).bandwidth == t.link(LinkId(l)).bandwidth);
      REQUIRE(again.link(LinkId(l)).latency == t.link(LinkId(l)).latency);
      REQUIRE(again.link(LinkId(l)).kind == t.link(LinkId(l)).kind);
      REQUIRE(again.link(LinkId(l)).tier == t.link(LinkId(l)).tier);
      REQUIRE(again.link(LinkId(l)).overhead == t.link(LinkId(l)).overhead);
      REQUIRE(again.link(LinkId(l)).receive_overhead == t.link(LinkId(l)).receive_overhead);
      REQUIRE(again.link(LinkId(l)).flow_bandwidth == t.link(LinkId(l)).flow_bandwidth);
      REQUIRE(again.link(LinkId(l)).burst == t.link(LinkId(l)).burst);
      REQUIRE(again.link(LinkId(l)).cpu_share == t.link(LinkId(l)).cpu_share);
    }
    for (std::size_t r = 0; r < t.rank_count(); ++r) {
      const Node& before = t.node(t.node_of(Rank(r)));
      const Node& after = again.node(again.node_of(Rank(r)));
      REQUIRE(after.name == before.name);
      REQUIRE(after.host == before.host);
      REQUIRE(after.rack == before.rack);
      REQUIRE(after.memory == before.memory);
      REQUIRE(after.host_staging == before.host_staging);
    }
    for (std::size_t v = 0; v < t.node_count(); ++v) {
      const Node& before = t.node(NodeId(v));
      const std::optional<NodeId> there = again.find_node(before.name);
      REQUIRE(there.has_value());
      REQUIRE(again.node(*there).multicasts == before.multicasts);
      REQUIRE(again.node(*there).reduces == before.reduces);
    }
  }
}

TEST_CASE("where nobody names a rack, it is the ToR switch of its ranks") {
  const std::string racks =
      kHeader +
      "host0,tor0,1 GB/s,1 us\nhost1,tor0,1 GB/s,1 us\nhost2,tor1,1 GB/s,1 us\n"
      "tor0,core,1 GB/s,1 us\ntor1,core,1 GB/s,1 us\n";
  const Topology t = read_text(racks);
  const std::vector<RankGroup> groups = ranks_by_rack(t);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].name == "tor0");
  CHECK(groups[0].ranks == std::vector{Rank(0), Rank(1)});
  CHECK(groups[1].ranks == std::vector{Rank(2)});
  CHECK(to_edge_list(t).find("rack") == std::string::npos);
  CHECK(read_text(to_edge_list(t)).digest() == t.digest());

  // A name of the file counts, even if it is the only one.
  const std::string named = "\nvertex,role,rack\nhost0,rank,left\nhost1,rank,\nhost2,rank,\n";
  CHECK(read_text(racks + named).node(NodeId(0)).rack == "left");
  // Cables that join both racks, and a host on a core switch.
  for (const char* more :
       {"host0,tor1,1 GB/s,1 us\n", "host0,host2,1 GB/s,1 us\n", "host3,core,1 GB/s,1 us\n"}) {
    CAPTURE(more);
    const Topology none = read_text(racks + more);
    CHECK(ranks_by_rack(none).size() == none.rank_count());  // each by itself
  }
  // Cables inside a rack, and a switch that leads nowhere.
  for (const char* more : {"host0,host1,1 GB/s,1 us\n", "host0,box,1 GB/s,1 us\n"}) {
    CAPTURE(more);
    CHECK(ranks_by_rack(read_text(racks + more)).size() == 2);
  }
}

TEST_CASE("an end of the network whose name makes it no rank is noted") {
  const auto notes = [](const std::string& text) {
    const topology::test::TextFile file("edges.csv", text);
    return read_cluster(file.path()).notes;
  };
  const std::string text = kHeader + "host0,sw,1 GB/s,1 us\nhost1,sw,1 GB/s,1 us\n";
  CHECK(notes(text).empty());
  CHECK_THAT(notes(text + "node2,sw,1 GB/s,1 us\n").at(0),
             Catch::Contains("'node2' is on one other vertex and no rank") &&
                 Catch::Contains("vertex,role"));
  CHECK_THAT(notes(text + "node2,sw,1 GB/s,1 us\nnode3,sw,1 GB/s,1 us\n").at(0),
             Catch::Contains("'node2' and 1 more are each on one"));
  CHECK(notes(text + "node2,sw,1 GB/s,1 us\nvertex,role\nhost0,rank\nhost1,rank\n").empty());
}

TEST_CASE("a switch of the table of vertices that no link names is noted") {
  const auto notes = [](const std::string& rows) {
    const topology::test::TextFile file(
        "edges.csv", kHeader + "host0,tor0,1 GB/s,1 us\nhost1,tor0,1 GB/s,1 us\nvertex,role\n" +
                         "host0,rank\nhost1,rank\n" + rows);
    return read_cluster(file.path()).notes;
  };
  CHECK(notes("tor0,switch\n").empty());
  REQUIRE(notes("tro0,switch\n").size() == 1);
  CHECK_THAT(notes("tro0,switch\n").at(0),
             Catch::StartsWith("line 7: no link names 'tro0' of the table of vertices: "));
  CHECK_THAT(notes("tor0,switch\ntro0,switch\nleaf,switch\n").at(0),
             Catch::StartsWith("line 8: no link names 'tro0'") &&
                 Catch::Contains("nor 1 more of its switches"));
  // A cluster of one rank has no links.
  CHECK(read_text(kHeader + "vertex,role\ngpu0,rank\n").rank_count() == 1);
}

TEST_CASE("one-way links are written as directed") {
  Topology t = topology::test::ring(3, 1_GBps);
  topology::test::join_one_way(t, NodeId(0), NodeId(2), 2_GBps);
  const std::string text = to_edge_list(t);
  CHECK(text.starts_with("# directed\n"));
  CHECK(read_text(text).link_count() == t.link_count());
}

TEST_CASE("a share of minus nothing is none, in every form that a cluster is written in") {
  const Topology t = read_cluster_text("a.csv",
                                       "source,target,bandwidth,latency,cpu_share\n"
                                       "gpu0,gpu1,1 GB/s,1 us,-.0\n")
                         .topology;
  CHECK_FALSE(std::signbit(t.link(LinkId(0U)).cpu_share));
  CHECK(read_cluster_text("flat.yaml", to_flat_yaml(t)).topology.digest() == t.digest());
}

TEST_CASE("mistakes in an edge list are named with line and column") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"gpu0,gpu1,1 GB/s,1 us\n", "line 1: found 'gpu0,gpu1,1 GB/s,1 us', expected a header"},
      {"source,target,bandwidth\n", "header 'source,target,bandwidth'"},
      {"source,target,bandwidth,latency,colour\n", "column 'colour'"},
      {"source,target,bandwidth,latency,kind,kind\n", "column 'kind'"},
      {kHeader + "gpu0,gpu1,1 GB/s\n", "line 2: found 3 cells"},
      {kHeader + "gpu0,gpu1,25,1 us\n",
       "line 2, column bandwidth: found '25', expected a rate with a unit"},
      {kHeader + "gpu0,gpu1,1 GB/s,1\n", "column latency: found '1'"},
      {kHeader + "gpu0,gpu1,0 GB/s,1 us\n", "column bandwidth"},
      {kHeader + "gpu0,gpu1,-1 GB/s,1 us\n", "column bandwidth: found '-1 GB/s'"},
      {kHeader + "gpu0,gpu0,1 GB/s,1 us\n", "another vertex"},
      {kHeader + ",gpu0,1 GB/s,1 us\n", "column source: found nothing"},
      {"source,target,bandwidth,latency,kind\ngpu0,gpu1,1 GB/s,1 us,rope\n", "found 'rope'"},
      {"source,target,bandwidth,latency,cpu_share\ngpu0,gpu1,1 GB/s,1 us,2\n", "column cpu_share"},
      {kHeader + "gpu0,gpu1,1 GB/s,1 us\n" + kHeader, "one table of edges"},
      {kHeader + "gpu0,gpu1,1 GB/s,1 us\nvertex,role\ngpu0,king\n", "found 'king'"},
      {kHeader + "gpu0,gpu1,1 GB/s,1 us\nvertex,role\ngpu0,rank\ngpu0,rank\n", "each rank once"},
      {kHeader + "gpu0,gpu1,1 GB/s,1 us\nvertex,role\ngpu0,rank\npgu1,rank\n",
       "line 5, column vertex: found 'pgu1', which no link names, expected a rank that the table "
       "of links names"},
      {kHeader + "gpu0,gpu1,1 GB/s,1 us\ngpu2,s,1 GB/s,1 us\n", "gpu0, gpu1 | gpu2"},
      {kHeader + std::string("gpu\0,gpu1,1 GB/s,1 us\n", 21),
       "a vertex 'gpu\\x00', expected a name without control characters"},
      {std::string("source,target,bandwidth,latency,tier\ngpu0,gpu1,1 GB/s,1 us,a\0b\n", 63),
       "a tier 'a\\x00b', expected a name without control characters"},
      {kHeader + "a,b,1 GB/s,1 us\n", "no rank, expected vertices named gpu… or host…, or a table"},
      {kHeader, "no rank"},
      {"# only a comment\n", "no header"},
      {"vertex,role\na,rank\n", "one table of edges"},
  }));
  CAPTURE(text);
  CHECK_THAT(error_of([&, t = text] { read_text(t); }),
             Catch::Contains("edges.csv: ") && Catch::Contains(expected));
}

}  // namespace rackrail::edge_list_test

#include "topology/hosts.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "tests/support/clusters.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology::hosts_test {
namespace {

using Partition = std::set<std::set<std::string>>;  // of the names of ranks

/// Hosts of ranks, those alone too, of an edge list of such links: "gpu0-nvswitch0 gpu0-rail0".
Partition hosts_between(const std::string& edges) {
  std::string text = "source,target,bandwidth,latency\n";
  for (std::size_t i = 0; i < edges.size();) {
    const std::size_t end = std::min(edges.find(' ', i), edges.size());
    const std::size_t middle = edges.find('-', i);
    text += edges.substr(i, middle - i) + "," + edges.substr(middle + 1, end - middle - 1) +
            ",1 GB/s,1 us\n";
    i = end + 1;
  }
  const Topology cluster = read_cluster_text("edges.csv", text).topology;
  Partition hosts;
  for (const RankGroup& group : ranks_by_host(cluster)) {
    std::set<std::string> names;
    for (const Rank rank : group.ranks) {
      names.insert(cluster.node(cluster.node_of(rank)).name);
    }
    hosts.insert(std::move(names));
  }
  return hosts;
}

Topology without_hosts(Topology topology) {
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    Node node = topology.node(NodeId(v));
    node.host.clear();
    topology.set_node_properties(NodeId(v), node);
  }
  return topology;
}

TEST_CASE("hosts of GPUs that are on an NVSwitch and on a rail") {
  const std::string inside = "gpu0-nvswitch0 gpu1-nvswitch0 gpu2-nvswitch1 gpu3-nvswitch1 ";
  const Partition two = {{"gpu0", "gpu1"}, {"gpu2", "gpu3"}};
  CHECK(hosts_between(inside + "gpu0-rail0 gpu2-rail0 gpu1-rail1 gpu3-rail1") == two);
  // Two NVSwitches in each, an adapter for all, PCIe, cables from one to the other.
  CHECK(hosts_between(inside +
                      "gpu0-nvswitch2 gpu1-nvswitch2 gpu2-nvswitch3 gpu3-nvswitch3 gpu0-tor "
                      "gpu2-tor") == two);
  CHECK(hosts_between(inside + "gpu0-nic0 gpu1-nic0 gpu2-nic1 gpu3-nic1 nic0-nic1") == two);
  CHECK(hosts_between(inside + "gpu0-pcie0 pcie0-nic0 nic0-tor gpu2-nic1 nic1-tor") == two);
  CHECK(hosts_between(inside + "gpu0-gpu2 gpu1-gpu3") == two);
  // Some are in none.
  CHECK(hosts_between("gpu0-nvswitch0 gpu1-nvswitch0 gpu0-tor gpu1-tor gpu2-tor") ==
        Partition{{"gpu0", "gpu1"}, {"gpu2"}});
}

TEST_CASE("GPUs that NVLinks join are one host, and other cables between GPUs join nothing") {
  const auto row = [](const char* ends, const char* kind) {
    return std::string(ends) + ",1 GB/s,1 us," + kind + "\n";
  };
  const std::string header = "source,target,bandwidth,latency,kind\n";
  const std::string rails = row("gpu0,rail0", "host-link") + row("gpu2,rail0", "host-link") +
                            row("gpu1,rail1", "host-link") + row("gpu3,rail1", "host-link");
  const auto meshes = [&](const char* kind) {
    return row("gpu0,gpu1", kind) + row("gpu2,gpu3", kind) + row("gpu0,gpu2", "other");
  };
  const ReadResult two = read_cluster_text("edges.csv", header + meshes("nvlink") + rails);
  const std::vector<RankGroup> hosts = ranks_by_host(two.topology);
  REQUIRE(hosts.size() == 2);
  CHECK(hosts[0].name == "gpu0");
  CHECK(hosts[0].ranks == std::vector{Rank(0), Rank(1)});
  CHECK(hosts[1].ranks == std::vector{Rank(2), Rank(3)});
  REQUIRE(two.notes.size() == 1);
  CHECK_THAT(two.notes[0], Catch::Contains("2 hosts") && Catch::Contains("NVLinks join") &&
                               Catch::Contains("vertex,role,host"));
  const std::string again = to_edge_list(two.topology);
  CHECK(again.find("vertex") == std::string::npos);
  CHECK(ranks_by_host(read_cluster_text("again.csv", again).topology).size() == 2);

  const ReadResult none = read_cluster_text("edges.csv", header + meshes("other") + rails);
  CHECK(ranks_by_host(none.topology).size() == 4);
  CHECK(none.notes.empty());
  // What joins all of them says nothing; an NVSwitch in a host names it.
  const ReadResult one = read_cluster_text(
      "edges.csv", header + meshes("nvlink") + row("gpu1,gpu3", "nvlink") + rails);
  CHECK(ranks_by_host(one.topology).size() == 4);
  const ReadResult named = read_cluster_text(
      "edges.csv", header + meshes("nvlink") + row("gpu0,nvswitch7", "nvlink") + rails);
  CHECK(ranks_by_host(named.topology)[0].name == "nvswitch7");
}

TEST_CASE("no hosts where NVSwitches tell none") {
  const Partition alone = {{"gpu0"}, {"gpu1"}};
  CHECK(hosts_between("gpu0-tor gpu1-tor") == alone);
  CHECK(hosts_between("gpu0-nvswitch0 gpu1-nvswitch1 gpu0-tor gpu1-tor") == alone);
  CHECK(hosts_between("gpu0-nvswitch0 gpu1-nvswitch0") == alone);  // all in one say nothing
  CHECK(hosts_between("gpu0-nvswitch0 gpu1-nvswitch1 nvswitch0-nvswitch1") == alone);
}

TEST_CASE("NVSwitches tell the hosts that clusters name, and only what is in them") {
  for (const Topology& cluster :
       {rackrail::test::boxes(3, 8), rackrail::test::boxes_with_nics({{25, 0}, {25, 25}}, 2),
        rackrail::test::pods({{{2, 2}, {4}}, {{1, 1}}})}) {
    CAPTURE(cluster.name());
    CHECK(hosts_by_structure(cluster).empty());  // they are named
    Topology nameless = without_hosts(cluster);
    CHECK(name_hosts(nameless) > 1);
    for (std::size_t v = 0; v < cluster.node_count(); ++v) {
      for (std::size_t other = 0; other < v; ++other) {
        const auto are_in_one = [&](const Topology& topology) {
          const std::string& host = topology.node(NodeId(v)).host;
          return !host.empty() && host == topology.node(NodeId(other)).host;
        };
        REQUIRE(are_in_one(nameless) == are_in_one(cluster));
      }
    }
  }
}

TEST_CASE("where a table of vertices has a column for hosts, it says whether there are some") {
  const std::string edges =
      "source,target,bandwidth,latency\n"
      "gpu0,nvswitch0,1 GB/s,1 us\ngpu1,nvswitch0,1 GB/s,1 us\ngpu2,nvswitch1,1 GB/s,1 us\n"
      "gpu3,nvswitch1,1 GB/s,1 us\ngpu0,tor,1 GB/s,1 us\ngpu2,tor,1 GB/s,1 us\n";
  const ReadResult told = read_cluster_text("edges.csv", edges);
  CHECK(ranks_by_host(told.topology).size() == 2);
  REQUIRE(told.notes.size() == 1);
  CHECK_THAT(told.notes[0], Catch::Contains("2 hosts") && Catch::Contains("vertex,role,host"));
  const std::string table =
      "\nvertex,role,host\ngpu0,rank,\ngpu1,rank,\ngpu2,rank,\ngpu3,rank,\nnvswitch0,switch,\n";
  const ReadResult said = read_cluster_text("edges.csv", edges + table);
  CHECK(ranks_by_host(said.topology).size() == 4);
  CHECK(said.notes.empty());
  const ReadResult untold = read_cluster_text(
      "edges.csv", edges + "\nvertex,role\ngpu0,rank\ngpu1,rank\ngpu2,rank\ngpu3,rank\n");
  CHECK(ranks_by_host(untold.topology).size() == 2);
  CHECK(untold.notes == told.notes);
  // Either is written as it is.
  for (const Topology& cluster : {told.topology, said.topology}) {
    const std::string text = to_edge_list(cluster);
    CHECK(to_edge_list(read_cluster_text("again.csv", text).topology) == text);
    CHECK(ranks_by_host(read_cluster_text("again.csv", text).topology).size() ==
          ranks_by_host(cluster).size());
  }
  CHECK(to_edge_list(told.topology).find("vertex") == std::string::npos);
}

}  // namespace
}  // namespace rackrail::topology::hosts_test

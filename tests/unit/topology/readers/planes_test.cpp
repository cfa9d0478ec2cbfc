// NVLink domains over hosts, islands of GPUs, planes of the network and NICs with several ports.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/hosts.hpp"
#include "topology/queries.hpp"
#include "topology/racks.hpp"
#include "topology/reader.hpp"
#include "topology/tiers.hpp"

namespace rackrail::planes_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::TextFile;

namespace {

Topology read_text(const std::string& text) {
  return read_cluster(TextFile("cluster.yaml", text).path()).topology;
}

/// Two racks of two hosts with `gpus` GPUs each. All links within a host have 40 GB/s but NVLink,
/// which has 100 GB/s; a port has 10 GB/s.
std::string cluster(const std::string& gpus, const std::string& nvlink, const std::string& nics,
                    const std::string& network) {
  return "name: t\nnode_types:\n  n:\n    gpus: " + gpus +
         "\n    pcie: { bandwidth: 40 GB/s, latency: 500 ns, gpus_per_switch: 1 }\n" +
         (nvlink.empty()
              ? ""
              : "    nvlink: { bandwidth: 100 GB/s, latency: 300 ns, " + nvlink + " }\n") +
         "    nics: { bandwidth: 10 GB/s, latency: 1 us, " + nics +
         " }\nracks: { count: 2, hosts: 2 }\nnetwork: { " + network + " }\n";
}

constexpr const char* kSpine =
    "wiring: rail-optimised, spine: { count: 2, bandwidth: 100 GB/s, "
    "latency: 1 us }";

double flow(const Topology& t, const char* from, const char* to) {
  const MaxFlow found = max_flow(t, t.find_node(from).value(), t.find_node(to).value());
  return static_cast<double>(found.value.bytes_per_second()) / 1e9;
}

std::set<std::string> neighbours(const Topology& t, const char* name) {
  std::set<std::string> names;
  for (const LinkId link : t.links_out_of(t.find_node(name).value())) {
    names.insert(t.node(t.link(link).to).name);
  }
  return names;
}

std::string message_of(const std::string& text) {
  const std::string message = error_of([&] { read_text(text); });
  return message.substr(std::min(message.find("cluster.yaml"), message.size()));
}

}  // namespace

TEST_CASE("an NVLink domain of several hosts has one switch") {
  const Topology t =
      read_text(cluster("2", "hosts: 2, multicasts: true, reduces: true", "count: 1", kSpine));
  CHECK(t.rank_count() == 8);
  CHECK(ranks_by_host(t).size() == 4);
  CHECK(ranks_by_rack(t).size() == 2);
  CHECK(neighbours(t, "nvswitch0") ==
        std::set<std::string>{"gpu0.0", "gpu0.1", "gpu1.0", "gpu1.1"});
  CHECK(t.node(*t.find_node("nvswitch2")).reduces);
  CHECK_FALSE(t.find_node("nvswitch1"));
  // Within a domain over NVLink, and over PCIe to other GPUs and NICs.
  CHECK(flow(t, "gpu0.0", "gpu1.1") == Approx(140));
  // Between domains over the NICs of both hosts: the second is reached by NVLink.
  CHECK(flow(t, "gpu0.0", "gpu2.0") == Approx(20));
  Router router(t);
  CHECK(route_latency(t, router.route(Rank(0), Rank(3))) == 600_ns);
  // Hosts nest in racks as they do without NVLink between them.
  const auto nesting = nested_groups(t);
  REQUIRE(nesting.size() == 3);
  CHECK(nesting[0].size() == 4);
  CHECK(nesting[1].size() == 2);
  CHECK(hosts_by_structure(t).empty());
  const Topology back = read_cluster(TextFile("flat.yaml", to_flat_yaml(t)).path()).topology;
  CHECK(back.digest() == t.digest());
}

TEST_CASE("racks are told by structure where hosts of one NVLink domain have names") {
  Topology t = read_text(cluster("2", "hosts: 2", "count: 1", kSpine));
  for (std::size_t v = 0; v < t.node_count(); ++v) {
    Node node = t.node(NodeId(v));
    node.rack.clear();
    t.set_node_properties(NodeId(v), node);
  }
  name_racks(t);
  CHECK(ranks_by_rack(t).size() == 2);
}

TEST_CASE("islands are joined by PCIe only") {
  const Topology t = read_text(cluster("4", "islands: 2", "count: 1", kSpine));
  CHECK(neighbours(t, "nvswitch0.1") == std::set<std::string>{"gpu0.2", "gpu0.3"});
  CHECK(t.node(*t.find_node("nvswitch0.1")).host == "host0");
  CHECK(flow(t, "gpu0.0", "gpu0.1") == Approx(140));
  CHECK(flow(t, "gpu0.0", "gpu0.2") == Approx(80));  // over both GPUs of either island
  const Topology pairs = read_text(cluster("4", "islands: 2, switched: false", "count: 1", kSpine));
  CHECK_FALSE(pairs.find_node("nvswitch0"));
  CHECK(flow(pairs, "gpu0.0", "gpu0.1") == Approx(140));
  CHECK(flow(pairs, "gpu0.0", "gpu0.3") == Approx(80));
}

TEST_CASE("ports of a NIC share its PCIe link") {
  const auto read = [](const std::string& nics) {
    return read_text(cluster("1", "", nics, kSpine));
  };
  CHECK(flow(read("count: 1"), "gpu0.0", "gpu1.0") == Approx(10));
  CHECK(flow(read("count: 1, ports: 3"), "gpu0.0", "gpu2.0") == Approx(30));
  CHECK(flow(read("count: 1, ports: 6"), "gpu0.0", "gpu1.0") == Approx(40));
  const Topology t = read("count: 2, ports: 2");
  CHECK(neighbours(t, "leaf1.1") == std::set<std::string>{"nic2.1", "nic3.1", "spine0", "spine1"});
  CHECK(t.links_out_of(*t.find_node("leaf1.1")).size() == 6);
}

TEST_CASE("planes are networks of their own") {
  const auto network = [](const std::string& wiring) {
    return "wiring: " + wiring +
           ", planes: 2, spine: { count: 4, bandwidth: 5 GB/s, latency: 1 us }";
  };
  const Topology rails =
      read_text(cluster("1", "", "count: 2, ports: 2", network("rail-optimised")));
  CHECK(neighbours(rails, "nic0.1") == std::set<std::string>{"pcie0.0", "leaf0.1.0", "leaf0.1.1"});
  CHECK(neighbours(rails, "leaf1.0.1") ==
        std::set<std::string>{"nic2.0", "nic3.0", "spine2", "spine3"});
  // To the other rack a leaf has 2 uplinks of 5 GB/s, and there are 2 leaves in each plane.
  CHECK(flow(rails, "gpu0.0", "gpu2.0") == Approx(40));
  // With one port a NIC is in one plane.
  const Topology single = read_text(cluster("2", "", "count: 2", network("rail-optimised")));
  CHECK(neighbours(single, "spine1") == std::set<std::string>{"leaf0.0.0", "leaf1.0.0"});
  CHECK(neighbours(single, "spine2") == std::set<std::string>{"leaf0.1.1", "leaf1.1.1"});
  const Topology tors = read_text(cluster("1", "", "count: 1, ports: 2", network("leaf-spine")));
  CHECK(neighbours(tors, "tor1.1") ==
        std::set<std::string>{"nic2.0", "nic3.0", "spine2", "spine3"});
  CHECK(flow(tors, "gpu0.0", "gpu2.0") == Approx(20));
}

TEST_CASE("more than 64 GPUs and NICs fit into a host") {
  const Topology t = read_text(
      "name: t\nnode_types: { n: { gpus: 72, nvlink: { bandwidth: 900 GB/s, latency: 300 ns }, "
      "pcie: { bandwidth: 63 GB/s, latency: 500 ns }, nics: { count: 72, link: rdma } } }\n"
      "racks: { hosts: 2 }\nnetwork: { wiring: single-switch }\n");
  CHECK(t.rank_count() == 144);
}

TEST_CASE("mistakes in domains, islands and planes are one line") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {cluster("2", "hosts: 3", "count: 1", kSpine),
       "racks: found racks of 2 hosts, expected a multiple of the 3 hosts of an NVLink domain of "
       "'n'"},
      {cluster("2", "hosts: 2, switched: false", "count: 1", kSpine), "'switched: true'"},
      {cluster("4", "hosts: 2, islands: 2", "count: 1", kSpine),
       "line 6, node_types.n.nvlink.islands: found 'hosts' and 'islands', expected one of the two"},
      {cluster("4", "islands: 3", "count: 1", kSpine),
       "expected a divisor of the 4 GPUs that leaves several to each"},
      {cluster("4", "islands: 4", "count: 1", kSpine), "that leaves several to each"},
      {cluster("4", "hosts: 0", "count: 1", kSpine), "found '0', expected a whole number from 1"},
      {cluster("4", "", "count: 1, ports: 99", kSpine), "found '99', expected a whole number"},
      {cluster("4", "", "count: 1025", kSpine), "from 1 to 1024"},
      {cluster("1", "", "count: 1", "wiring: single-switch, planes: 2"), "one switch for 2 racks"},
      {cluster("1", "", "count: 1",
               "wiring: fat-tree, planes: 2, pod: { racks: 1 }, spine: { count: 2, link: rdma }, "
               "core: { count: 2, link: rdma }"),
       "'planes' with leaf-spine or rail-optimised only"},
      {cluster("1", "", "count: 1",
               "wiring: leaf-spine, planes: 2, spine: { count: 3, link: rdma }"),
       "network.spine.count: found '3', expected a multiple of the 2 planes"},
  }));
  CAPTURE(text);
  const std::string message = message_of(text);
  CHECK_THAT(message, Catch::StartsWith("cluster.yaml: ") && Catch::Contains(expected));
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("a cluster file may describe devices of its own") {
  const auto read = [](const std::string& classes, const std::string& device) {
    return read_text("name: t\ndevice_classes: { " + classes +
                     " }\nnode_types: { n: { rank: host, device_class: " + device +
                     ", nics: { link: tcp } } }\nracks: { hosts: 2 }\n");
  };
  const std::string own =
      "Mine: { matrix_tflops: 100, memory_bandwidth: 2 TB/s, memory: 64 GB, wake: 1 us }";
  const Topology t = read(own, "mine");
  const Node& node = t.node(NodeId(0));
  REQUIRE(node.figures != nullptr);
  CHECK(node.device_class == "mine");
  CHECK(node.figures->matrix_tflops == 100);
  CHECK(node.figures->memory == 2'000_GBps);
  CHECK(node.figures->codec_memory == 2'000_GBps);
  CHECK(node.figures->launch == 1_us);
  CHECK(node.figures->wake == 1_us);
  CHECK(node.memory == Bytes(64'000'000'000));
  const Topology back = read_cluster(TextFile("flat.yaml", to_flat_yaml(t)).path()).topology;
  REQUIRE(back.node(NodeId(1)).figures != nullptr);
  CHECK(back.node(NodeId(1)).figures->matrix_tflops == 100);
  CHECK(back.node(NodeId(1)).figures->wake == 1_us);
  CHECK(back.digest() == t.digest());
  CHECK(read("Mine: { memory: 64 GB }", "mine").node(NodeId(0)).figures == nullptr);
  CHECK_THAT(error_of([&] { read("Mine: { matrix_tflops: 100 }", "mine"); }),
             Catch::Contains("line 2") && Catch::Contains("no 'memory_bandwidth'"));
  CHECK_THAT(error_of([&] { read("Mine: {}", "mine"); }), Catch::Contains("no 'memory'"));
  CHECK_THAT(error_of([&] {
               read("Mine: { matrix_tflops: 1, memory_bandwidth: 1 GB/s, codec_memory: 2 GB/s }",
                    "mine");
             }),
             Catch::Contains("at most the 'memory_bandwidth'"));
}

}  // namespace rackrail::planes_test

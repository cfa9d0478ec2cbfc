#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "base/error.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::cluster_yaml_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::TextFile;

namespace {

Topology read_text(const std::string& text) {
  return read_cluster(TextFile("cluster.yaml", text).path()).topology;
}

/// The message without the folder that the file happened to be in.
std::string message_of(const std::string& text) {
  const std::string message = error_of([&] { read_text(text); });
  const std::size_t file = message.find("cluster.yaml");
  return file == std::string::npos ? message : message.substr(file);
}

/// Links and their common bandwidth by tier.
std::map<std::string, std::pair<int, Bandwidth>> tiers_of(const Topology& t) {
  std::map<std::string, std::pair<int, Bandwidth>> tiers;
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const Link& link = t.link(LinkId(l));
    auto& [count, rate] = tiers[link.tier];
    CHECK((count == 0 || rate == link.bandwidth));
    ++count;
    rate = link.bandwidth;
  }
  return tiers;
}

const std::string kHostType = R"(
node_types:
  worker: { rank: host, device_class: V100, memory: 16 GiB, nics: { link: tcp } }
)";

}  // namespace

TEST_CASE("the shipped clusters are what their names say") {
  SECTION("two-racks-40g") {
    const Topology t = read_cluster("two-racks-40g").topology;
    CHECK(t.name() == "two-racks-40g");
    CHECK(t.rank_count() == 4);
    CHECK(ranks_by_host(t).size() == 4);
    CHECK(ranks_by_rack(t).size() == 2);
    CHECK(t.node(t.node_of(Rank(3))).device_class == "V100");
    CHECK(t.node(t.node_of(Rank(3))).kind == NodeKind::kHost);
    const auto tiers = tiers_of(t);
    CHECK(tiers.at("rack-uplink") == std::pair(4, 40_Gbps));
    CHECK(tiers.at("nic") == std::pair(8, Bandwidth(12'400'000'000)));
    Router router(t);
    const Link& nic = t.link(router.route(Rank(0), Rank(1)).front());
    CHECK(nic.latency == 150_us);
    CHECK(nic.cpu_share == Approx(0.35));
    CHECK(nic.overhead > Duration(0));
  }
  SECTION("a100-8x8") {
    const Topology t = read_cluster("a100-8x8").topology;
    CHECK(t.rank_count() == 64);
    CHECK(ranks_by_host(t).size() == 8);
    const auto tiers = tiers_of(t);
    CHECK(tiers.at("nvlink") == std::pair(128, 300_GBps));
    CHECK(tiers.at("nic") == std::pair(128, 200_Gbps));
    // Non-blocking: the uplinks of a rack carry what its 32 NICs do.
    CHECK(tiers.at("rack-uplink") == std::pair(16, 200_Gbps * 8));
    CHECK(t.node(t.node_of(Rank(0))).memory == Bytes(40'000'000'000));
  }
  SECTION("h100-32x8-rail") {
    const Topology t = read_cluster("h100-32x8-rail").topology;
    CHECK(t.rank_count() == 256);
    CHECK(ranks_by_host(t).size() == 32);
    const auto tiers = tiers_of(t);
    CHECK(tiers.at("nvlink") == std::pair(512, 450_GBps));
    CHECK(tiers.at("nic") == std::pair(512, 400_Gbps));
    CHECK(tiers.at("spine") == std::pair(64, 400_Gbps * 8));
    CHECK(t.node(*t.find_node("nvswitch0")).reduces);
    CHECK(t.node(*t.find_node("leaf0.7")).multicasts);
  }
  SECTION("fat-tree-128-2to1") {
    const Topology t = read_cluster("fat-tree-128-2to1").topology;
    CHECK(t.rank_count() == 128);
    CHECK(ranks_by_rack(t).size() == 16);
    const auto tiers = tiers_of(t);
    // Each ToR: 8 ports of 100 Gbit/s down, half of it up over 4 spines.
    CHECK(tiers.at("rack-uplink") == std::pair(2 * 16 * 4, 100_Gbps));
    CHECK(tiers.at("core") == std::pair(2 * 16 * 4, 100_Gbps));
  }
  CHECK(shipped_clusters() ==
        std::vector<std::string>{
            "a100-8x8", "aws-p5-8x8", "aws-p6-b200-8x8", "azure-nd-h100-v5-16x8", "b200-32x8-rail",
            "fat-tree-128-2to1", "gb200-nvl72", "gb200-nvl72-8", "gb300-nvl72-8", "gh200-alps-32x4",
            "h100-32x8-rail", "l40s-8", "mi300x-8x8", "mi355x-8x8", "rtx4090-2", "two-racks-40g"});
}

TEST_CASE("shipped clusters of current machines are what their names say") {
  struct Expected {
    const char* name;
    std::size_t ranks;
    std::size_t hosts;
    const char* device;
    Bandwidth nvlink;  // of one link; 0: none
    int nics;          // both directions
    Bandwidth nic;
  };
  const auto expected = GENERATE(values<Expected>(
      {{"aws-p5-8x8", 64, 8, "H100", 450_GBps, 2 * 8 * 32, 100_Gbps},
       {"aws-p6-b200-8x8", 64, 8, "B200", 900_GBps, 2 * 64, 400_Gbps},
       {"azure-nd-h100-v5-16x8", 128, 16, "H100", 450_GBps, 2 * 128, 400_Gbps},
       {"b200-32x8-rail", 256, 32, "B200", 900_GBps, 2 * 256, 400_Gbps},
       {"gb200-nvl72", 72, 18, "GB200", 900_GBps, 2 * 72, 400_Gbps},
       {"gb200-nvl72-8", 576, 144, "GB200", 900_GBps, 2 * 576, 400_Gbps},
       {"gb300-nvl72-8", 576, 144, "GB300", 900_GBps, 2 * 576, 800_Gbps},
       {"gh200-alps-32x4", 128, 32, "GH200", 150_GBps, 2 * 128, 200_Gbps},
       {"l40s-8", 8, 1, "L40S", Bandwidth(), 0, Bandwidth()},
       {"mi300x-8x8", 64, 8, "MI300X", 64_GBps, 2 * 64, 400_Gbps},
       {"mi355x-8x8", 64, 8, "MI355X", Bandwidth(76'800'000'000), 2 * 64, 400_Gbps},
       {"rtx4090-2", 2, 1, "RTX 4090", Bandwidth(), 0, Bandwidth()}}));
  CAPTURE(expected.name);
  const Topology t = read_cluster(expected.name).topology;
  CHECK(t.name() == expected.name);
  CHECK(t.rank_count() == expected.ranks);
  CHECK(ranks_by_host(t).size() == expected.hosts);
  CHECK(t.node(t.node_of(Rank(0))).device_class == expected.device);
  const auto tiers = tiers_of(t);
  CHECK(tiers.contains("nvlink") == (expected.nvlink != Bandwidth()));
  if (tiers.contains("nvlink")) CHECK(tiers.at("nvlink").second == expected.nvlink);
  CHECK(tiers.contains("nic") == (expected.nics > 0));
  if (tiers.contains("nic")) CHECK(tiers.at("nic") == std::pair(expected.nics, expected.nic));
  // Leaves send up what they take.
  if (tiers.contains("spine")) {
    const auto [links, rate] = tiers.at("spine");
    CHECK(rate * links == expected.nic * expected.nics);
  }
}

TEST_CASE("presets can be used, replaced and built upon") {
  const Topology t = read_text(R"(
name: t
link_classes:
  rdma: { latency: 5 us }
  slow: { link: rdma, bandwidth: 1 GB/s }
node_types:
  a: { rank: host, nics: { link: rdma } }
  b: { rank: host, nics: { link: slow, cpu_share: 10 % } }
racks:
  - { hosts: 1, type: a }
  - { count: 2, hosts: 1, type: b }
network:
  wiring: leaf-spine
  spine: { count: 2, link: rdma }
)");
  REQUIRE(t.rank_count() == 3);
  const Link& a = t.link(t.links_out_of(t.node_of(Rank(0)))[0]);
  CHECK(a.bandwidth == Bandwidth(56'800'000'000));
  CHECK(a.latency == 5_us);
  CHECK(a.cpu_share == 0);
  const Link& b = t.link(t.links_out_of(t.node_of(Rank(1)))[0]);
  CHECK(b.bandwidth == 1_GBps);
  CHECK(b.latency == 5_us);
  CHECK(b.cpu_share == Approx(0.1));
}

TEST_CASE("GPUs that are staged in host memory say at which rate") {
  const auto staging_of = [](const std::string& key) {
    const Topology t = read_text(R"(
name: box
node_types:
  box:
    gpus: 2
)" + key + R"(
    pcie: { bandwidth: 32 GB/s, latency: 1 us }
    nics: { count: 1, link: rdma }
racks: { hosts: 1 }
)");
    return t.node(t.node_of(Rank(1))).host_staging;
  };
  CHECK(staging_of("") == Bandwidth(0));
  CHECK(staging_of("    host_staging: 24 GB/s") == 24_GBps);
  CHECK_THROWS_WITH(staging_of("    host_staging: 24"), Catch::Contains("host_staging"));
}

TEST_CASE("a machine without a network stands alone") {
  const Topology t = read_text(R"(
name: box
node_types:
  box:
    gpus: 4
    nvlink: { bandwidth: 300 GB/s, latency: 1 us, switched: false }
    pcie: { bandwidth: 32 GB/s, latency: 1 us, gpus_per_switch: 2 }
    nics: { count: 2, link: rdma }
racks: { hosts: 1 }
)");
  CHECK(t.rank_count() == 4);
  Router router(t);
  // Without a switch each GPU divides its 300 GB/s among three peers.
  CHECK(route_bandwidth(t, router.route(Rank(0), Rank(3))) == 100_GBps);
  CHECK(tiers_of(t).at("nvlink").first == 12);
  CHECK_FALSE(t.find_node("tor0"));
}

TEST_CASE("one box of GPUs needs no NICs") {
  const Topology t = read_text(R"(
name: box
node_types:
  box:
    gpus: 4
    nvlink: { bandwidth: 300 GB/s, latency: 1 us }
    pcie: { bandwidth: 32 GB/s, latency: 1 us, gpus_per_switch: 2 }
racks: { hosts: 1 }
)");
  CHECK(t.rank_count() == 4);
  CHECK_NOTHROW(t.require_connected());
  CHECK_FALSE(t.find_node("nic0.0"));
  CHECK_FALSE(t.find_node("tor0"));
}

TEST_CASE("fat tree: cores join the same spine of every pod") {
  const Topology t = read_text("name: ft" + kHostType + R"(
racks: { count: 4, hosts: 2 }
network:
  wiring: fat-tree
  pod: { racks: 2 }
  spine: { count: 2, bandwidth: 10 GB/s, latency: 1 us }
  core: { count: 4, bandwidth: 5 GB/s, latency: 1 us, cables: 2 }
)");
  CHECK(t.rank_count() == 8);
  CHECK(t.links_out_of(*t.find_node("core0")).size() == 2);
  for (const LinkId link : t.links_out_of(*t.find_node("core3"))) {
    CHECK((t.link_name(link) == "core3→spine0.1" || t.link_name(link) == "core3→spine1.1"));
    CHECK(t.link(link).bandwidth == 10_GBps);
    CHECK(t.link(link).tier == "core");
  }
}

TEST_CASE("one message may take a part of the uplinks' cables") {
  const Topology t = read_text("name: c" + kHostType + R"(
link_classes:
  cable: { bandwidth: 10 GB/s, latency: 1 us, flow_bandwidth: 10 GB/s }
racks: { count: 2, hosts: 2 }
network:
  wiring: leaf-spine
  spine: { count: 1, link: cable, cables: 4 }
)");
  for (const LinkId link : t.links_out_of(*t.find_node("spine0"))) {
    CHECK(t.link(link).bandwidth == 40_GBps);
    CHECK(t.link(link).flow_bandwidth == 10_GBps);
  }
}

TEST_CASE("oversubscription sets the rate of the uplinks") {
  const Topology t = read_text("name: o" + kHostType + R"(
racks: { count: 2, hosts: 6 }
network:
  wiring: leaf-spine
  spine: { count: 3, oversubscription: 4, latency: 1 us }
)");
  // 6 x 12.4 GB/s down, a quarter up, over three spines.
  CHECK(tiers_of(t).at("rack-uplink") == std::pair(12, Bandwidth(6'200'000'000)));
}

TEST_CASE("memory is that of the device class in any case") {
  const auto read = [](const std::string& more) {
    return read_text(
        "name: one\ndevice_classes: { V100: { memory: 16 GB }" + more +
        " }\nnode_types: { worker: { rank: host, device_class: v100, nics: { link: tcp } } }\n"
        "racks: { count: 1, hosts: 1 }\n");
  };
  CHECK(read("").node(NodeId(0)).memory == Bytes(16'000'000'000));
  CHECK_THAT(error_of([&] { read(", v100: { memory: 32 GB }"); }),
             Catch::Contains("each class once"));
}

TEST_CASE("mistakes are one line with file, line, what was found and what was expected") {
  const std::string good = "name: x" + kHostType + "racks: { hosts: 2 }\n";
  REQUIRE(read_text(good).rank_count() == 2);
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"node_types: {}\nracks: {hosts: 1}\n", "no node type"},
      {"name: x\nracks: {hosts: 1}\n", "no 'node_types'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\n", "no 'racks'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {hosts: 0}\n",
       "line 4, racks.hosts: found '0', expected a whole number from 1"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {hosts: -2}\n", "'-2'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {hosts: 99999999999}\n",
       "'99999999999'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 4000, hosts: "
       "4000}\n",
       "16000000 hosts"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcpp}}\nracks: {hosts: 1}\n",
       "line 3, node_types.a.nics.link: found 'tcpp', expected a link class: rdma, tcp"},
      {"name: x\nnode_types:\n  a:\n    rank: host\n    nics: {bandwidth: 40, latency: 1 us}\n"
       "racks: {hosts: 1}\n",
       "line 5, node_types.a.nics.bandwidth: found '40', expected a rate with a unit"},
      {"name: x\nnode_types:\n  a:\n    rank: host\n    nics: {bandwidth: 99999999999 GB/s, "
       "latency: 1 us}\nracks: {hosts: 1}\n",
       "found '99999999999 GB/s', expected a rate above 0 and up to 1000 TB/s"},
      {"name: x\nnode_types:\n  a:\n    rank: host\n    nics: {bandwidth: -3 Gbit/s, latency: 1 "
       "us}\nracks: {hosts: 1}\n",
       "found '-3 Gbit/s', expected a rate above 0 and up to 1000 TB/s"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {bandwidth: 1 GB/s, latency: -1 us}}\nracks: "
       "{hosts: 1}\n",
       "found '-1 us', expected a time from 0 to"},
      {"name: x\nnode_types:\n  a: {rank: host}\nracks: {hosts: 1}\n", "no 'nics'"},
      {"name: x\nnode_types:\n  a: {gpus: 4, pcie: {bandwidth: 16 GB/s, latency: 1 us}}\nracks: "
       "{hosts: 2}\n",
       "line 3, node_types.a: found no 'nics', and 2 hosts, expected 'nics', which only a host "
       "that "
       "is alone may lack"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {bandwidth: 1 GB/s}}\nracks: {hosts: 1}\n",
       "no 'latency'"},
      {"name: x\nnode_types:\n  a: {rank: rack, nics: {link: tcp}}\nracks: {hosts: 1}\n",
       "found 'rack', expected host or gpu"},
      {"name: x\nnode_types:\n  a: {rank: host, gpus: 8, nics: {link: tcp}}\nracks: {hosts: 1}\n",
       "'gpus' in a host that is one rank"},
      {"name: x\nnode_types:\n  a: {gpus: 8, nics: {link: tcp}}\nracks: {hosts: 1}\n", "no 'pcie'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {hosts: 1}\nspeed: 3\n",
       "line 5, speed: found unknown key 'speed'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {hosts: 1, type: b}\n",
       "type 'b'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 2, hosts: 1}\n",
       "2 racks and no 'network'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 2, hosts: 1}\n"
       "network: {wiring: single-switch}\n",
       "one switch for 2 racks"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 2, hosts: 1}\n"
       "network: {wiring: dragonfly}\n",
       "found 'dragonfly', expected single-switch, leaf-spine"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 2, hosts: 1}\n"
       "network: {wiring: leaf-spine}\n",
       "neither 'spine' nor 'core'"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 3, hosts: 1}\n"
       "network: {wiring: fat-tree, pod: {racks: 2}, spine: {count: 1, link: tcp}, core: {count: "
       "1, link: tcp}}\n",
       "a divisor of the 3 racks"},
      {"name: x\nnode_types:\n  a: {rank: host, nics: {link: tcp}}\nracks: {count: 2, hosts: 1}\n"
       "network: {wiring: leaf-spine, spine: {count: 1, link: tcp, cables: 2, oversubscription: "
       "2}}\n",
       "'cables' and 'oversubscription'"},
      {"just a text\n", "found 'just a text', expected a cluster"},
      {"- a\n- list\n", "found a list"},
  }));
  CAPTURE(text);
  const std::string message = message_of(text);
  CHECK_THAT(message, Catch::StartsWith("cluster.yaml: ") && Catch::Contains(expected));
  CHECK(message.find('\n') == std::string::npos);
}

TEST_CASE("a file that is no cluster, none, or empty is named") {
  CHECK_THAT(error_of([] { read_cluster("no-such-cluster"); }),
             Catch::Contains("no-such-cluster") && Catch::Contains("two-racks-40g"));
  CHECK_THAT(error_of([] { read_cluster(""); }), Catch::Contains("a100-8x8"));
  CHECK_THAT(error_of([] { read_cluster("/"); }), Catch::Contains("a folder"));
  const TextFile empty("cluster.yaml", " \n");
  CHECK_THAT(error_of([&] { read_cluster(empty.path()); }), Catch::Contains("an empty file"));
  const TextFile binary("cluster.bin", std::string("\x7f"
                                                   "ELF\0\1\2",
                                                   7));
  CHECK_THAT(error_of([&] { read_cluster(binary.path()); }),
             Catch::Contains("no known kind") && Catch::Contains("nccl-xml, ") &&
                 Catch::Contains("edge-list, yaml"));
}

TEST_CASE("the format can be forced, and an overlay is refused where it means nothing") {
  const TextFile file("cluster.txt", "name: x" + kHostType + "racks: { hosts: 2 }\n");
  ReadOptions options;
  options.format = "yaml";
  CHECK(read_cluster(file.path(), options).topology.rank_count() == 2);
  options.format = "dot";
  CHECK_THAT(error_of([&] { read_cluster(file.path(), options); }),
             Catch::Contains("--format") && Catch::Contains("nccl-xml, ") &&
                 Catch::Contains("edge-list, yaml"));
  options.format.reset();
  options.overlay = file.path();
  CHECK_THAT(error_of([&] { read_cluster(file.path(), options); }), Catch::Contains("an overlay"));
}

TEST_CASE("the environment says where the shipped configurations are") {
  const std::string before = configs_folder().string();
  ::setenv("RACKRAIL_CONFIGS", "/no/such/folder", 1);
  CHECK_THAT(error_of([] { (void)configs_folder(); }), Catch::Contains("RACKRAIL_CONFIGS"));
  ::setenv("RACKRAIL_CONFIGS", "/tmp", 1);
  CHECK(configs_folder() == "/tmp");
  CHECK(shipped_clusters().empty());
  ::unsetenv("RACKRAIL_CONFIGS");
  CHECK(configs_folder() == before);
}

TEST_CASE("a few lines cannot ask for more than fits into memory") {
  const std::string hosts = R"(
node_types: { w: { gpus: 64, pcie: { link: rdma }, nics: { count: 64, link: rdma } } }
racks: { count: 128, hosts: 128 }
network: { wiring: leaf-spine, spine: { count: 1, link: rdma } }
)";
  CHECK(message_of("name: hosts" + hosts) ==
        "cluster.yaml: racks and network: found 9453568 vertices and links, "
        "expected a cluster of at most 8000000");
  const std::string uplinks = R"(
node_types: { w: { rank: host, nics: { count: 64, link: tcp } } }
racks: { count: 4096, hosts: 1 }
network: { wiring: rail-optimised, spine: { count: 1024, link: tcp } }
)";
  CHECK_THAT(message_of("name: uplinks" + uplinks),
             Catch::Contains("vertices and links, expected a cluster of at most 8000000"));
}

}  // namespace rackrail::cluster_yaml_test

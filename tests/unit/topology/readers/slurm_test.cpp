#include <catch2/catch.hpp>

#include "base/file.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/readers/network_cases.hpp"
#include "topology/readers/hostlist.hpp"

namespace rackrail::slurm_test {

using namespace rackrail;
using namespace rackrail::topology;
using namespace rackrail::topology::test;

namespace {

const TierRates kRates{{"nic", 400_Gbps}, {"rack-uplink", 800_Gbps}};
const TierRates kThreeTiers{{"nic", 400_Gbps}, {"rack-uplink", 800_Gbps}, {"core", 1600_Gbps}};

constexpr const char* kTree =
    "# two leaves\n"
    "SWITCHNAME=leaf1 nodes=node[01-02]  LinkSpeed=100\n"
    "SwitchName=leaf2 \\\n"
    "  Nodes=\"node03, node04\"   # the second\n"
    "SwitchName=spine Switches=leaf[1-2]\n";

constexpr const char* kYaml = R"(- topology: all-flat
  cluster_default: false
  flat: true
- topology: tree
  cluster_default: True
  tree:
    switches:
      - switch: root
        children: leaf[1-2]
      - switch: leaf1
        nodes: n[1-2]
      - switch: leaf2
        nodes: n[3-4]
)";

std::string error_of_list(const std::string& list) {
  return error_of([&] { expand_hostlist(list, 1000); });
}

}  // namespace

TEST_CASE("a hostlist keeps zeros, takes several brackets and combines them") {
  CHECK(expand_hostlist("n[08-10,7]", 99) == std::vector<std::string>{"n08", "n09", "n10", "n7"});
  CHECK(expand_hostlist("r[1-2]n[1-2]-ib, x", 99) ==
        std::vector<std::string>{"r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib", "x"});
  CHECK(expand_hostlist("switch.1.[9-10]", 99) ==
        std::vector<std::string>{"switch.1.9", "switch.1.10"});
}

TEST_CASE("a hostlist that is none is refused with what is wrong") {
  CHECK(error_of_list("[1-4]").find("a prefix before their numbers") != std::string::npos);
  CHECK(error_of_list("n1,2").find("a prefix before their numbers") != std::string::npos);
  CHECK(error_of_list("n[1-4").find("closed by ']'") != std::string::npos);
  CHECK(error_of_list("n[1-[2]]").find("closed by ']'") != std::string::npos);
  CHECK(error_of_list("n1]").find("closed by ']'") != std::string::npos);
  CHECK(error_of_list("n[4-1]").find("low to high") != std::string::npos);
  CHECK(error_of_list("n[]").find("numbers in brackets") != std::string::npos);
  CHECK(error_of_list("n1,,n2").find("between commas") != std::string::npos);
  CHECK(error_of_list("n[1-4000000000]").find("at most 1000 names") != std::string::npos);
  CHECK(error_of_list("n[1-999]m[1-999]").find("at most 1000 names") != std::string::npos);
  CHECK(error_of_list("n[" + std::string(100'000, '0') + "1-900]").find("shorter numbers") !=
        std::string::npos);
  CHECK(error_of_list(std::string(100'000, 'n') + "[1-900]").find("at most 255 letters") !=
        std::string::npos);
}

TEST_CASE("a short line that asks for billions of names is refused") {
  const std::string error = error_of(
      [] { read_cluster_text("topology.conf", "SwitchName=s[1-65536] Nodes=n[1-65536]\n", {}); });
  CHECK(error.find("names in the lists of all lines") != std::string::npos);
}

TEST_CASE("a tree of Slurm is leaves below a spine, with the rates that were given by tier") {
  const ReadResult result = read_network(kTree, "", kRates);
  const Topology& t = result.topology;
  REQUIRE(t.rank_count() == 4);
  CHECK(t.node_count() == 7);
  CHECK(t.link_count() == 12);
  CHECK(rate_between(t, "node01", "leaf1") == 400_Gbps);
  CHECK(rate_between(t, "node04", "leaf2") == 400_Gbps);
  CHECK(rate_between(t, "leaf2", "spine") == 800_Gbps);
  CHECK(t.node(*t.find_node("leaf1")).kind == NodeKind::kTor);
  CHECK(t.node(*t.find_node("spine")).kind == NodeKind::kSpine);
  CHECK(ranks_by_rack(t).size() == 2);
  CHECK(has_note(result, "LinkSpeed"));
  CHECK(has_note(result, "each host is one rank"));
}

TEST_CASE("rates that Slurm's file lacks are asked for by tier") {
  const std::string error = error_of_network(kTree);
  CHECK(error.find("no rate for links of nic, rack-uplink") != std::string::npos);
  CHECK(error.find("--tier-bandwidth nic=400Gbit/s --tier-bandwidth rack-uplink=400Gbit/s") !=
        std::string::npos);
  const std::string half = error_of_network(kTree, "", {{"nic", 400_Gbps}});
  CHECK(half.find("no rate for links of rack-uplink") != std::string::npos);
}

TEST_CASE("an overlay says what is inside the hosts of Slurm's file, and rates") {
  const ReadResult result =
      read_network(kTree, std::string(kDgx) +
                              "tiers: { rack-uplink: { bandwidth: 1.6 Tbit/s, latency: 1 us } }\n");
  const Topology& t = result.topology;
  CHECK(t.rank_count() == 32);
  CHECK(ranks_by_host(t).size() == 4);
  CHECK(ranks_by_host(t).front().name == "node01");
  CHECK(t.node(t.node_of(Rank(0))).device_class == "H100");
  CHECK(rate_between(t, "nic0.7", "leaf1") == 400_Gbps);
  CHECK(rate_between(t, "leaf1", "spine") == 1600_Gbps);
  CHECK_FALSE(has_note(result, "assumed"));
}

TEST_CASE("an overlay with a tier that is not there is refused") {
  CHECK(error_of_network(kTree, "tiers: { spine: { bandwidth: 1 GB/s } }\n")
            .find("found tier 'spine', expected a tier of this cluster: nic, rack-uplink") !=
        std::string::npos);
  CHECK(error_of_network(kTree, "host: { gpus: 1, pcie: { bandwidth: 1 GB/s, latency: 1 us } }\n")
            .find("nics") != std::string::npos);
}

TEST_CASE("what is no tree of switches is diagnosed with its lines") {
  const auto error = [](const std::string& text) { return error_of_network(text, "", kRates); };
  CHECK(error("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n2\nSwitchName=c Switches=a,b\n")
            .find("line 2: found host 'n2' below 'b', and below 'a' (line 1)") !=
        std::string::npos);
  CHECK(error("SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n")
            .find("line 3: found switch 'a' below 'c', and below 'b' (line 2)") !=
        std::string::npos);
  CHECK(error("SwitchName=a Switches=b\nSwitchName=b Switches=a\nSwitchName=c Nodes=n1\n")
            .find("line 1: found switch 'a' below itself") != std::string::npos);
  CHECK(error("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n")
            .find("2 trees without a switch that joins them: a, b, expected one tree: add "
                  "'SwitchName=root Switches=a,b'") != std::string::npos);
  CHECK(error("SwitchName=a Switches=x\n").find("'x' among the switches of 'a'") !=
        std::string::npos);
  CHECK(error("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n").find("after line 1") !=
        std::string::npos);
  CHECK(error("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b Nodes=n2\n")
            .find("with switches and nodes") != std::string::npos);
  CHECK(error("SwitchName=a Nodes=[1-4]\n").find("line 1, Nodes: found '[1-4]'") !=
        std::string::npos);
  CHECK(error("SwitchName=a Nods=n1\n").find("'Nods'") != std::string::npos);
  CHECK(error("SwitchName=a Nodes=n1\nInclude more.conf\n").find("'Include'") != std::string::npos);
}

TEST_CASE("a tree that is deeper on one side has tiers by height") {
  const ReadResult result = read_network(
      "SwitchName=root Switches=mid,flat\nSwitchName=mid Switches=leaf\n"
      "SwitchName=leaf Nodes=a[1-2]\nSwitchName=flat Nodes=b[1-2]\n",
      "", kThreeTiers);
  CHECK(result.topology.rank_count() == 4);
  CHECK(rate_between(result.topology, "leaf", "mid") == 800_Gbps);
  CHECK(rate_between(result.topology, "mid", "root") == 1600_Gbps);
  CHECK(rate_between(result.topology, "flat", "root") == 1600_Gbps);
}

TEST_CASE("blocks of Slurm are a switch each below one") {
  const ReadResult result = read_network(
      "BlockName=b1 Nodes=n[1-3]\nBlockName=b2 Nodes=n[4-6]\nBlockSizes=3,6\n", "", kRates);
  CHECK(result.topology.rank_count() == 6);
  CHECK(rate_between(result.topology, "n5", "b2") == 400_Gbps);
  CHECK(rate_between(result.topology, "b2", "network") == 800_Gbps);
  CHECK(ranks_by_rack(result.topology).size() == 2);
  CHECK(has_note(result, "2 blocks read as one switch each"));
  CHECK(error_of_network("BlockName=a Nodes=n1\nBlockName=b Nodes=n1\n")
            .find("host 'n1' in block 'b', and in 'a' (line 1)") != std::string::npos);
}

TEST_CASE("topology.yaml: the default of several topologies, trees and blocks") {
  const ReadResult tree = read_network(kYaml, "", kRates);
  CHECK(tree.topology.rank_count() == 4);
  CHECK(rate_between(tree.topology, "leaf1", "root") == 800_Gbps);
  CHECK(has_note(tree, "of 2 topologies 'tree' is read"));
  const ReadResult block = read_network(
      "---\n- topology: b\n  block:\n    block_sizes: [2]\n    blocks:\n"
      "      - block: one\n        nodes: n[1-2]\n",
      "", {{"nic", 400_Gbps}});
  CHECK(block.topology.rank_count() == 2);
  CHECK(error_of_network("- topology: a\n  flat: true\n").find("'tree' or 'block'") !=
        std::string::npos);
  CHECK(error_of_network("- topology: a\n  tree:\n    switches:\n      - switch: s\n"
                         "        nodes: '[1-4]'\n")
            .find("line 5") != std::string::npos);
}

TEST_CASE("a file is Slurm's by its first line, not by a name in it") {
  const Topology t = read_cluster_text("edges.csv",
                                       "source,target,bandwidth,latency\ngpu0,gpu1,1 GB/s,1 us\n"
                                       "SwitchName=gpu2,gpu0,1 GB/s,1 us\n")
                         .topology;
  CHECK(t.find_node("SwitchName=gpu2").has_value());
}

TEST_CASE("real files of Slurm") {
  const auto folder = shared_inputs() / "fabric";
  if (!std::filesystem::exists(folder)) RACKRAIL_SKIP("no " + folder.string());
  const auto ranks = [&](const char* file, const TierRates& rates) {
    return read_network(read_file(folder / file), "", rates).topology.rank_count();
  };
  CHECK(ranks("slurm-topology-tree.conf", kThreeTiers) == 96);
  CHECK(ranks("slurm-topology-block.conf", kRates) == 96);
  CHECK(ranks("slurm-testsuite-tc3.topology.conf", kThreeTiers) == 400);
}

}  // namespace rackrail::slurm_test

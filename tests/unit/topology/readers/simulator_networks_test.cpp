// Networks of the simulators ASTRA-sim, HPCC, SimAI and htsim.
#include <catch2/catch.hpp>

#include "base/file.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/readers/network_cases.hpp"

namespace rackrail::simulator_networks_test {

using namespace rackrail;
using namespace rackrail::topology;
using namespace rackrail::topology::test;

namespace {

constexpr const char* kAstra =
    "topology: [ Switch, Ring ]  # innermost first\nnpus_count: [ 4, 3 ]\n"
    "bandwidth: [ 400, 50 ]\nlatency: [ 936.5, 1000 ]\n";

constexpr const char* kHpcc =
    "6 3 5\n4 5 3\n0 4 100Gbps 1000ns 0.000000\n1 4 100Gbps 1000ns 0\n2 5 100Gbps 0.001ms 0\n"
    "4 3 400Gbps 1us 0\n5 3 400Gbps 1us 0\n";

constexpr const char* kSimai =
    "8 2 2 2 9 A100\n4 5 6 7\n"
    "0 4 2400Gbps 0.000025ms 0\n1 4 2400Gbps 0.000025ms 0\n2 5 2400Gbps 0.000025ms 0\n"
    "3 5 2400Gbps 0.000025ms 0\n0 6 200Gbps 0.0005ms 0\n1 7 200Gbps 0.0005ms 0\n"
    "2 6 200Gbps 0.0005ms 0\n3 7 200Gbps 0.0005ms 0\n6 7 400Gbps 0.0005ms 0\n\nHow it was made\n";

constexpr const char* kHtsim =
    "# three tiers\nNodes 16\nTiers 3\nPodsize 8\n"
    "Tier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 2\nDownlink_Latency_ns 500\n"
    "Switch_Latency_ns 100\n"
    "Tier 1\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 600\n"
    "Tier 2\nDownlink_speed_Gbps 400\nRadix_Down 2\nDownlink_Latency_ns 700\nBundle 2\n";

std::string with(std::string text, const std::string& what, const std::string& by) {
  return text.replace(text.find(what), what.size(), by);
}

}  // namespace

TEST_CASE("ASTRA-sim: a switch inside hosts, a ring between them") {
  const Topology t = read_network(kAstra).topology;
  REQUIRE(t.rank_count() == 12);
  CHECK(ranks_by_host(t).size() == 3);
  CHECK(rate_between(t, "gpu5", "nvswitch0.1") == 400_GBps);
  CHECK(rate_between(t, "gpu1", "gpu5") == 50_GBps);
  CHECK(rate_between(t, "gpu9", "gpu1") == 50_GBps);
  CHECK(rate_between(t, "gpu1", "gpu4") == Bandwidth(0));
  CHECK(t.link_count() == 2 * (12 + 12));
  CHECK(t.link(LinkId(0)).latency == Duration(936'500));
}

TEST_CASE("ASTRA-sim: all to all, and rings of two") {
  const Topology t =
      read_network("topology: [FullyConnected]\nnpus_count: [5]\nbandwidth: [50]\nlatency: [1]\n")
          .topology;
  CHECK(t.rank_count() == 5);
  CHECK(t.link_count() == 20);
  CHECK(read_network("topology: [Ring]\nnpus_count: [2]\nbandwidth: [50]\nlatency: [1]\n")
            .topology.link_count() == 2);
}

TEST_CASE("ASTRA-sim: what is wrong is named") {
  CHECK(error_of_network(with(kAstra, "Ring", "Torus")).find("Ring, Switch or FullyConnected") !=
        std::string::npos);
  CHECK(error_of_network(with(kAstra, "[ 4, 3 ]", "[ 4 ]")).find("one for each dimension") !=
        std::string::npos);
  CHECK(error_of_network(with(kAstra, "[ 4, 3 ]", "[ 60000, 60000 ]")).find("at most 65536") !=
        std::string::npos);
}

TEST_CASE("HPCC: hosts and switches by number, levels by distance") {
  const Topology t = read_network(kHpcc).topology;
  CHECK(t.rank_count() == 3);
  CHECK(rate_between(t, "host0", "switch4") == 100_Gbps);
  CHECK(rate_between(t, "switch5", "switch3") == 400_Gbps);
  CHECK(t.node(*t.find_node("switch3")).kind == NodeKind::kSpine);
  CHECK(ranks_by_rack(t).size() == 2);
}

TEST_CASE("SimAI: GPUs in servers with NVSwitches, and prose behind") {
  const ReadResult result = read_network(kSimai);
  const Topology& t = result.topology;
  REQUIRE(t.rank_count() == 4);
  CHECK(ranks_by_host(t).size() == 2);
  CHECK(t.node(t.node_of(Rank(0))).device_class == "A100");
  CHECK(t.node(*t.find_node("nvswitch5")).host == "host1");
  CHECK(rate_between(t, "gpu3", "nvswitch5") == 2400_Gbps);
  CHECK(rate_between(t, "gpu3", "switch7") == 200_Gbps);
  CHECK(result.notes.empty());
  CHECK(has_note(read_network(with(kSimai, "9 A100", "12 A100")), "9 links read"));
}

TEST_CASE("HPCC and SimAI: what is wrong is named with its line") {
  CHECK(error_of_network(with(kHpcc, "4 5 3", "4 5 9")).find("line 2: found '9'") !=
        std::string::npos);
  CHECK(error_of_network(with(kHpcc, "2 5 100Gbps", "2 7 100Gbps")).find("line 5") !=
        std::string::npos);
  CHECK(error_of_network(with(kHpcc, "400Gbps 1us", "400 1us")).find("line 6") !=
        std::string::npos);
  CHECK(error_of_network(with(kHpcc, "0 4 100Gbps", "0 0 100Gbps")).find("two nodes") !=
        std::string::npos);
}

TEST_CASE("htsim: pods below cores in planes") {
  const Topology t = read_network(kHtsim).topology;
  REQUIRE(t.rank_count() == 16);
  CHECK(rate_between(t, "host5", "tor1") == 100_Gbps);
  CHECK(rate_between(t, "tor1", "spine0") == 200_Gbps);
  CHECK(rate_between(t, "tor1", "spine2") == Bandwidth(0));
  CHECK(rate_between(t, "spine1", "core1") == 800_Gbps);
  CHECK(rate_between(t, "spine3", "core1") == 800_Gbps);
  CHECK(rate_between(t, "spine0", "core1") == Bandwidth(0));
  CHECK(t.link(links_named(t, "host5->tor1").front()).latency == 550_ns);
  CHECK(t.link(links_named(t, "tor1->spine0").front()).latency == 650_ns);
}

TEST_CASE("htsim: what is wrong is named") {
  CHECK(error_of_network(with(kHtsim, "Radix_Down 4", "Radix_Down 5")).find("8 divided by 5") !=
        std::string::npos);
  CHECK(error_of_network(with(kHtsim, "Tiers 3", "Tiers 2")).find("3 blocks 'Tier'") !=
        std::string::npos);
  CHECK(error_of_network(with(kHtsim, "Radix_Up", "Radix_Upp")).find("line 8: found 'Radix_Upp'") !=
        std::string::npos);
  CHECK(error_of_network(with(kHtsim, "Nodes 16", "Nodes 1000000000")).find("vertices and links") !=
        std::string::npos);
}

TEST_CASE("real networks of simulators") {
  const auto inputs = shared_inputs();
  const auto text = inputs / "fabric" / "text";
  if (!std::filesystem::exists(text)) RACKRAIL_SKIP("no " + text.string());
  const auto ranks = [](const std::filesystem::path& file) {
    return read_network(read_file(file)).topology.rank_count();
  };
  CHECK(ranks(text / "hpcc-fat.txt") == 320);
  CHECK(ranks(text / "atlahs-leaf_spine_128_4os.topo") == 128);
  CHECK(ranks(inputs / "astra-sim" / "hgx_h100_32gpu.yml") == 32);
}

}  // namespace rackrail::simulator_networks_test

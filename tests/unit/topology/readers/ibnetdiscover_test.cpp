#include "topology/readers/ibnetdiscover.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "base/file.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/readers/network_cases.hpp"

namespace rackrail::ibnetdiscover_test {

using namespace rackrail;
using namespace rackrail::topology;
using namespace rackrail::topology::test;

namespace {

std::string ids(const char* kind, const std::string& guid) {
  return fmt::format("\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{1}\n{0}guid=0x{1}({1})\n", kind,
                     guid);
}

std::string switch_block(const std::string& guid, const std::string& name,
                         const std::string& ports) {
  return ids("switch", guid) +
         fmt::format("Switch\t65 \"S-{}\"\t\t# \"MF0;{}:MQM9701/U1\" enhanced port 0 lid 1 lmc 0\n",
                     guid, name) +
         ports;
}

std::string to_adapter(int port, const std::string& guid, const std::string& name,
                       const std::string& speed = "4xNDR") {
  return fmt::format("[{0}]\t\"H-{1}\"[1]({1}) \t\t# \"{2}\" lid 7 {3}\n", port, guid, name, speed);
}

std::string to_switch(int port, const std::string& guid, int peer, const std::string& name,
                      const std::string& speed = "4xNDR") {
  return fmt::format("[{}]\t\"S-{}\"[{}]\t\t# \"MF0;{}:MQM9701/U1\" lid 3 {}\n", port, guid, peer,
                     name, speed);
}

std::string adapter_block(const std::string& guid, const std::string& name, const std::string& to,
                          int port, const std::string& speed = "4xNDR") {
  return ids("ca", guid) + fmt::format("Ca\t1 \"H-{}\"\t\t# \"{}\"\n", guid, name) +
         fmt::format("[1]({}) \t\"S-{}\"[{}]\t\t# lid 7 lmc 0 \"MF0;x:MQM9701/U1\" lid 1 {}\n",
                     guid, to, port, speed);
}

/// Two leaves with two hosts each, of `rails` adapters; two cables from each leaf to the spine.
std::string small_fabric() {
  return switch_block("a1", "leaf-1",
                      to_adapter(1, "11", "node-01 mlx5_0") +
                          to_adapter(2, "12", "node-02 mlx5_0") +
                          to_switch(35, "b1", 1, "spine-1") + to_switch(36, "b1", 2, "spine-1")) +
         switch_block("a2", "leaf-2",
                      to_adapter(1, "13", "node-10 mlx5_0") + to_adapter(2, "14", "node-9 mlx5_0") +
                          to_switch(35, "b1", 3, "spine-1") + to_switch(36, "b1", 4, "spine-1")) +
         switch_block("b1", "spine-1",
                      to_switch(1, "a1", 35, "leaf-1") + to_switch(2, "a1", 36, "leaf-1") +
                          to_switch(3, "a2", 35, "leaf-2") + to_switch(4, "a2", 36, "leaf-2")) +
         adapter_block("11", "node-01 mlx5_0", "a1", 1) +
         adapter_block("12", "node-02 mlx5_0", "a1", 2) +
         adapter_block("13", "node-10 mlx5_0", "a2", 1) +
         adapter_block("14", "node-9 mlx5_0", "a2", 2);
}

/// Hosts with an adapter on each of `rails` leaves, which are joined by one spine.
std::string rail_fabric(int hosts, int rails, const std::string& missing = "") {
  std::string text;
  std::string spine;
  for (int rail = 0; rail < rails; ++rail) {
    const std::string leaf = fmt::format("a{}", rail);
    std::string ports = to_switch(200, "b0", rail + 1, "spine");
    spine += to_switch(rail + 1, leaf, 200, "leaf" + std::to_string(rail));
    for (int host = 0; host < hosts; ++host) {
      const std::string name = fmt::format("dgx-{} mlx5_{}", host, rail + 3);
      const std::string guid = fmt::format("{:x}", 4096 + host * rails + rail);
      if (name == missing) continue;
      ports += to_adapter(host + 1, guid, name);
      text += adapter_block(guid, name, leaf, host + 1);
    }
    text += switch_block(leaf, "leaf" + std::to_string(rail), ports);
  }
  return text + switch_block("b0", "spine", spine);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

}  // namespace

TEST_CASE("rates of InfiniBand are of data, by lanes and speed") {
  CHECK(ib_rate("4xNDR") == 400_Gbps);
  CHECK(ib_rate("4xHDR") == 200_Gbps);
  CHECK(ib_rate("2xHDR") == 100_Gbps);
  CHECK(ib_rate("4xEDR") == 100_Gbps);
  CHECK(ib_rate("4xXDR") == 800_Gbps);
  CHECK(ib_rate("4xQDR") == 32_Gbps);
  CHECK(ib_rate("1xSDR") == 2_Gbps);
  CHECK(ib_rate("12xDDR") == 48_Gbps);
  CHECK_FALSE(ib_rate("4x???").has_value());
  CHECK_FALSE(ib_rate("??SDR").has_value());
  CHECK_FALSE(ib_rate("").has_value());
}

TEST_CASE("each cable of a fabric is one, parallel ones are a link that a message half fills") {
  const ReadResult result = read_network(small_fabric());
  const Topology& t = result.topology;
  REQUIRE(t.rank_count() == 4);
  CHECK(t.node_count() == 7);
  CHECK(t.link_count() == 12);
  CHECK(rate_between(t, "node-01", "leaf-1") == 400_Gbps);
  CHECK(rate_between(t, "leaf-1", "spine-1") == 800_Gbps);
  const LinkId up = links_named(t, "leaf-1->spine-1").front();
  CHECK(t.link(up).flow_bandwidth == 400_Gbps);
  CHECK(t.link(up).tier == "rack-uplink");
  CHECK(t.node(*t.find_node("leaf-1")).kind == NodeKind::kTor);
  CHECK(t.node(*t.find_node("spine-1")).kind == NodeKind::kSpine);
  CHECK(t.node(t.node_of(Rank(2))).name == "node-9");
  CHECK(t.node(t.node_of(Rank(3))).name == "node-10");
  CHECK(ranks_by_rack(t).size() == 2);
  CHECK_FALSE(has_note(result, "disagree"));
}

TEST_CASE("ends that disagree are named, by rate and by peer") {
  const std::string slow =
      replaced(small_fabric(), "\"node-02 mlx5_0\" lid 7 4xNDR", "\"node-02 mlx5_0\" lid 7 4xHDR");
  const ReadResult rates = read_network(slow);
  CHECK(rate_between(rates.topology, "node-02", "leaf-1") == 200_Gbps);
  CHECK(has_note(rates, "1 cable whose ends disagree"));
  CHECK(has_note(rates, "at 4xNDR, but 4xHDR at the other end"));
  const ReadResult peers = read_network(
      replaced(small_fabric(), to_switch(1, "a1", 35, "leaf-1"), to_switch(1, "a2", 20, "leaf-2")));
  CHECK(has_note(peers,
                 "'MF0;spine-1:MQM9701/U1' [1] to 'MF0;leaf-2:MQM9701/U1' [20], but "
                 "'MF0;leaf-1:MQM9701/U1' [35] to 'MF0;spine-1:MQM9701/U1' [1] elsewhere"));
  const ReadResult silent =
      read_network(replaced(small_fabric(), to_switch(1, "a1", 35, "leaf-1"), ""));
  CHECK(has_note(silent, "which does not list it"));
}

TEST_CASE("SHARP nodes make switches reduce, nameless adapters are counted") {
  const ReadResult result =
      read_network(replaced(small_fabric(), to_switch(35, "b1", 1, "spine-1"),
                            to_adapter(5, "77", "MT4129 ConnectX7   Mellanox Technologies") +
                                to_adapter(6, "78", "localhost HCA-1") +
                                to_adapter(65, "79", "Mellanox Technologies Aggregation Node") +
                                to_switch(35, "b1", 1, "spine-1")));
  const Topology& t = result.topology;
  CHECK(t.rank_count() == 4);
  CHECK(t.node(*t.find_node("leaf-1")).reduces);
  CHECK_FALSE(t.node(*t.find_node("leaf-2")).reduces);
  CHECK(has_note(result, "2 adapters without the name of a host left out"));
  CHECK(has_note(result, "1 switch with a SHARP aggregation node"));
}

TEST_CASE("one name of several machines tells none of them") {
  const ReadResult result = read_network(replaced(small_fabric(), to_switch(35, "b1", 1, "spine-1"),
                                                  to_adapter(5, "77", "ubuntu mlx5_0") +
                                                      to_adapter(6, "78", "ubuntu mlx5_0") +
                                                      to_switch(35, "b1", 1, "spine-1")));
  CHECK(result.topology.rank_count() == 4);
  CHECK(has_note(result, "several machines have the same name and are left out: ubuntu"));
}

TEST_CASE("a part of a fabric is read as far as it goes") {
  const ReadResult result = read_network(switch_block("a1", "leaf-1",
                                                      to_adapter(1, "11", "node-01 mlx5_0") +
                                                          to_adapter(2, "12", "node-02 mlx5_0") +
                                                          to_switch(35, "b1", 1, "spine-1")));
  CHECK(result.topology.rank_count() == 2);
  CHECK(result.topology.node_count() == 4);
  CHECK(has_note(result, "it does not list the ports of 1 switch"));
  CHECK_FALSE(has_note(result, "disagree"));
}

TEST_CASE("adapters are NICs of the overlay's host in the order of their numbers") {
  const ReadResult result = read_network(rail_fabric(4, 8), kDgx);
  const Topology& t = result.topology;
  REQUIRE(t.rank_count() == 32);
  for (int nic = 0; nic < 8; ++nic) {
    CHECK(rate_between(t, fmt::format("nic2.{}", nic), fmt::format("leaf{}", nic)) == 400_Gbps);
  }
  const LinkId link = links_named(t, "nic2.7->leaf7").front();
  CHECK(t.link(link).adapter == "mlx5_10");
  CHECK(t.link(link).latency == 455_ns);
}

TEST_CASE("a host that lacks an adapter lacks that NIC") {
  const ReadResult result = read_network(rail_fabric(4, 8, "dgx-1 mlx5_5"), kDgx);
  const Topology& t = result.topology;
  CHECK(rate_between(t, "nic1.1", "leaf1") == 400_Gbps);
  CHECK(rate_between(t, "nic1.2", "leaf2") == Bandwidth(0));
  CHECK(rate_between(t, "nic1.3", "leaf3") == 400_Gbps);
  CHECK(has_note(result, "fewer than 8 adapters of 1 host: 'dgx-1' (7)"));
}

TEST_CASE("more adapters than NICs need names of those that count") {
  const std::string four = replaced(kDgx, "count: 8", "count: 4");
  CHECK(error_of_network(rail_fabric(2, 5), four)
            .find("5 adapters (mlx5_3, mlx5_4, mlx5_5, mlx5_6, mlx5_7) for the 4 NICs") !=
        std::string::npos);
  const ReadResult named = read_network(
      rail_fabric(2, 5),
      replaced(kDgx, "count: 8", "count: 4, devices: [mlx5_7, mlx5_6, 'HCA-1 mlx5_4', mlx5_3]"));
  CHECK(rate_between(named.topology, "nic0.0", "leaf4") == 400_Gbps);
  CHECK(rate_between(named.topology, "nic0.2", "leaf1") == 400_Gbps);
  CHECK(has_note(named, "2 adapters left out, which 'nics.devices' does not name: 'dgx-0 mlx5_5'"));
}

TEST_CASE("hosts with few adapters beside ones with many are left out") {
  const ReadResult result = read_network(
      replaced(rail_fabric(3, 4), to_switch(1, "a0", 200, "leaf0"),
               to_adapter(60, "fff", "ufm-1 mlx5_0") + to_switch(1, "a0", 200, "leaf0")));
  CHECK(result.topology.rank_count() == 3);
  CHECK(result.topology.node(*result.topology.find_node("spine")).kind == NodeKind::kSpine);
  CHECK(has_note(result,
                 "1 host left out, with at most half of the 4 adapters that most have: "
                 "'ufm-1' (1)"));
}

TEST_CASE("a dump without rates needs them by tier") {
  std::string text = small_fabric();
  for (std::size_t at = 0; (at = text.find(" 4xNDR")) != std::string::npos;) text.erase(at, 6);
  CHECK(error_of_network(text).find("--tier-bandwidth nic=400Gbit/s") != std::string::npos);
  CHECK(
      read_network(text, "", {{"nic", 10_Gbps}, {"rack-uplink", 20_Gbps}}).topology.rank_count() ==
      4);
}

TEST_CASE("grouped output, ports outside of the box, routers and switches of one name") {
  const ReadResult result = read_network(
      "#\n# Topology file: generated on today\n#\nChassis 1 (guid 0x5)\n\n# Spine Nodes\n" +
      switch_block("a1", "box",
                   "[1][ext 4]\t\"H-11\"[1](11) \t\t# \"node-01 HCA-1\" lid 7 4xHDR\n"
                   "[2]\t\"S-a2\"[2][ext 3]\t\t# \"MF0;box:MQM9701/U1\" lid 3 4xHDR s=2 w=2 v=4\n"
                   "[3]\t\"R-c1\"[1](c1) \t\t# \"router\" lid 9 4xHDR\n") +
      "Non-Chassis Nodes\n" +
      switch_block("a2", "box", to_adapter(1, "12", "node-02 HCA-1", "4xHDR")) + ids("rt", "c1") +
      "Rt\t2 \"R-c1\"\t\t# \"router\"\n");
  CHECK(result.topology.rank_count() == 2);
  CHECK(result.topology.find_node("box S-a1").has_value());
  CHECK(result.topology.find_node("box S-a2").has_value());
  CHECK(result.topology.find_node("router").has_value());
}

TEST_CASE("what is no output of ibnetdiscover is refused with its line") {
  CHECK(error_of_network("switchguid=0x1(1)\n[1]\t\"H-1\"[1](1)\n").find("line 2") !=
        std::string::npos);
  CHECK(error_of_network("switchguid=0x1(1)\nSwitch 0x1 ports 3\n").find("without options") !=
        std::string::npos);
  CHECK(error_of_network("switchguid=0x1(1)\nSwitch 3 \"S-1\" # \"s\"\n[1] S-2\n").find("line 3") !=
        std::string::npos);
  CHECK(error_of_network("switchguid=0x1(1)\nhello\n").find("found 'hello'") != std::string::npos);
  CHECK(error_of_network("switchguid=0x1(1)\nSwitch 3 \"S-1\" # \"s\"\n")
            .find("no cable to an adapter with the name of a host") != std::string::npos);
}

TEST_CASE("a fabric of two thousand adapters is read in two seconds") {
  const std::string text = rail_fabric(250, 8);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(read_network(text).topology.rank_count() == 250);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(2));
}

TEST_CASE("a real part of a fabric") {
  const auto file = shared_inputs() / "fabric" / "ibnetdiscover-excerpt.out";
  if (!std::filesystem::exists(file)) RACKRAIL_SKIP("no " + file.string());
  const ReadResult result = read_network(read_file(file));
  CHECK(result.topology.rank_count() == 17);
  CHECK(rate_between(result.topology, "A09-P1-IBLEAF-04-04", "A10-P1-IBSPINE-02") == 800_Gbps);
  CHECK(rate_between(result.topology, "A09-P1-IBLEAF-04-04", "B10-P1-IBSPINE-08") == 400_Gbps);
}

}  // namespace rackrail::ibnetdiscover_test

#include "topology/adapters.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::topology::adapters_test {
namespace {

Topology from_csv(const std::string& text) {
  return read_cluster_text("test.csv", text, {}).topology;
}

/// "nic0: host0→leaf0 | leaf0→host0".
std::string described(const Topology& topology, const Adapter& adapter) {
  std::string text = adapter.host + " " + adapter.name + ":";
  for (const LinkId link : adapter.out) {
    text += " " + topology.link_name(link);
  }
  text += " |";
  for (const LinkId link : adapter.in) {
    text += " " + topology.link_name(link);
  }
  return text;
}

}  // namespace

TEST_CASE("adapters: each cable of a host that is a rank is one, with its way back") {
  const Topology topology = from_csv(
      "source,target,bandwidth,latency,kind,adapter\n"
      "host0,leaf0,1 Gbit/s,1 us,host-link,eth0\n"
      "host0,leaf1,1 Gbit/s,1 us,host-link,mlx5_1 0000:1b:00.0\n"
      "host1,leaf0,1 Gbit/s,1 us,host-link,\n"
      "leaf0,leaf1,1 Gbit/s,1 us,uplink,\n");
  const std::vector<Adapter> adapters = adapters_of(topology);
  REQUIRE(adapters.size() == 3);
  CHECK(described(topology, adapters[0]) == "host0 nic0: host0→leaf0 | leaf0→host0");
  CHECK(described(topology, adapters[1]) == "host0 nic1: host0→leaf1 | leaf1→host0");
  CHECK(described(topology, adapters[2]) == "host1 nic0: host1→leaf0 | leaf0→host1");
  CHECK(adapters[0].devices == "eth0");
  CHECK(adapters[1].devices == "mlx5_1 0000:1b:00.0");
  CHECK(adapters[2].devices.empty());
}

TEST_CASE("adapters: two cables to one switch are two, in the order of their ways back") {
  const Topology topology = from_csv(
      "source,target,bandwidth,latency,kind\n"
      "host0,leaf0,1 Gbit/s,1 us,host-link\n"
      "host0,leaf0,2 Gbit/s,1 us,host-link\n"
      "host1,leaf0,1 Gbit/s,1 us,host-link\n");
  const std::vector<Adapter> adapters = adapters_of(topology);
  REQUIRE(adapters.size() == 3);
  CHECK(described(topology, adapters[1]) == "host0 nic1: host0→leaf0#2 | leaf0→host0#2");
  CHECK(topology.link(adapters[1].in[0]).bandwidth == 2_Gbps);
}

TEST_CASE("adapters: NICs of machines with several GPUs, by what the file says of them") {
  const Topology topology = read_cluster_text("test.yaml", R"(name: rails
link_classes: { ndr: { bandwidth: 400 Gbit/s, latency: 1 us } }
node_types:
  box:
    gpus: 2
    device_class: H100
    pcie: { bandwidth: 60 GB/s, latency: 500 ns }
    nics: { count: 2, link: ndr, devices: [mlx5_0, "mlx5_3 0000:9c:00.0"] }
racks: [ { count: 2, hosts: 1, type: box } ]
network: { wiring: rail-optimised, spine: { count: 1, cables: 1, link: ndr } }
)",
                                              {})
                                .topology;
  const std::vector<Adapter> adapters = adapters_of(topology);
  REQUIRE(adapters.size() == 4);
  CHECK(described(topology, adapters[3]) == "host1 nic1: nic1.1→leaf1.1 | leaf1.1→nic1.1");
  CHECK(adapters[0].devices == "mlx5_0 nic0.0");
  CHECK(adapters[3].devices == "mlx5_3 0000:9c:00.0 nic1.1");
  // What the machine calls them changes no route.
  CHECK(read_cluster_text("flat.yaml", to_flat_yaml(topology), {}).topology.digest() ==
        topology.digest());
  CHECK(adapters_of(read_cluster_text("flat.yaml", to_flat_yaml(topology), {}).topology) ==
        adapters);
}

TEST_CASE("adapters: none where no machine has two, nor inside machines, nor between switches") {
  CHECK(adapters_of(from_csv("source,target,bandwidth,latency,kind\n"
                             "host0,leaf0,1 Gbit/s,1 us,host-link\n"
                             "host1,leaf0,1 Gbit/s,1 us,host-link\n"))
            .empty());
  CHECK(adapters_of(from_csv("source,target,bandwidth,latency,kind\n"
                             "gpu0,gpu1,1 Gbit/s,1 us,nvlink\n"
                             "gpu0,gpu1,1 Gbit/s,1 us,other\n"))
            .empty());
}

TEST_CASE("adapters: a NIC without a cable is noted, with its host and how many are like it") {
  const auto notes = [](const std::string& cables) {
    const std::string text =
        "source,target,bandwidth,latency,kind\n"
        "gpu0,nic0,1 GB/s,1 us,pcie\ngpu0,nic1,1 GB/s,1 us,pcie\n"
        "gpu1,nic2,1 GB/s,1 us,pcie\ngpu1,nic3,1 GB/s,1 us,pcie\n" +
        cables +
        "\nvertex,role,host\ngpu0,rank,a\ngpu1,rank,b\n"
        "nic0,switch,a\nnic1,switch,a\nnic2,switch,b\nnic3,switch,b\n";
    return read_cluster_text("edges.csv", text).notes;
  };
  const std::string two = "nic0,leaf0,1 GB/s,1 us,host-link\nnic2,leaf0,1 GB/s,1 us,host-link\n";
  const std::string three = two + "nic1,leaf1,1 GB/s,1 us,host-link\n";
  CHECK(notes(three + "nic3,leaf1,1 GB/s,1 us,host-link\n").empty());
  CHECK(notes(three + "nic3,nic1,1 GB/s,1 us,other\n").empty());
  CHECK(notes(three) ==
        std::vector<std::string>{"NIC 'nic3' of host 'b' has no cable and carries nothing"});
  CHECK(notes(two) == std::vector<std::string>{
                          "NIC 'nic1' of host 'a' has no cable and carries nothing, like 1 more "
                          "NIC(s)"});
  CHECK(notes("gpu0,gpu1,1 GB/s,1 us,other\n").empty());  // no cables in it at all
  // A link between NICs of one host is none, and hosts may have no name.
  CHECK(notes(three + "nic3,nic2,1 GB/s,1 us,pcie\n").size() == 1);
  const Topology nameless = from_csv(
      "source,target,bandwidth,latency\ngpu0,nic0,1 GB/s,1 us\ngpu0,nic1,1 GB/s,1 us\n"
      "nic0,leaf0,1 GB/s,1 us\nhost1,leaf0,1 GB/s,1 us\n");
  CHECK(nics_without_cable(nameless) == std::vector{*nameless.find_node("nic1")});
}

TEST_CASE("adapters: no shipped cluster has a NIC without a cable") {
  for (const std::string& name : shipped_clusters()) {
    CAPTURE(name);
    CHECK(nics_without_cable(read_cluster(name).topology).empty());
  }
}

TEST_CASE("adapters: names and places of NICs are those of NCCL's file") {
  const std::string nic =
      R"(<pci busid="0000:%b:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"><nic>)"
      R"(<net name="%n" dev="%d" speed="100000" port="1" guid="0x%d1"/></nic></pci>)";
  const auto filled = [](std::string text, const std::string& bus, const std::string& name,
                         const std::string& number) {
    for (const auto& [key, value] : {std::pair("%b", bus), {"%n", name}, {"%d", number}}) {
      for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key)) {
        text.replace(at, 2, value);
      }
    }
    return text;
  };
  const test::TextFile file(
      "topo.xml", R"(<system version="1"><cpu numaid="0" affinity="ff" arch="x86_64" )"
                  R"(vendor="GenuineIntel" familyid="6" modelid="85">)" +
                      filled(nic, "1B", "mlx5_0", "0") + filled(nic, "3b", "mlx5_7", "1") +
                      R"(<pci busid="0000:17:00.0" class="0x030200" link_speed="16 GT/s" )"
                      R"(link_width="16"><gpu dev="0" sm="80" rank="0" gdr="1"/></pci>)"
                      R"(</cpu></system>)");
  const test::TextFile overlay("overlay.yaml", "hosts: 2\n");
  const Topology topology =
      read_cluster(file.path(), {.format = {}, .overlay = overlay.path()}).topology;
  const std::vector<Adapter> adapters = adapters_of(topology);
  REQUIRE(adapters.size() == 4);
  CHECK(adapters[0].devices == "mlx5_0 0000:1b:00.0 nic0.0");
  CHECK(adapters[3].devices == "mlx5_7 0000:3b:00.0 nic1.1");
}

}  // namespace rackrail::topology::adapters_test

#include "topology/attachments.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "topology/reader.hpp"

namespace rackrail::topology::attachments_test {
namespace {

std::string name_of(const Topology& topology, const std::optional<NodeId>& node) {
  return node ? topology.node(*node).name : "none";
}

TEST_CASE("ranks are attached to the nearest socket, PCIe switch and adapter of their machine") {
  const Topology topology = read_cluster_text("box.yaml", R"(
name: box
device_classes:
  A100: { memory: 80 GB }
node_types:
  box:
    gpus: 8
    device_class: A100
    nvlink: { bandwidth: 300 GB/s, latency: 300 ns, switched: true }
    pcie: { bandwidth: 25 GB/s, latency: 500 ns, gpus_per_switch: 2 }
    sockets: { count: 2, bandwidth: 30 GB/s, latency: 200 ns }
    nics: { count: 4, link: rdma }
racks: { count: 1, hosts: 2, type: box }
network: { wiring: single-switch }
)")
                                .topology;
  const std::vector<Attachment> found = attachments(topology);
  REQUIRE(found.size() == 16);
  for (std::size_t r = 0; r < found.size(); ++r) {
    CAPTURE(r);
    const std::string& host = topology.node(topology.node_of(Rank(r))).host;
    for (const auto& node : {found[r].cpu, found[r].pci_switch, found[r].nic}) {
      REQUIRE(node.has_value());
      CHECK(topology.node(*node).host == host);
    }
    CHECK(topology.node(*found[r].cpu).kind == NodeKind::kCpu);
    CHECK(topology.node(*found[r].pci_switch).kind == NodeKind::kPciSwitch);
    CHECK(topology.node(*found[r].nic).kind == NodeKind::kNic);
    const std::size_t first_of_socket = r / 4 * 4;
    const std::size_t first_of_switch = r / 2 * 2;
    CHECK(found[r].cpu == found[first_of_socket].cpu);
    CHECK(found[r].pci_switch == found[first_of_switch].pci_switch);
    CHECK(found[r].nic == found[first_of_switch].nic);
    if (r > 0) {
      CHECK((found[r].cpu == found[r - 1].cpu) == (r % 4 != 0));
      CHECK((found[r].pci_switch == found[r - 1].pci_switch) == (r % 2 != 0));
      CHECK(found[r - 1] <= found[r]);
    }
  }
}

TEST_CASE("nothing is known of ranks without a machine, nor of what their machine does not have") {
  Topology topology("two kinds");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  const NodeId nic = topology.add_node({.name = "nic", .kind = NodeKind::kNic, .host = "host"});
  topology.add_duplex_link({.from = nic, .to = hub, .bandwidth = 1_GBps});
  const NodeId inside = topology.add_node({.name = "in", .kind = NodeKind::kGpu, .host = "host"});
  topology.add_rank(inside);
  topology.add_duplex_link({.from = inside, .to = nic, .bandwidth = 1_GBps});
  const NodeId alone = topology.add_node({.name = "alone", .kind = NodeKind::kGpu});
  topology.add_rank(alone);
  topology.add_duplex_link({.from = alone, .to = hub, .bandwidth = 1_GBps});
  const std::vector<Attachment> found = attachments(topology);
  CHECK(name_of(topology, found[0].nic) == "nic");
  CHECK_FALSE(found[0].cpu.has_value());
  CHECK_FALSE(found[0].pci_switch.has_value());
  CHECK(found[1] == Attachment{});
}

}  // namespace
}  // namespace rackrail::topology::attachments_test

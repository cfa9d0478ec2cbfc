#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/unit/topology/readers/network_cases.hpp"

namespace rackrail::kubernetes_test {

using namespace rackrail;
using namespace rackrail::topology;
using namespace rackrail::topology::test;

namespace {

const TierRates kRates{{"nic", 400_Gbps}, {"rack-uplink", 800_Gbps}};

std::string node(const std::string& name, const std::string& labels,
                 const std::string& gpus = "8") {
  return fmt::format(
      R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"{}","managedFields":[{{"a":1}}],)"
      R"("labels":{{{}}}}},"status":{{"allocatable":{{"cpu":"96"{}}},"images":[{{"x":[1,2]}}]}}}})",
      name, labels, gpus.empty() ? "" : R"(,"nvidia.com/gpu":")" + gpus + "\"");
}

std::string list(const std::string& nodes) {
  return R"({"apiVersion":"v1","items":[)" + nodes + R"(],"kind":"List","metadata":{}})";
}

/// Labels from the closest switch outward, and more.
std::string labels(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string text;
  for (const auto& [key, value] : pairs) {
    text += fmt::format(R"({}"{}":"{}")", text.empty() ? "" : ",", key, value);
  }
  return text;
}

std::string with(const std::string& closest, const std::string& outer) {
  return list(node("a", labels({{closest, "l1"}, {outer, "s1"}})) + "," +
              node("b", labels({{closest, "l2"}, {outer, "s1"}})));
}

}  // namespace

TEST_CASE("labels of nodes are switches, in all the spellings in use") {
  const std::string old = "network.topology.nvidia.com/";
  const auto [closest, outer] =
      GENERATE_COPY(std::pair<std::string, std::string>("fabric.topograph.run/tier-0",
                                                        "fabric.topograph.run/tier-1"),
                    std::pair<std::string, std::string>(old + "tier-0", old + "tier-1"),
                    std::pair<std::string, std::string>(old + "leaf", old + "spine"),
                    std::pair<std::string, std::string>(old + "block", old + "spine"),
                    std::pair<std::string, std::string>("topology.k8s.aws/network-node-layer-3",
                                                        "topology.k8s.aws/network-node-layer-2"),
                    std::pair<std::string, std::string>("cloud.google.com/gce-topology-subblock",
                                                        "cloud.google.com/gce-topology-block"));
  const ReadResult result = read_network(with(closest, outer), "", kRates);
  const Topology& t = result.topology;
  REQUIRE(t.rank_count() == 2);
  CHECK(rate_between(t, "a", "leaf l1") == 400_Gbps);
  CHECK(rate_between(t, "b", "leaf l2") == 400_Gbps);
  CHECK(rate_between(t, "leaf l2", "spine s1") == 800_Gbps);
  CHECK(t.node_count() == 5);
}

TEST_CASE("nodes without labels or GPUs are counted and left out") {
  const std::string label = labels({{"fabric.topograph.run/tier-0", "l1"}});
  const ReadResult result =
      read_network(list(node("a", label) + "," + node("b", label) + "," + node("c", "") + "," +
                        node("cpu", label, "") + "," + node("none", label, "0")),
                   "", {{"nic", 400_Gbps}});
  CHECK(result.topology.rank_count() == 2);
  CHECK(has_note(result, "2 nodes without GPUs left out"));
  CHECK(has_note(result, "1 node without such labels left out: c"));
}

TEST_CASE("without any GPU all nodes are hosts") {
  const std::string label = labels({{"fabric.topograph.run/tier-0", "l1"}});
  const ReadResult result = read_network(list(node("a", label, "") + "," + node("b", label, "")),
                                         "", {{"nic", 400_Gbps}});
  CHECK(result.topology.rank_count() == 2);
  CHECK(has_note(result, "no node has GPUs"));
}

TEST_CASE("GPU products are device classes, GPU counts are compared with the overlay") {
  const auto of = [](const std::string& product) {
    return labels({{"fabric.topograph.run/tier-0", "l1"}, {"nvidia.com/gpu.product", product}});
  };
  const std::string text = list(
      node("a", of("NVIDIA-H100-80GB-HBM3")) + "," + node("b", of("Tesla-V100-SXM2-16GB"), "4") +
      "," + node("c", of("NVIDIA-A100-SXM4-80GB")) + "," + node("d", of("NVIDIA-RTX-PRO-6000")));
  const Topology whole = read_network(text, "", {{"nic", 400_Gbps}}).topology;
  CHECK(whole.node(whole.node_of(Rank(0))).device_class == "H100");
  CHECK(whole.node(whole.node_of(Rank(1))).device_class == "V100");
  CHECK(whole.node(whole.node_of(Rank(2))).device_class == "A100");
  CHECK(whole.node(whole.node_of(Rank(3))).device_class == "NVIDIA-RTX-PRO-6000");
  const ReadResult inside = read_network(text, kDgx);
  CHECK(inside.topology.rank_count() == 32);
  CHECK(has_note(inside, "another number of GPUs than the overlay's 8, which is taken: 'b' (4)"));
}

TEST_CASE("several switches at the top are joined, NVLink domains stand in for switches") {
  const ReadResult two =
      read_network(list(node("a", labels({{"fabric.topograph.run/tier-0", "l1"}})) + "," +
                        node("b", labels({{"fabric.topograph.run/tier-0", "l2"}}))),
                   "", kRates);
  CHECK(rate_between(two.topology, "leaf l1", "network") == 800_Gbps);
  CHECK(has_note(two, "2 switches at the top of the labels are joined"));
  const std::string clique = labels({{"nvidia.com/gpu.clique", "uuid.1"}});
  const ReadResult domain =
      read_network(list(node("a", clique) + "," + node("b", clique)), "", {{"nic", 400_Gbps}});
  CHECK(domain.topology.rank_count() == 2);
  CHECK(has_note(domain, "one switch for each NVLink domain"));
  CHECK(has_note(domain, "NVLink between nodes is not in the topology"));
}

TEST_CASE("a single node, and nodes one after the other") {
  const std::string label = labels({{"fabric.topograph.run/tier-0", "l1"}});
  CHECK(read_network(node("a", label), "", {{"nic", 400_Gbps}}).topology.rank_count() == 1);
  CHECK(read_network(node("a", label) + "\n" + node("b", label) + "\n", "", {{"nic", 400_Gbps}})
            .topology.rank_count() == 2);
}

TEST_CASE("JSON of other kinds is refused in one line") {
  CHECK(error_of_network(R"({"apiVersion":"v1","kind":"List","items":[{"kind":"Pod"}]})")
            .find("found kind 'Pod', expected kind 'Node'") != std::string::npos);
  CHECK(error_of_network(R"({"apiVersion":"v1","kind":"Deployment"})").find("kind 'Deployment'") !=
        std::string::npos);
  CHECK(error_of_network(R"({"apiVersion":"v1","kind":"List","items":[]})").find("empty list") !=
        std::string::npos);
  CHECK(error_of_network(list(node("a", ""))).find("no node with a label") != std::string::npos);
  const std::string whole = list(node("a", ""));
  CHECK(error_of_network(whole.substr(0, whole.size() - 20) + R"( "kind":)").find("no JSON") !=
        std::string::npos);
}

}  // namespace rackrail::kubernetes_test

#include "runtime/emulate/emulated_plan.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "plan/empty_plan.hpp"
#include "plan/verifier.hpp"
#include "runtime/emulate/commands.hpp"
#include "topology/reader.hpp"

namespace rackrail::runtime::emulate::emulated_plan_test {
namespace {

using topology::Topology;

constexpr unsigned kManyCores = 10'000;
constexpr double kScale = 0.01;

Topology from_edges(const std::string& rows) {
  return topology::read_cluster_text("test.csv", "source,target,bandwidth,latency,kind\n" + rows,
                                     {})
      .topology;
}

std::vector<LinkId> links(const Topology& topology, const std::vector<std::string>& names) {
  std::vector<LinkId> result;
  for (const std::string& name : names) {
    const auto found = topology::links_named(topology, name);
    REQUIRE(found.size() == 1);
    result.push_back(found.front());
  }
  return result;
}

std::vector<std::string> names(const Topology& topology, const std::vector<LinkId>& links) {
  std::vector<std::string> result;
  for (const LinkId link : links) {
    result.push_back(topology.link_name(link));
  }
  return result;
}

/// One transfer from the first rank to the last over `route`.
plan::Plan plan_over(const Topology& topology, const std::vector<LinkId>& route, Bandwidth rate) {
  const auto ranks = topology.rank_count();
  plan::TransferGraph graph("one", plan::Collective::kAllReduce, ranks, {1});
  graph.add_transfer(
      {.src = Rank(0), .dst = Rank(ranks - 1), .route = graph.add_route(route, rate)}, {});
  plan::Plan plan = plan::empty_plan(topology);
  plan.schedules.push_back(std::move(graph));
  return plan;
}

struct Emulated {
  Topology cluster;
  NetworkPlan network;
  Topology topology;
  explicit Emulated(const std::string& rows) : Emulated(from_edges(rows)) {}
  explicit Emulated(const Topology& original)
      : cluster(original),
        network(plan_network(cluster, kScale, kManyCores)),
        topology(emulated_topology(cluster, network,
                                   {.payload_share = kPayloadShare, .inside = 100_Gbps})) {}

  /// Where a route goes here.
  std::vector<std::string> route(const std::vector<std::string>& of_cluster) const {
    const plan::Plan plan =
        emulated_plan(plan_over(cluster, links(cluster, of_cluster), 1_Gbps), network, topology);
    CHECK(plan.cluster_digest == topology.digest());
    return names(topology, plan.schedules[0].routes()[1]);
  }
};

const std::string kTwoRails =
    "host0,leaf0,10 Gbit/s,2 us,host-link\nhost0,leaf1,20 Gbit/s,2 us,host-link\n"
    "host1,leaf1,20 Gbit/s,2 us,host-link\nhost1,leaf0,10 Gbit/s,2 us,host-link\n";

TEST_CASE("emulated plan: rates are the same share of the links as in the cluster") {
  const Emulated emulated(kTwoRails);
  const auto rate_here = [&](Bandwidth rate) {
    const plan::Plan made = plan_over(
        emulated.cluster, links(emulated.cluster, {"host0->leaf1", "leaf1->host1"}), rate);
    const plan::Plan executed = emulated_plan(made, emulated.network);
    CHECK(executed.cluster_digest == made.cluster_digest);
    CHECK(executed.schedules[0].routes()[1] == made.schedules[0].routes()[1]);
    const Bandwidth found = executed.schedules[0].rate(RouteId(1));
    CHECK(emulated_plan(made, emulated.network, emulated.topology).schedules[0].rate(RouteId(1)) ==
          found);
    return found;
  };
  const LinkId whole = links(emulated.topology, {"host0->leaf1"}).front();
  CHECK(rate_here(20_Gbps) == emulated.topology.link(whole).bandwidth);
  CHECK(rate_here(Bandwidth()) == Bandwidth());    // none stays none
  CHECK(rate_here(Bandwidth(3)) == Bandwidth(1));  // and some stays some
}

TEST_CASE("emulated plan: routes go by the same adapters") {
  const Emulated emulated(kTwoRails);
  for (const char* leaf : {"leaf0", "leaf1"}) {
    const std::vector<std::string> way{std::string("host0->") + leaf,
                                       std::string(leaf) + "->host1"};
    CHECK(emulated.route(way) == names(emulated.topology, links(emulated.topology, way)));
  }
}

TEST_CASE("emulated plan: parallel spines are one") {
  const Emulated spines(
      "host0,tor0,10 Gbit/s,2 us,host-link\nhost1,tor1,10 Gbit/s,2 us,host-link\n"
      "tor0,spine0,20 Gbit/s,1 us,uplink\ntor1,spine0,20 Gbit/s,1 us,uplink\n"
      "tor0,spine1,20 Gbit/s,1 us,uplink\ntor1,spine1,20 Gbit/s,1 us,uplink\n");
  for (const std::string& spine : std::vector<std::string>{"spine0", "spine1"}) {
    CHECK(spines.route({"host0->tor0", "tor0->" + spine, spine + "->tor1", "tor1->host1"}).size() ==
          4);
  }
}

TEST_CASE("emulated plan: what is in a machine is a switch around its ranks") {
  Topology boxes("boxes");
  const NodeId leaf = boxes.add_node({.name = "leaf", .kind = topology::NodeKind::kTor});
  for (const std::string& host : std::vector<std::string>{"a", "b"}) {
    const NodeId nic =
        boxes.add_node({.name = host + ".nic", .kind = topology::NodeKind::kNic, .host = host});
    for (const char* gpu : {".gpu0", ".gpu1"}) {
      const NodeId rank =
          boxes.add_node({.name = host + gpu, .kind = topology::NodeKind::kGpu, .host = host});
      boxes.add_rank(rank);
      boxes.add_duplex_link({.from = rank, .to = nic, .bandwidth = 100_Gbps});
    }
    boxes.add_duplex_link({.from = nic, .to = leaf, .bandwidth = 10_Gbps});
  }
  const Emulated emulated(boxes);
  CHECK(emulated.route({"a.gpu0->a.nic", "a.nic->leaf", "leaf->b.nic", "b.nic->b.gpu1"}) ==
        std::vector<std::string>{"a.gpu0→a.net", "a.net→leaf", "leaf→b.net", "b.net→b.gpu1"});
}

}  // namespace
}  // namespace rackrail::runtime::emulate::emulated_plan_test

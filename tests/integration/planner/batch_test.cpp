// Batches of mixed clusters in the simulator, which knows nothing of how they were chosen.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <numeric>

#include "explore/host_count.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::batch_test {
namespace {

/// Hosts of one device each behind a switch.
topology::Topology mixed_cluster(const std::vector<std::string>& classes, Bandwidth bandwidth) {
  topology::Topology topology("mixed");
  const NodeId fabric = topology.add_node({.name = "switch", .kind = topology::NodeKind::kSwitch});
  for (const std::string& name : classes) {
    const std::string host = "host" + std::to_string(topology.rank_count());
    const NodeId node = topology.add_node({.name = host,
                                           .kind = topology::NodeKind::kGpu,
                                           .host = host,
                                           .device_class = name,
                                           .memory = 64_GiB});
    topology.add_rank(node);
    topology.add_duplex_link({.from = node, .to = fabric, .bandwidth = bandwidth, .latency = 2_us});
  }
  return topology;
}

/// When each rank's last backward piece ends.
std::map<std::string, Duration> backward_ends(const plan::Plan& plan,
                                              const plan::Workload& workload,
                                              const topology::Topology& topology) {
  sim::SimulationOptions options;
  options.record_timeline = true;
  std::map<std::string, Duration> ends;
  for (const auto& event : sim::simulate_step(plan, workload, topology, options).records.timeline) {
    if (event.what.find("backward") != std::string::npos) {
      ends[event.track] = std::max(ends[event.track], event.end);
    }
  }
  return ends;
}

TEST_CASE("unequal devices finish their passes within 3 % of each other, and sooner") {
  const std::vector<std::string> classes = {"V100", "A100", "V100", "H100", "A100", "V100"};
  const topology::Topology topology = mixed_cluster(classes, 100_Gbps);
  plan::Workload workload = plan::read_workload("resnet-50", topology::configs_folder());
  // A calm network, so that codec work does not delay backward and only batches matter.
  planner::PlannerOptions options;
  options.error_budget = 0;
  const auto costs = sim::make_cost_model(topology, {});
  const plan::Plan plan = planner::make_plan(topology, workload, *costs, options);
  CHECK(plan.batch.global_batch() == workload.profiled_batch * 6);
  const auto ends = backward_ends(plan, workload, topology);
  REQUIRE(ends.size() == classes.size());
  const auto [first, last] = std::minmax_element(
      ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  CHECK(first->second / last->second > 0.97);

  options.local_batch = workload.profiled_batch;
  const plan::Plan uniform = planner::make_plan(topology, workload, *costs, options);
  CHECK(uniform.batch.global_batch() == plan.batch.global_batch());
  CHECK(plan.prediction.step_time < scaled(uniform.prediction.step_time, 0.9));
}

TEST_CASE("the batch by goodput is at least as good in simulation as the other policies",
          "[slow]") {
  const topology::Topology topology = mixed_cluster({"V100", "A100", "V100", "V100"}, 10_Gbps);
  plan::Workload workload = plan::read_workload("resnet-50", topology::configs_folder());
  workload.noise_scale = 2000;
  const auto costs = sim::make_cost_model(topology, {});
  std::map<planner::BatchPolicy, double> goodput;
  for (const auto policy : {planner::BatchPolicy::kGoodput, planner::BatchPolicy::kLatency,
                            planner::BatchPolicy::kFixed}) {
    planner::PlannerOptions options;
    options.batch_policy = policy;
    const plan::Plan plan = planner::make_plan(topology, workload, *costs, options);
    const auto batch = static_cast<double>(plan.batch.global_batch());
    goodput[policy] = batch / plan.prediction.step_time.seconds() / (2000 + batch);
  }
  CHECK(goodput[planner::BatchPolicy::kGoodput] >= goodput[planner::BatchPolicy::kLatency]);
  CHECK(goodput[planner::BatchPolicy::kGoodput] >= goodput[planner::BatchPolicy::kFixed]);
}

std::vector<explore::HostCountPoint> by_hosts(Bandwidth bandwidth, double noise_scale) {
  const topology::Topology topology = mixed_cluster(std::vector<std::string>(6, "V100"), bandwidth);
  plan::Workload workload = plan::read_workload("resnet-50", topology::configs_folder());
  workload.noise_scale = noise_scale;
  planner::PlannerOptions options;
  options.compare_baselines = false;
  return explore::goodput_by_hosts(topology, workload, [&](const topology::Topology& part) {
    const auto costs = sim::make_cost_model(part, {});
    return planner::make_plan(part, workload, *costs, options);
  });
}

TEST_CASE("more hosts pay on a fast network, and do not on one that is slower than one device",
          "[slow]") {
  const auto fast = by_hosts(100_Gbps, 1e5);
  REQUIRE(fast.size() == 3);
  CHECK(fast[0].hosts == 2);
  CHECK(fast[1].hosts == 4);
  CHECK(fast[2].hosts == 6);
  CHECK(fast[1].goodput > 1.8 * fast[0].goodput);
  CHECK(explore::best_host_count(fast).hosts == 6);
  // With hardly any noise a larger batch is worth no more than a small one.
  const auto quiet = by_hosts(1_Gbps, 1);
  CHECK(quiet[2].goodput < 1.3 * quiet[0].goodput);
}

TEST_CASE("where one host's link is narrow, all others are planned for, too") {
  const topology::Topology racks = test::racks({{100, 100, 2}, {100, 100, 100}}, {200, 200});
  const plan::Workload workload = plan::read_workload("resnet-50", topology::configs_folder());
  planner::PlannerOptions options;
  options.compare_baselines = false;
  options.codec = plan::Codec{};
  const auto points =
      explore::goodput_by_hosts(racks, workload, [&](const topology::Topology& part) {
        const auto costs = sim::make_cost_model(part, {});
        return planner::make_plan(part, workload, *costs, options);
      });
  std::vector<std::size_t> hosts;
  for (const explore::HostCountPoint& point : points) {
    hosts.push_back(point.hosts);
    CHECK(point.without == (point.hosts == 5 ? std::vector<std::string>{"rack0-host2"}
                                             : std::vector<std::string>()));
  }
  CHECK(hosts == std::vector<std::size_t>{2, 4, 5, 6});
  CHECK(explore::best_host_count(points).hosts == 5);
  // Of five the four that are placed are all but that one: no plan is made twice.
  const auto of_five =
      explore::goodput_by_hosts(test::racks({{100, 100, 2}, {100, 100}}, {200, 200}), workload,
                                [&](const topology::Topology& part) {
                                  const auto costs = sim::make_cost_model(part, {});
                                  return planner::make_plan(part, workload, *costs, options);
                                });
  REQUIRE(of_five.size() == 3);
  CHECK(of_five[1].without == std::vector<std::string>{"rack0-host2"});
}

}  // namespace
}  // namespace rackrail::batch_test

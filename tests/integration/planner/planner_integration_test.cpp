// The planner with the simulator as its cost model, on the shipped clusters and models.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "base/error.hpp"
#include "plan/alpha_beta.hpp"
#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/packing/forest.hpp"
#include "planner/planner.hpp"
#include "planner/search/held_rates.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/linear_program.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner_integration_test {
namespace {

topology::Topology cluster(const std::string& name) {
  return topology::read_cluster(name).topology;
}

plan::Workload model(const std::string& name) {
  return plan::read_workload(name, topology::configs_folder());
}

plan::Plan make_plan(const topology::Topology& topology, const plan::Workload& workload,
                     const planner::PlannerOptions& options = {}) {
  const auto costs = sim::make_cost_model(topology, {});
  return planner::make_plan(topology, workload, *costs, options);
}

// Devices that add at no cost, so that the time is the network's alone.
sim::SimulationOptions network_only() {
  sim::SimulationOptions options;
  plan::DeviceRates rates;
  constexpr Bandwidth kFast(1'000'000'000'000'000);
  rates.codecs.fill({kFast, kFast});
  rates.reduce = kFast;
  options.device_rates = rates;
  return options;
}

constexpr std::size_t kMostRanksOfRings = 128;  // more take minutes

TEST_CASE("the ring's busbw in the simulator is the bottleneck's rate on shipped clusters") {
  for (const std::string& name : topology::shipped_clusters()) {
    CAPTURE(name);
    const topology::Topology topology = cluster(name);
    if (topology.rank_count() > kMostRanksOfRings) {
      continue;
    }
    topology::Router router(topology);
    const plan::TransferGraph ring =
        planner::schedule_family("ring").all_reduce({topology, router, {}});
    // What the fullest link carries takes as long: of one ring 2(n-1)/n · bytes / bottleneck.
    const auto n = static_cast<double>(topology.rank_count());
    // Chunks of 1 GiB: 150 us of latency per hop of the TCP preset are far below half a percent.
    const std::int64_t elements = static_cast<std::int64_t>(topology.rank_count()) << 28;
    constexpr std::int64_t kSlices = 8;  // of a chunk, which follow one another through a host
    const std::int64_t slice = elements / static_cast<std::int64_t>(ring.chunk_count()) / kSlices;
    const auto result = sim::simulate_collective(ring, elements, slice, topology, network_only());
    const double least =
        plan::alpha_beta(ring, topology).seconds_per_element * static_cast<double>(elements);
    CAPTURE(n, result.time.seconds() / least);
    CHECK(result.time.seconds() >= least * 0.9999);
    CHECK(result.time.seconds() <= least * 1.01);
  }
}

TEST_CASE("the ring keeps to the rails of a rail-optimised cluster") {
  const topology::Topology topology = cluster("h100-32x8-rail");
  topology::Router router(topology);
  const plan::TransferGraph ring =
      planner::schedule_family("ring").all_reduce({topology, router, {}});
  for (const auto& route : ring.routes()) {
    for (const LinkId link : route) {
      CHECK(topology.node(topology.link(link).to).kind != topology::NodeKind::kSpine);
    }
  }
}

TEST_CASE("a plan is never slower than the naive one, and never below its bound", "[slow]") {
  const topology::Topology topology = cluster("two-racks-40g");
  for (const std::string& name : plan::shipped_workloads(topology::configs_folder())) {
    CAPTURE(name);
    const plan::Workload workload = model(name);
    if (workload.memory_fixed > topology.node(topology.node_of(Rank(0))).memory) {
      CHECK_THROWS_AS(make_plan(topology, workload), Error);  // does not fit there
      continue;
    }
    const plan::Plan plan = make_plan(topology, workload);
    CHECK(plan::verify(plan, &topology, &workload).problems == std::vector<std::string>{});
    CHECK(plan.prediction.gap >= 0);
    for (const auto& [baseline, time] : plan.prediction.baselines) {
      CAPTURE(baseline);
      CHECK(plan.prediction.step_time <= scaled(time, 1.002));
    }
    // A plan that keeps to a codec is among those with that codec.
    const auto keeps_to = [&](plan::CodecKind heaviest) {
      return std::all_of(plan.buckets.begin(), plan.buckets.end(),
                         [&](const plan::Bucket& b) { return b.codec.kind <= heaviest; });
    };
    if (keeps_to(plan::CodecKind::kFp16)) {
      CHECK(plan.prediction.baselines.at("best fp16") <= plan.prediction.step_time);
    }
    if (keeps_to(plan::CodecKind::kNone)) {
      CHECK(plan.prediction.baselines.at("best fp32") <= plan.prediction.step_time);
    }
  }
}

TEST_CASE("a network-bound model is compressed, and protected tensors are not beyond FP16") {
  topology::Topology topology = cluster("two-racks-40g");
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    topology.set_link_rate(LinkId(i), std::min(link.bandwidth, 4_Gbps), link.latency);
  }
  const plan::Workload workload = model("vgg-16");
  const plan::Plan plan = make_plan(topology, workload);
  bool compressed = false;
  for (const plan::Bucket& bucket : plan.buckets) {
    compressed = compressed || bucket.codec.kind == plan::CodecKind::kInt8Block;
    for (const std::uint32_t tensor : bucket.tensors) {
      if (workload.tensors[tensor].is_protected()) {
        CHECK(bucket.codec.kind <= plan::CodecKind::kFp16);
      }
    }
  }
  CHECK(compressed);
  planner::PlannerOptions strict;
  strict.error_budget = 0;
  for (const plan::Bucket& bucket : make_plan(topology, workload, strict).buckets) {
    CHECK_FALSE(bucket.codec.is_lossy());
  }
}

TEST_CASE("the same input and seed give the same plan, byte for byte") {
  const topology::Topology topology = cluster("two-racks-40g");
  const plan::Workload workload = model("resnet-50");
  CHECK(plan::to_binary(make_plan(topology, workload)) ==
        plan::to_binary(make_plan(topology, workload)));
}

TEST_CASE("plans of 64 ranks and of uneven clusters are the same, byte for byte, too", "[slow]") {
  planner::PlannerOptions options;
  options.bucket_size = 100_MiB;
  // Rates over unlike routes.
  options.route_rates = planner::RouteRates::kAlways;
  for (const topology::Topology& topology :
       {test::boxes(8, 8), test::nics_by_gpu(),
        test::racks({{25, 10}, {5, 10}, {5, 5}}, {5, 10, 20})}) {
    CAPTURE(topology.name(), topology.rank_count());
    const plan::Workload workload = model("resnet-50");
    CHECK(plan::to_binary(make_plan(topology, workload, options)) ==
          plan::to_binary(make_plan(topology, workload, options)));
  }
}

// Two racks of so many hosts, 500 Mbit/s a host, uplinks of 250 Mbit/s. Where racks have no names
// there are no schedules for tiers of them.
topology::Topology slow_racks(int first, int second, bool has_names = true) {
  topology::Topology slow("two slow racks");
  const auto add = [&](const std::string& name, topology::NodeKind kind, const std::string& rack) {
    return slow.add_node({.name = name, .kind = kind, .host = name, .rack = rack});
  };
  const NodeId core = add("core", topology::NodeKind::kSwitch, "");
  for (int rack = 0; rack < 2; ++rack) {
    const std::string of_rack = has_names ? fmt::format("rack{}", rack) : "";
    const NodeId tor = add(fmt::format("tor{}", rack), topology::NodeKind::kTor, of_rack);
    slow.add_duplex_link({.from = tor, .to = core, .bandwidth = 250_Mbps, .latency = 1_us});
    for (int host = 0; host < (rack == 0 ? first : second); ++host) {
      const NodeId node =
          add(fmt::format("host{}-{}", rack, host), topology::NodeKind::kHost, of_rack);
      slow.add_rank(node);
      slow.add_duplex_link({.from = node, .to = tor, .bandwidth = 500_Mbps, .latency = 20_us});
    }
  }
  return slow;
}

plan::Workload one_tensor(std::int64_t elements) {
  plan::Workload one;
  one.name = "one tensor";
  one.tensors = {{.name = "all", .elements = elements}};
  return one;
}

TEST_CASE("on slow links slices are fine enough to fill a pipeline") {
  planner::PlannerOptions options;
  options.codec = plan::Codec();
  options.compare_baselines = false;
  const plan::Plan plan = make_plan(slow_racks(4, 4), one_tensor(4 << 20), options);
  REQUIRE(plan.buckets.size() == 1);
  CHECK(plan.buckets[0].slice_elements * 4 <= 64 << 10);  // 256 KiB would take 8 ms per hop
  CHECK(plan.prediction.gap < 0.05);                      // with 256 KiB 0.08
}

TEST_CASE("what is reduced alone may be divided more finely, if that is faster", "[slow]") {
  planner::PlannerOptions options;
  options.codec = plan::Codec();
  options.compare_baselines = false;
  int faster = 0;
  for (const int hosts : {1, 2, 3, 4}) {
    for (const std::int64_t elements : {std::int64_t{1} << 14, std::int64_t{1} << 20}) {
      CAPTURE(hosts, elements);
      const topology::Topology slow = slow_racks(hosts, hosts, false);
      const plan::Workload one = one_tensor(elements);
      options.divides_finely = false;
      const plan::Plan usual = make_plan(slow, one, options);
      options.divides_finely = true;
      const plan::Plan finer = make_plan(slow, one, options);
      CHECK(finer.prediction.step_time <= scaled(usual.prediction.step_time, 1.01));
      CHECK(finer.prediction.step_time ==
            sim::simulate_step(finer, one, slow, {}).estimate.step_time);
      CHECK(finer.prediction.gap ==
            Approx(finer.prediction.step_time / finer.prediction.bound - 1).margin(1e-12));
      faster += finer.prediction.step_time < usual.prediction.step_time ? 1 : 0;
    }
  }
  CHECK(faster > 0);
}

TEST_CASE("a large bucket is divided as finely as a collective alone in any plan", "[slow]") {
  const topology::Topology rails = test::rail_racks({});
  const plan::Workload one = one_tensor(1 << 28);
  planner::PlannerOptions options;
  options.codec = plan::Codec();
  options.compare_baselines = false;
  const plan::Plan plan = make_plan(rails, one, options);
  CHECK(plan.prediction.gap <= 0.015);  // in the search's rounds 0.030
  CHECK(plan.prediction.step_time == sim::simulate_step(plan, one, rails, {}).estimate.step_time);
  CHECK(plan.prediction.gap ==
        Approx(plan.prediction.step_time / plan.prediction.bound - 1).margin(1e-12));
  CHECK(plan::verify(plan, &rails, &one).problems == std::vector<std::string>{});
  CHECK(plan::to_json(make_plan(rails, one, options)) == plan::to_json(plan));
}

TEST_CASE("on uneven racks what is reduced alone takes as long as its bytes through an uplink") {
  const topology::Topology slow = slow_racks(3, 1);
  const plan::Workload one = one_tensor(16 << 20);
  planner::PlannerOptions options;
  options.compare_baselines = false;
  options.divides_finely = true;
  // 2 · (2 − 1)/2 of 64 MiB through 250 Mbit/s, in FP32 as it is.
  const Duration least = Duration::from_seconds((64 << 20) * 8 / 250e6);
  for (const auto& [codec, of_its_bytes] :
       {std::pair("none", 1.0), std::pair("fp16", 0.5), std::pair("int8", 0.2539)}) {
    CAPTURE(codec);
    options.codec = plan::parse_codec(codec);
    const plan::Plan plan = make_plan(slow, one, options);
    CHECK(plan.prediction.step_time / least < of_its_bytes * 1.02);
    CHECK(plan.prediction.step_time / least >= of_its_bytes * 0.99);
  }
}

bool has_rates(const plan::Plan& plan) {
  return std::any_of(plan.schedules.begin(), plan.schedules.end(),
                     [](const plan::TransferGraph& graph) { return graph.has_rates(); });
}

TEST_CASE("what is reduced alone and takes long is held to rates, where that costs nothing") {
  const topology::Topology slow = slow_racks(4, 4);
  planner::PlannerOptions options;
  options.codec = plan::Codec();
  options.compare_baselines = false;
  options.divides_finely = true;
  const auto made = [&](std::int64_t elements, planner::RouteRates rates) {
    options.route_rates = rates;
    return make_plan(slow, one_tensor(elements), options);
  };
  constexpr std::int64_t kLong = 4 << 20;
  const plan::Plan rated = made(kLong, planner::RouteRates::kWhereKept);
  CHECK(has_rates(rated));
  const plan::Plan unrated = made(kLong, planner::RouteRates::kNever);
  CHECK_FALSE(has_rates(unrated));
  CHECK(rated.prediction.step_time <= scaled(unrated.prediction.step_time, 1.01));
  CHECK_FALSE(has_rates(made(1 << 14, planner::RouteRates::kWhereKept)));
  options.codec = plan::parse_codec("int8");
  CHECK_FALSE(has_rates(made(4 * kLong, planner::RouteRates::kWhereKept)));
  options.codec = plan::Codec();

  // In one piece, stage after stage, every stage would take as long as all of them together.
  options.divides_finely = false;
  options.route_rates = planner::RouteRates::kNever;
  options.schedule = "hierarchical";
  plan::Plan whole = made(kLong, planner::RouteRates::kNever);
  for (plan::Bucket& bucket : whole.buckets) {
    bucket.slice_elements = bucket.elements;
  }
  const auto costs = sim::make_cost_model(slow, {});
  whole.prediction.step_time = costs->step(whole, one_tensor(kLong)).step_time;
  const plan::Plan before = whole;
  planner::hold_to_rates(whole, one_tensor(kLong), slow, *costs);
  CHECK_FALSE(has_rates(whole));
  CHECK(whole.prediction.step_time == before.prediction.step_time);
}

TEST_CASE("the naive baseline has buckets of 25 MiB whatever size was asked for") {
  const topology::Topology topology = slow_racks(2, 2);
  const plan::Workload workload = model("resnet-50");
  const auto costs = sim::make_cost_model(topology, {});
  planner::PlannerOptions options;
  const Duration naive =
      planner::make_naive_plan(topology, workload, *costs, options).prediction.step_time;
  for (const char* const schedule : {"ring", "hierarchical"}) {
    options.schedule = schedule;
    options.bucket_size = 1_GiB;
    const plan::Plan plan = make_plan(topology, workload, options);
    CHECK(plan.prediction.baselines.at("naive ring fp32 25 MiB") == naive);
  }
}

TEST_CASE("baselines that no search has simulated are compared over links with bursts, too") {
  const topology::Topology bursty =
      test::with_bursts(slow_racks(2, 2), [](LinkId) { return 64_KiB; });
  planner::PlannerOptions options;
  options.codec = plan::parse_codec("fp16");  // the naive ring has none
  const plan::Plan plan = make_plan(bursty, one_tensor(1 << 20), options);
  REQUIRE(plan.prediction.baselines.contains("naive ring fp32 25 MiB"));
  CHECK(plan.prediction.baselines.at("naive ring fp32 25 MiB") > plan.prediction.step_time);
}

TEST_CASE("servers to which many send at once are held to rates, though that costs something") {
  planner::PlannerOptions options;
  options.codec = plan::Codec();
  options.schedule = "parameter-server";
  options.compare_baselines = false;
  const auto made = [&](int hosts, planner::RouteRates rates) {
    options.route_rates = rates;
    return make_plan(slow_racks(hosts, 0), one_tensor(1 << 20), options);
  };
  const plan::Plan rated = made(8, planner::RouteRates::kWhereKept);
  CHECK(has_rates(rated));
  const plan::Plan unrated = made(8, planner::RouteRates::kNever);
  CHECK_FALSE(has_rates(unrated));
  CHECK(rated.prediction.step_time > scaled(unrated.prediction.step_time, 1.01));
  CHECK(rated.prediction.step_time <= scaled(unrated.prediction.step_time, 1.1));
  CHECK_FALSE(has_rates(made(4, planner::RouteRates::kWhereKept)));
}

TEST_CASE("plans for uneven racks gain from rates of routes, to which GPUs do not hold", "[slow]") {
  const topology::Topology racks = test::racks({{25, 10}, {5, 10}, {5, 5}}, {5, 10, 20});
  const plan::Workload workload = model("bert-large");
  planner::PlannerOptions options;
  options.codec = plan::Codec();
  options.compare_baselines = false;
  const plan::Plan usual = make_plan(racks, workload, options);
  CHECK_FALSE(has_rates(usual));
  options.route_rates = planner::RouteRates::kAlways;
  const plan::Plan rated = make_plan(racks, workload, options);
  CHECK(has_rates(rated));
  CHECK(rated.prediction.step_time / usual.prediction.step_time < 0.95);

  const topology::Topology of_processors = slow_racks(3, 1);
  options.bucket_size = 4_MiB;
  const auto made = [&](planner::RouteRates rates) {
    options.route_rates = rates;
    return make_plan(of_processors, one_tensor(8 << 20), options);
  };
  CHECK(made(planner::RouteRates::kWhereKept).prediction.step_time ==
        made(planner::RouteRates::kAlways).prediction.step_time);
  CHECK_FALSE(has_rates(made(planner::RouteRates::kNever)));
}

TEST_CASE("no bucket size, schedule or codec that is forced beats the free plan", "[slow]") {
  const topology::Topology topology = cluster("two-racks-40g");
  const plan::Workload workload = model("bert-large");
  const plan::Plan free = make_plan(topology, workload);
  // A codec that is asked for is used on the outer layers too.
  planner::PlannerOptions everywhere;
  everywhere.protect_outer_layers = false;
  const plan::Plan unprotected = make_plan(topology, workload, everywhere);
  std::vector<planner::PlannerOptions> forced(4);
  forced[0].schedule = "parameter-server";
  forced[1].codec = plan::parse_codec("int8");
  forced[2].bucket_size = 50_MiB;
  forced[3].codec = plan::parse_codec("fp16");
  for (const planner::PlannerOptions& options : forced) {
    const plan::Plan plan = make_plan(topology, workload, options);
    CHECK((options.codec ? unprotected : free).prediction.step_time <=
          scaled(plan.prediction.step_time, 1.003));
  }
}

TEST_CASE("on a fast fabric with overlap the plan says that compression does not pay") {
  const topology::Topology topology = test::a100_4x8();
  const plan::Workload workload = model("resnet-50");
  planner::PlannerOptions options;
  options.compare_baselines = false;
  options.bucket_size = 25_MiB;
  const plan::Plan plan = make_plan(topology, workload, options);
  for (const plan::Bucket& bucket : plan.buckets) {
    CHECK(bucket.codec.kind <= plan::CodecKind::kFp16);
  }
  CHECK(plan.prediction.sync_share < 0.2);
}

}  // namespace
}  // namespace rackrail::planner_integration_test

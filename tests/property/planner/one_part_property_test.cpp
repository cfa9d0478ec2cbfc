// The joint search against itself with the routes, or the codec between groups, taken away by an
// option: one family, or one codec, alone must not be faster.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "planner/search/joint_search.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::planner::one_part_property_test {
namespace {

/// Five hosts in three racks, no two links alike.
topology::Topology unlike_racks() {
  return topology::read_cluster_text("unlike.csv",
                                     "source,target,bandwidth,latency,kind\n"
                                     "host0,tor0,40 Gbit/s,20 us,host-link\n"
                                     "host1,tor0,36 Gbit/s,20 us,host-link\n"
                                     "host2,tor1,32 Gbit/s,20 us,host-link\n"
                                     "host3,tor1,28 Gbit/s,20 us,host-link\n"
                                     "host4,tor2,35 Gbit/s,20 us,host-link\n"
                                     "tor0,core,31 Gbit/s,10 us,uplink\n"
                                     "tor1,core,33 Gbit/s,10 us,uplink\n"
                                     "tor2,core,40 Gbit/s,10 us,uplink\n")
      .topology;
}

topology::Topology cluster(const std::string& name) {
  if (name == "uneven") {
    return unlike_racks();
  }
  if (name == "uniform") {
    return test::clos({4}, 1);
  }
  return name == "oversubscribed" ? test::two_racks() : test::uneven_star();
}

/// Layers of one large and two small tensors, `layers` of them, `gap` of backward before each.
plan::Workload layers(int count, std::int64_t large, Duration gap) {
  plan::Workload workload;
  workload.name = "layers";
  workload.profiled_batch = 8;
  for (int layer = 0; layer < count; ++layer) {
    for (const char* part : {"weight", "bias", "norm"}) {
      plan::GradientTensor tensor;
      tensor.name = "layer" + std::to_string(layer) + "." + part;
      tensor.elements = part == std::string("weight") ? large : 1024;
      tensor.ready_gap = gap;
      workload.tensors.push_back(std::move(tensor));
    }
  }
  workload.forward = gap * (3 * count / 2);
  workload.optimizer = 1_ms;
  return workload;
}

double step(const topology::Topology& topology, const plan::Workload& workload,
            const PlannerOptions& options) {
  const auto costs = sim::make_cost_model(topology, {});
  return make_plan(topology, workload, *costs, options).prediction.step_time.seconds();
}

TEST_CASE("no family makes a much faster step than the joint plan, and no codec a faster one",
          "[slow]") {
  const std::string name = GENERATE("uneven", "uniform", "oversubscribed", "one slow host");
  // Many buckets that wait for the network, and few that hide behind compute.
  const plan::Workload workload = GENERATE(layers(12, 8 << 20, 100_us), layers(5, 1 << 20, 700_us));
  const topology::Topology topology = cluster(name);
  PlannerOptions free;
  free.compare_baselines = false;
  SECTION("with codecs") {}
  SECTION("in FP32") { free.codec = plan::Codec{}; }
  const double joint = step(topology, workload, free);
  const auto compare = [&](const std::string& what, const PlannerOptions& options) {
    const double alone = step(topology, workload, options);
    CAPTURE(name, workload.tensors.size(), free.codec.has_value(), what, joint, alone,
            joint / alone - 1);
    // One that is limited to a family also has that family's variants for collectives alone, of
    // which this one has the fastest of all families only (search/joint_search.hpp).
    const double tolerance = options.schedule ? 0.02 : kWorthwhile;
    CHECK(joint <= alone * (1 + tolerance));
  };
  for (const auto& family : schedule_families()) {
    const TierCodecs fp32;
    if (!graph_refusal(*family, topology, fp32).has_value()) {
      PlannerOptions only = free;
      only.schedule = family->name();
      compare(only.schedule.value(), only);
    }
  }
  // Stronger ones that are asked for also encode what the joint search protects.
  for (const plan::CodecKind kind : {plan::CodecKind::kNone, plan::CodecKind::kFp16}) {
    if (!free.codec.has_value()) {
      PlannerOptions only = free;
      only.codec = plan::Codec{.kind = kind};
      compare(plan::to_string(*only.codec), only);
    }
  }
}

}  // namespace
}  // namespace rackrail::planner::one_part_property_test

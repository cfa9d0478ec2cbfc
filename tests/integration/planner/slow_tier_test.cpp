// Compression of what leaves a rack only, against compression of everything, as uplinks widen.
//
// Of a buffer of M bytes a hierarchical all-reduce over two racks of two hosts sends M over each
// uplink (rate U) and 1.5 M over each host's link (rate H): M inside the rack, M/2 across. With
// codes of a quarter across, the uplink takes M/4U and the host's link (1 + 1/8) M/H, so from U =
// H/4.5 on the host's link is what all wait for, and compressing the uplink's share further buys
// nothing.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::planner::slow_tier_test {
namespace {

using topology::Topology;

constexpr int kHostLink = 40;  // GB/s
constexpr std::int64_t kLayerElements = 1 << 24;
const plan::Codec kInt8{.kind = plan::CodecKind::kInt8Block};

Topology two_racks(int uplink) {
  return test::racks({{kHostLink, kHostLink}, {kHostLink, kHostLink}}, {uplink, uplink});
}

plan::TransferGraph hierarchical(const Topology& topology, const TierCodecs& codecs) {
  topology::Router router(topology);
  return schedule_family("hierarchical")
      .all_reduce({.topology = topology, .router = router, .codecs = codecs});
}

plan::Workload layers() {
  plan::Workload workload;
  workload.name = "layers";
  workload.forward = 1_ms;
  for (int i = 0; i < 8; ++i) {
    workload.tensors.push_back({fmt::format("layer{}.weight", i), kLayerElements, 1_ms});
  }
  return workload;
}

/// A plan for one cluster, and what its step takes with other codecs.
struct Planned {
  explicit Planned(int uplink)
      : topology(two_racks(uplink)), costs(sim::make_cost_model(topology, {})) {
    PlannerOptions options;
    options.protect_outer_layers = false;
    options.compression_warmup = 0;
    plan = make_plan(topology, workload, *costs, options);
  }

  /// Buckets by the codecs inside racks and across.
  std::map<std::pair<std::string, std::string>, std::size_t> used() const {
    std::map<std::pair<std::string, std::string>, std::size_t> buckets;
    for (const plan::Bucket& bucket : plan.buckets) {
      const plan::TransferGraph& graph = plan.schedules[bucket.schedule];
      std::pair<std::string, std::string> codecs;
      for (const plan::Transfer& t : graph.transfers()) {
        const bool is_inside = t.src.index() / 2 == t.dst.index() / 2;
        (is_inside ? codecs.first : codecs.second) = plan::to_string(graph.codecs()[t.codec]);
      }
      ++buckets[codecs];
    }
    return buckets;
  }

  Duration step_with(const TierCodecs& codecs) const {
    plan::Plan other = plan;
    other.schedules = {hierarchical(topology, codecs)};
    for (plan::Bucket& bucket : other.buckets) {
      bucket.schedule = 0;
    }
    return costs->step(other, workload).step_time;
  }

  Topology topology;
  plan::Workload workload = layers();
  std::unique_ptr<plan::CostModel> costs;
  plan::Plan plan;
};

const TierCodecs kOnlyAcross{plan::Codec{}, kInt8};
const TierCodecs kEverywhere{kInt8, kInt8};

TEST_CASE("compressing only the uplink moves the bottleneck to the hosts' links") {
  constexpr double kCodes = 0.25;
  const auto time = [](int uplink, const TierCodecs& codecs) {
    const Topology topology = two_racks(uplink);
    return sim::simulate_collective(hierarchical(topology, codecs), kLayerElements, 1 << 18,
                                    topology, {})
        .time.seconds();
  };
  const double bytes = 4.0 * kLayerElements / 1e9;
  for (const int uplink : {2, 4, 8}) {  // below 40/4.5
    CAPTURE(uplink);
    const double least = kCodes * bytes / uplink;
    CHECK(time(uplink, kOnlyAcross) >= least);
    CHECK(time(uplink, kOnlyAcross) <= 1.1 * least);
    CHECK(time(uplink, kEverywhere) >= least);
  }
  const double by_hosts = (1 + kCodes / 2) * bytes / kHostLink;
  for (const int uplink : {12, 16, 32}) {
    CAPTURE(uplink);
    CHECK(time(uplink, kOnlyAcross) >= by_hosts);
    CHECK(time(uplink, kOnlyAcross) <= 1.2 * by_hosts);
  }
  CHECK(time(32, kEverywhere) < time(32, kOnlyAcross) / 2);
}

TEST_CASE("only the uplink is compressed as long as hosts' links do not hold it up") {
  const int uplink = GENERATE(1, 4, 8);
  const Planned planned(uplink);
  CAPTURE(uplink);
  const auto used = planned.used();
  CHECK(used.size() == 1);
  CHECK(used.contains({"none", "int8"}));
  // Nothing is lost by leaving the racks' insides alone.
  CHECK(planned.plan.prediction.step_time <= scaled(planned.step_with(kEverywhere), 1.001));
}

TEST_CASE("beyond that what stays in the rack is compressed, too, and as much faster") {
  struct Case {
    int uplink;
    double times_faster;
  };
  const auto [uplink, times_faster] = GENERATE(Case{12, 1.25}, Case{16, 1.55}, Case{32, 1.7});
  CAPTURE(uplink);
  const Planned planned(uplink);
  const auto used = planned.used();
  CHECK_FALSE(used.contains({"none", "int8"}));
  std::size_t everywhere = 0;
  for (const auto& [codecs, buckets] : used) {
    everywhere += codecs.first != "none" && codecs.second == "int8" ? buckets : 0;
  }
  CHECK(2 * everywhere > planned.plan.buckets.size());
  const Duration step = planned.plan.prediction.step_time;
  CHECK(planned.step_with(kOnlyAcross) >= scaled(step, times_faster));
  CHECK(step <= scaled(planned.step_with(kEverywhere), 1.001));
}

}  // namespace
}  // namespace rackrail::planner::slow_tier_test

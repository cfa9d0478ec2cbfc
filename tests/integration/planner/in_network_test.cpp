// In-network all-reduces: loads of links and simulated times against closed forms, bounds of plans.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/in_network.hpp"
#include "plan/verifier.hpp"
#include "planner/algorithms/schedule_family.hpp"
#include "planner/planner.hpp"
#include "planner/tuning/bound.hpp"
#include "planner/tuning/collective_forms.hpp"
#include "sim/simulator.hpp"
#include "tests/support/best_collective.hpp"
#include "tests/support/clusters.hpp"
#include "topology/linear_program.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::in_network_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::int64_t kElements = 1 << 28;  // 1 GiB

plan::TransferGraph in_network(const Topology& t) {
  topology::Router router(t);
  return planner::schedule_family("in-network").all_reduce({t, router, {}});
}

/// Parts of the buffer that each link carries.
std::vector<double> loads(const plan::TransferGraph& graph, const Topology& t) {
  const plan::InNetwork operations(graph, t);
  std::vector<double> load(t.link_count());
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const plan::Transfer& transfer = graph.transfers()[i];
    for (const LinkId link : operations.links(TransferId(i))) {
      load[link.index()] += static_cast<double>(graph.range(transfer, kElements).size()) /
                            static_cast<double>(kElements);
    }
  }
  return load;
}

TEST_CASE("on a reducing switch every link carries the buffer once each way") {
  const Topology t = test::able(test::uneven_star(), {NodeKind::kTor, NodeKind::kSwitch});
  for (const double load : loads(in_network(t), t)) {
    CHECK(load == Approx(1));
  }
}

TEST_CASE("trees over a Clos network of reducing switches use narrow uplinks evenly") {
  const int uplinks = GENERATE(1, 2, 3, 4);
  CAPTURE(uplinks);
  Topology t = test::able(test::clos({4, 4, 4}, uplinks), {NodeKind::kTor, NodeKind::kSpine});
  const auto is_uplink = [&t](LinkId id) {
    return !t.rank_of(t.link(id).from) && !t.rank_of(t.link(id).to);
  };
  for (std::size_t l = 0; l < t.link_count(); ++l) {
    const topology::Link& link = t.link(LinkId(l));
    if (is_uplink(LinkId(l))) {  // all uplinks of a rack together are what one rank has
      t.set_link_rate(LinkId(l), Bandwidth(link.bandwidth.bytes_per_second() / uplinks),
                      link.latency);
    }
  }
  const std::vector<double> load = loads(in_network(t), t);
  for (std::size_t l = 0; l < load.size(); ++l) {
    CAPTURE(t.link_name(LinkId(l)));
    CHECK(load[l] == Approx(is_uplink(LinkId(l)) ? 1.0 / uplinks : 1.0));
  }
}

TEST_CASE("a gigabyte is reduced within 2 % of the in-network optimum") {
  const Topology t =
      GENERATE(test::able(test::boxes(1, 8), {NodeKind::kNvSwitch}),
               test::able(test::boxes(2, 8), {NodeKind::kNvSwitch}),
               test::able(test::boxes(4, 8), {NodeKind::kNvSwitch}),  // in many rounds
               test::able(test::boxes(4, 2), {NodeKind::kNvSwitch, NodeKind::kSpine}),
               test::able(test::clos({4, 4, 4, 4}, 2), {NodeKind::kTor, NodeKind::kSpine}));
  const double optimum =
      static_cast<double>(kElements * 4) /
      static_cast<double>(topology::joint_allreduce_bound(t, true).algbw.bytes_per_second());
  topology::Router router(t);
  double time = 1e300;
  for (const planner::CollectiveForm& form : planner::collective_forms(
           planner::schedule_family("in-network"), plan::Collective::kAllReduce, t, router, {})) {
    for (const std::int64_t slice : {1 << 17, 1 << 18}) {
      time = std::min(
          time, sim::simulate_collective(form.graph(), kElements, slice, t, {}).time.seconds());
    }
  }
  CAPTURE(t.name(), t.rank_count(), time / optimum);
  CHECK(time >= optimum * (1 - 1e-5));
  CHECK(time <= optimum / 0.98);
}

TEST_CASE("a gigabyte is reduced within 2 % of the in-network optimum over unlike cables, too") {
  if (!topology::LinearProgram::is_available()) {
    WARN("skipped: built without a solver for linear programs");
    return;
  }
  const auto all_able = [](Topology t) {
    return test::able(std::move(t), {NodeKind::kNvSwitch, NodeKind::kTor, NodeKind::kSpine});
  };
  const Topology t = GENERATE_COPY(test::clos_of_unlike_spines(), test::clos_with_lost_cables(),
                                   test::clos_with_slow_cables(), test::clos_of_unlike_racks(),
                                   all_able(test::nics_by_gpu()), all_able(test::uneven_hosts()));
  const double over =
      test::best_collective(t, plan::Collective::kAllReduce, kElements, "in-network").over_optimum;
  CAPTURE(t.rank_count(), over);
  CHECK(over >= 1 - 1e-5);
  CHECK(over <= 1 / 0.98);
}

/// h100-32x8-rail with so many hosts.
Topology h100_hosts(int count) {
  std::ifstream file(topology::configs_folder() / "clusters" / "h100-32x8-rail.yaml");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr std::string_view kHosts = "hosts: 32";
  text.replace(text.find(kHosts), kHosts.size(), "hosts: " + std::to_string(count));
  return topology::read_cluster_text("h100.yaml", std::move(text)).topology;
}

TEST_CASE("messages' overheads are hidden where two roots take turns") {
  // 300 ns before each slice of 5.2 µs: 5.8 % where nothing else is sent meanwhile.
  const Topology t = h100_hosts(4);
  const double optimum =
      static_cast<double>(kElements * 4) /
      static_cast<double>(topology::joint_allreduce_bound(t, true).algbw.bytes_per_second());
  topology::Router router(t);
  const auto forms = planner::collective_forms(planner::schedule_family("in-network"),
                                               plan::Collective::kAllReduce, t, router, {});
  const plan::TransferGraph& in_turn = forms.front().graph();
  CHECK(plan::verify(in_turn, &t).problems == std::vector<std::string>{});
  CHECK(plan::InNetwork(in_turn, t).operations().size() == in_turn.groups().size());
  const auto over = [&](const plan::TransferGraph& graph, std::int64_t slice) {
    return sim::simulate_collective(graph, kElements, slice, t, {}).time.seconds() / optimum;
  };
  CHECK(over(in_turn, 1 << 16) <= 1.02);
  CHECK(over(in_network(t), 1 << 16) > 1.05);
  const auto loads_in_turn = loads(in_turn, t);
  const auto loads_of_one = loads(in_network(t), t);
  CHECK(*std::ranges::max_element(loads_in_turn) <=
        Approx(*std::ranges::max_element(loads_of_one)));
}

TEST_CASE("switches that say nothing, or that join nobody, make no in-network schedule") {
  const auto& family = planner::schedule_family("in-network");
  CHECK(family.refusal(test::boxes(2, 2), {}) == "no switch reduces or multicasts");
  // The NVSwitches of boxes are not the spines of Clos networks.
  CHECK(family.refusal(test::able(test::clos({2, 2}, 1), {NodeKind::kNvSwitch}), {}).has_value());
  const plan::Codec fp16{.kind = plan::CodecKind::kFp16};
  const Topology t = test::able(test::uneven_star(), {NodeKind::kTor, NodeKind::kSwitch});
  CHECK(family.refusal(t, {fp16, fp16}) == "switches add FP32 only");
  CHECK(family.refusal(t, {}) == std::nullopt);
}

TEST_CASE("a plan for switches that reduce uses them and states the bound that they allow") {
  const Topology plain = test::boxes(1, 8);
  const Topology t = test::able(plain, {NodeKind::kNvSwitch});
  CHECK(planner::network_bound(plain).algbw == topology::joint_allreduce_bound(plain).algbw);
  CHECK(planner::network_bound(t).algbw > planner::network_bound(plain).algbw);
  const plan::Workload workload = plan::read_workload("vgg-16", topology::configs_folder());
  const auto costs = sim::make_cost_model(t, {});
  planner::PlannerOptions options;
  options.error_budget = 0;
  const plan::Plan plan = planner::make_plan(t, workload, *costs, options);
  CHECK(plan.schedules[plan.buckets[0].schedule].name() == "in-network");
  CHECK(plan.prediction.step_time >= plan.prediction.bound);
}

}  // namespace
}  // namespace rackrail::in_network_test

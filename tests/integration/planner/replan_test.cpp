// Planning again after links changed, against planning everything again.
#include <algorithm>
#include <catch2/catch.hpp>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "plan/format.hpp"
#include "plan/verifier.hpp"
#include "planner/planner.hpp"
#include "planner/replan/replan.hpp"
#include "planner/tuning/candidates.hpp"
#include "sim/simulator.hpp"
#include "tests/support/clusters.hpp"
#include "topology/reader.hpp"

namespace rackrail::replan_test {
namespace {

/// Three hosts of 4 GPUs with two slow NICs each.
constexpr const char* kFewNics = R"(
name: few-nics
link_classes:
  slow: { bandwidth: 25 Gbit/s, latency: 1.5 us, overhead: 300 ns }
node_types:
  host:
    gpus: 4
    device_class: A100
    nvlink: { bandwidth: 300 GB/s, latency: 300 ns }
    pcie: { bandwidth: 31.5 GB/s, latency: 500 ns, gpus_per_switch: 2 }
    nics: { count: 2, link: slow }
racks: { count: 1, hosts: 3, type: host }
)";

topology::Topology cluster(const std::string& name) {
  if (name == "few-nics") {
    return topology::read_cluster_text("few-nics.yaml", kFewNics).topology;
  }
  if (name == "a100-4x8") {
    return test::a100_4x8();
  }
  return topology::read_cluster(name).topology;
}

plan::Workload model(const std::string& name) {
  return plan::read_workload(name, topology::configs_folder());
}

plan::Plan full_plan(const topology::Topology& topology, const plan::Workload& workload) {
  const auto costs = sim::make_cost_model(topology, {});
  planner::PlannerOptions options;
  options.compare_baselines = false;
  return planner::make_plan(topology, workload, *costs, options);
}

/// Both directions between two vertices.
std::vector<planner::LinkChange> cable(const topology::Topology& topology, const std::string& a,
                                       const std::string& b, std::optional<Bandwidth> bandwidth) {
  std::vector<planner::LinkChange> changes;
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    const std::string name = topology.link_name(LinkId(i));
    if (name == a + "→" + b || name == b + "→" + a) {
      changes.push_back({LinkId(i), bandwidth});
    }
  }
  REQUIRE(changes.size() == 2);
  return changes;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Case {
  std::string cluster;
  std::string model;
  std::string from;
  std::string to;
  std::optional<Bandwidth> bandwidth;
};

TEST_CASE("planning again is near a full plan for the changed cluster, in a tenth of its time",
          "[slow]") {
  const Case cases[] = {
      {"two-racks-40g", "bert-large", "tor0", "core0", Bandwidth(1'250'000'000)},
      {"two-racks-40g", "resnet-50", "tor0", "core0", Bandwidth(2'500'000'000)},
      {"two-racks-40g", "resnet-50", "host0", "tor0", Bandwidth(1'250'000'000)},
      {"a100-4x8", "resnet-50", "tor0", "spine0", std::nullopt},
      {"a100-4x8", "resnet-50", "nic0.0", "tor0", Bandwidth(2'500'000'000)},
      {"few-nics", "bert-large", "nic0.0", "tor0", std::nullopt},
      {"few-nics", "resnet-50", "nic0.0", "tor0", std::nullopt},  // in buckets of another size
      {"few-nics", "resnet-50", "nic1.1", "tor0", Bandwidth(1'000'000'000)},
      {"few-nics", "vgg-16", "nic2.0", "tor0", std::nullopt},
  };
  constexpr double kNear = 1.015;
  constexpr double kShareOfTime = 0.1;
  std::map<std::pair<std::string, std::string>, plan::Plan> plans;  // by cluster and model
  for (const Case& c : cases) {
    CAPTURE(c.cluster, c.model, c.from, c.to);
    const topology::Topology before = cluster(c.cluster);
    const plan::Workload workload = model(c.model);
    const auto [known, is_new] = plans.try_emplace({c.cluster, c.model});
    if (is_new) {
      known->second = full_plan(before, workload);
    }
    const plan::Plan& old = known->second;
    const auto changes = cable(before, c.from, c.to, c.bandwidth);
    const topology::Topology now = planner::changed_cluster(before, changes);

    double start = cpu_seconds();
    const auto costs = sim::make_cost_model(now, {});
    const planner::Replan again = planner::replan(old, before, now, changes, workload, *costs);
    const double spent = cpu_seconds() - start;
    start = cpu_seconds();
    const plan::Plan full = full_plan(now, workload);
    const double spent_on_full = cpu_seconds() - start;

    // What is reported is what another simulation of the file says.
    const plan::VerifyReport report = plan::verify(again.plan, &now, &workload);
    CAPTURE(report.problems);
    CHECK(report.ok());
    const auto step = sim::make_cost_model(now, {})->step(again.plan, workload);
    CHECK(step.step_time == again.after);
    CHECK(again.after <= again.rerouted);
    CAPTURE(again.after.seconds(), full.prediction.step_time.seconds(), spent, spent_on_full);
    CHECK(again.after / full.prediction.step_time <= kNear);
    CHECK(spent / spent_on_full <= kShareOfTime);
    CHECK(again.after >= again.plan.prediction.bound);
    CHECK(again.bytes_before > Bytes(0));
    for (const planner::BucketChange& change : again.changes) {
      REQUIRE(change.bucket < old.buckets.size());
      CHECK((change.before != change.after || change.routes > 0));
    }
    const auto is_other = [](const planner::BucketChange& one) { return one.before != one.after; };
    CHECK(std::ranges::any_of(again.changes, is_other) == (again.after < again.rerouted));
    if (!c.bandwidth) {
      CHECK(!again.changes.empty());  // what used it goes another way at least
      CHECK(again.bytes_after == Bytes(0));
      CHECK_FALSE(planner::step_if_kept(old, before, now, changes, workload, *costs).has_value());
    }
    CHECK(plan::to_binary(planner::replan(old, before, now, changes, workload, *costs).plan) ==
          plan::to_binary(again.plan));
  }
}

TEST_CASE("candidates are of the families that come first, and of all when they are asked for") {
  const topology::Topology topology = cluster("two-racks-40g");
  const auto costs = sim::make_cost_model(topology, {});
  using Forms = std::multiset<std::pair<std::string, std::size_t>>;
  const auto forms = [](const planner::CandidateSet& candidates) {
    Forms found;
    for (const planner::Candidate& candidate : candidates.all()) {
      found.emplace(candidate.family, candidate.variant);
    }
    return found;
  };
  const planner::PlannerOptions options;
  const Forms all = forms(planner::CandidateSet(topology, *costs, options));
  planner::CandidateSet some(topology, *costs, options, nullptr, {"hierarchical", "ring"});
  const Forms first = forms(some);
  CHECK(std::ranges::all_of(first, [](const auto& form) {
    return form.first == "hierarchical" || form.first == "ring";
  }));
  CHECK(first.size() == all.count({"ring", 0}) + all.count({"hierarchical", 0}));
  CHECK(some.complete());
  CHECK(forms(some) == all);
  CHECK_FALSE(some.complete());
  // None that is known or can be used: all of them at once.
  CHECK(forms(planner::CandidateSet(topology, *costs, options, nullptr, {"imported"})) == all);
}

/// A plan with a codec that was asked for, and its cluster after an uplink became slow.
struct OfCodec {
  explicit OfCodec(plan::CodecKind kind) {
    options.compare_baselines = false;
    options.codec = plan::Codec{.kind = kind};
    old = planner::make_plan(before, workload, *sim::make_cost_model(before, {}), options);
  }

  topology::Topology before = cluster("two-racks-40g");
  plan::Workload workload = model("bert-large");
  planner::PlannerOptions options;
  plan::Plan old;
  std::vector<planner::LinkChange> slower = cable(before, "tor0", "core0", Bandwidth(500'000'000));
  topology::Topology now = planner::changed_cluster(before, slower);
  std::unique_ptr<plan::CostModel> costs = sim::make_cost_model(now, {});
};

TEST_CASE("planning again brings in no codec beyond the one that was asked for", "[slow]") {
  const auto kind = GENERATE(plan::CodecKind::kNone, plan::CodecKind::kFp16);
  const OfCodec c(kind);
  const planner::Replan again =
      planner::replan(c.old, c.before, c.now, c.slower, c.workload, *c.costs);
  REQUIRE(again.touched_buckets > 0);
  for (const plan::Bucket& bucket : again.plan.buckets) {
    CHECK(bucket.codec.kind <= kind);
  }
}

TEST_CASE("planning again finds what a codec that was asked for allows", "[slow]") {
  const auto kind = GENERATE(plan::CodecKind::kFp16, plan::CodecKind::kInt8Block);
  const OfCodec c(kind);
  planner::PlannerOptions within;
  within.compare_baselines = false;
  within.error_budget = c.old.error_budget;
  const plan::Plan found = planner::make_plan(c.now, c.workload, *c.costs, within);
  CHECK(std::ranges::any_of(found.buckets,
                            [&](const plan::Bucket& bucket) { return bucket.codec.kind == kind; }));
  const plan::Plan full = planner::make_plan(c.now, c.workload, *c.costs, c.options);
  const planner::Replan again =
      planner::replan(c.old, c.before, c.now, c.slower, c.workload, *c.costs);
  CHECK(again.after <= scaled(full.prediction.step_time, 1.05));
}

TEST_CASE("a plan whose routes avoid the changed link stays as it is") {
  // Its buckets use the ring through gpu0 ... gpu3, each joined to the next; the chord is spare.
  topology::Topology before("ring with a chord");
  std::vector<NodeId> gpus;
  for (const char* name : {"gpu0", "gpu1", "gpu2", "gpu3"}) {
    topology::Node node;
    node.name = name;
    node.kind = topology::NodeKind::kGpu;
    gpus.push_back(before.add_node(node));
    before.add_rank(gpus.back());
  }
  const auto join = [&](std::size_t a, std::size_t b) {
    topology::Link link;
    link.from = gpus[a];
    link.to = gpus[b];
    link.bandwidth = Bandwidth(10'000'000'000);
    link.latency = Duration(1'000'000);
    return before.add_duplex_link(link);
  };
  const LinkId chord = join(0, 2);  // the first, so that all other links get new numbers
  for (std::size_t i = 0; i < 4; ++i) join(i, (i + 1) % 4);
  const plan::Workload workload = model("resnet-50");
  const auto costs_before = sim::make_cost_model(before, {});
  planner::PlannerOptions options;
  options.schedule = "ring";
  options.codec = plan::Codec{};
  const plan::Plan old = planner::make_plan(before, workload, *costs_before, options);
  const std::vector<planner::LinkChange> changes = {{chord, std::nullopt},
                                                    {LinkId(chord.value() + 1), std::nullopt}};
  const topology::Topology now = planner::changed_cluster(before, changes);
  const auto costs = sim::make_cost_model(now, {});
  const planner::Replan again = planner::replan(old, before, now, changes, workload, *costs);
  CHECK(again.touched_buckets == 0);
  CHECK(again.changes.empty());
  CHECK(again.bytes_before == Bytes(0));
  CHECK(again.simulated_steps == 1);
  CHECK(again.after == old.prediction.step_time);
  CHECK(planner::step_if_kept(old, before, now, changes, workload, *costs) == again.after);
  for (std::size_t s = 0; s < old.schedules.size(); ++s) {
    const auto routes_before = old.schedules[s].routes();
    const auto routes_now = again.plan.schedules[s].routes();
    REQUIRE(routes_before.size() == routes_now.size());
    for (std::size_t r = 0; r < routes_before.size(); ++r) {
      REQUIRE(routes_before[r].size() == routes_now[r].size());
      for (std::size_t l = 0; l < routes_before[r].size(); ++l) {
        CHECK(before.link_name(routes_before[r][l]) == now.link_name(routes_now[r][l]));
      }
    }
  }
}

TEST_CASE("a lost link without which ranks are cut off, and a plan for another cluster, are said") {
  const topology::Topology before = cluster("two-racks-40g");
  const auto lost = cable(before, "tor0", "core0", std::nullopt);
  CHECK_THROWS_AS(planner::changed_cluster(before, lost), ConfigError);
  // Of a host with two NICs the second one is what cuts it off, of several hosts the one that is.
  const topology::Topology two_nics = cluster("few-nics");
  auto both = cable(two_nics, "nic1.0", "tor0", std::nullopt);
  const auto spare = cable(two_nics, "nic2.0", "tor0", std::nullopt);
  const auto second = cable(two_nics, "nic1.1", "tor0", std::nullopt);
  both.insert(both.end(), spare.begin(), spare.end());
  CHECK(planner::changed_cluster(two_nics, both).rank_count() == two_nics.rank_count());
  both.insert(both.end(), second.begin(), second.end());
  try {
    const topology::Topology none = planner::changed_cluster(two_nics, both);
    FAIL("accepted " << none.name());
  } catch (const ConfigError& error) {
    CHECK(error.context().where == "lost link nic1.1→tor0");
    CHECK(error.context().found ==
          "it cuts host1 off: no path is left between there and the other 8 ranks, with the links "
          "lost before it");
  }
  const plan::Workload workload = model("resnet-50");
  const plan::Plan old = full_plan(before, workload);
  const auto slower = cable(before, "tor0", "core0", Bandwidth(1'000'000'000));
  const topology::Topology now = planner::changed_cluster(before, slower);
  const auto costs = sim::make_cost_model(now, {});
  CHECK_THROWS_AS(planner::replan(old, now, now, slower, workload, *costs), PlanError);
}

}  // namespace
}  // namespace rackrail::replan_test

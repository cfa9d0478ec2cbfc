// Outages on a cluster whose steps all take the same: devices are the bottleneck, so the arithmetic
// of a run can be done by hand.
#include "explore/outages.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::explore::outages_test {
namespace {

using topology::NodeKind;
using topology::Topology;

Topology cluster() {
  Topology topology("cluster");
  const NodeId tor = topology.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node(
        {.name = name, .kind = NodeKind::kHost, .host = name, .device_class = "V100"});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = tor, .bandwidth = 100_GBps});
  }
  return topology;
}

struct Job {
  Topology topology = cluster();
  plan::Workload workload;
  plan::Plan plan;
  planner::PlannerOptions options;

  explicit Job(std::int64_t elements = 1000) {
    workload.name = "job";
    workload.tensors = {{"all", elements, 600_ms}};
    workload.forward = 400_ms;
    workload.fixed_share = 0;
    workload.device_class = "V100";
    workload.profiled_batch = 12;
    options.compare_baselines = false;
    options.local_batch = 12;
    const auto cost_model = sim::make_cost_model(topology, {});
    plan = planner::make_plan(topology, workload, *cost_model, options);
  }
  OutageResult run(const std::string& text, const sim::SimulationOptions& simulation = {}) const {
    const auto scenario = read_outages(ConfigValue::parse("s.yaml", text), topology);
    REQUIRE(scenario.has_value());
    return simulate_outages(plan, workload, topology, *scenario, options, simulation);
  }
};

std::vector<std::int64_t> steps(const OutageResult& result) {
  std::vector<std::int64_t> steps;
  for (const Phase& phase : result.phases) {
    steps.push_back(phase.steps);
  }
  return steps;
}

// A step of 48 samples is a second and a few microseconds on four ranks, so whole seconds minus a
// little hold one step less; on three it is 4/3 s, on two 2 s.
TEST_CASE("a lost host costs the step under way, detection, recovery, and its samples") {
  const OutageResult result = Job().run(
      "duration: 100 s\n"
      "outages: [{ host: host2, at: 20500 ms, detection: 2 s, recovery: 3 s, back: 50 s }]");
  REQUIRE(result.phases.size() == 5);
  CHECK(steps(result) == std::vector<std::int64_t>{20, 0, 19, 0, 46});
  CHECK(result.phases[0].ranks == 4);
  CHECK(result.phases[1].end == 25500_ms);
  CHECK(result.phases[2].ranks == 3);
  CHECK(result.phases[4].ranks == 4);
  // Who comes back is no surprise: the step under way is finished first.
  CHECK(result.phases[2].end >= 50500_ms);
  CHECK(result.samples_per_s == Approx(48 * (20 + 19 + 46) / 100.0).epsilon(0.03));
  CHECK(result.phases[2].step_time.seconds() == Approx(4 / 3.0).epsilon(1e-3));
  CHECK(result.undisturbed_samples_per_s == Approx(48).epsilon(0.011));
}

TEST_CASE("a restart loses the steps since the last checkpoint") {
  const std::string outage =
      "duration: 100 s\ncheckpoint_every: 8\n"
      "outages: [{ host: host2, at: 20500 ms, then: ";
  const OutageResult restarted = Job().run(outage + "restart }]");
  const OutageResult replanned = Job().run(outage + "replan }]");
  CHECK(restarted.phases[0].lost == 4);
  CHECK(replanned.phases[0].lost == 0);
  CHECK(replanned.samples_per_s - restarted.samples_per_s == Approx(4 * 48 / 100.0));
}

TEST_CASE("phases are simulated at the level that is asked for, by the routes of the network") {
  const Job job(1'000'000);
  const std::string lost = "duration: 60 s\noutages: [{ host: host2, at: 20500 ms, then: replan }]";
  const OutageResult flow = job.run(lost);
  sim::SimulationOptions packets;
  packets.network = sim::NetworkLevel::kPacket;
  const OutageResult packet = job.run(lost, packets);
  REQUIRE(packet.phases.size() == flow.phases.size());
  for (std::size_t i = 0; i < flow.phases.size(); ++i) {
    CAPTURE(i, flow.phases[i].what);
    CHECK(packet.phases[i].ranks == flow.phases[i].ranks);
    if (flow.phases[i].steps > 0) {  // headers and queues take time
      CHECK(packet.phases[i].step_time > flow.phases[i].step_time);
      CHECK(packet.phases[i].step_time < scaled(flow.phases[i].step_time, 1.01));
    }
  }
  const auto alone = sim::simulate_step(job.plan, job.workload, job.topology, packets);
  CHECK(packet.phases[0].step_time / alone.estimate.step_time == Approx(1).epsilon(1e-6));

  sim::SimulationOptions hashed;
  hashed.multipath = sim::Multipath::kEcmp;
  CHECK(steps(job.run(lost, hashed)) == steps(flow));  // there is one way only
}

TEST_CASE("a drain finishes its step and detects nothing") {
  const OutageResult result = Job().run(
      "duration: 60 s\n"
      "outages: [{ host: host0, at: 20500 ms, drain: true, detection: 9 s, recovery: 1 s }]");
  CHECK(steps(result)[0] == 21);
  CHECK(result.phases[1].end - result.phases[1].start == 1000_ms);
  CHECK(result.phases[2].ranks == 3);
}

TEST_CASE("waiting makes no steps until all is back") {
  const OutageResult result = Job().run(
      "duration: 60 s\n"
      "outages: [{ link: host0→tor, at: 10 s, then: wait, back: 40 s, recovery: 1 s }]");
  for (const Phase& phase : result.phases) {
    if (phase.start >= 11000_ms && phase.end <= 40000_ms) {
      CHECK(phase.steps == 0);
    }
  }
  CHECK(result.samples_per_s == Approx(48 * (9 + 18) / 60.0).epsilon(0.05));
}

TEST_CASE("outages that overlap are planned for together, and phases cover the run") {
  const OutageResult result = Job().run(
      "duration: 100 s\noutages:\n"
      "  - { host: host0, at: 10 s, back: 60 s }\n"
      "  - { host: host1, at: 30 s, back: 90 s }\n");
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < result.phases.size(); ++i) {
    ranks.push_back(result.phases[i].ranks);
    CHECK(result.phases[i].start == (i == 0 ? Duration() : result.phases[i - 1].end));
  }
  CHECK(ranks == std::vector<std::size_t>{4, 3, 2, 3, 4});
  CHECK(result.phases.back().end == 100000_ms);
}

TEST_CASE("an outage during the recovery from another one is recovered from beside it") {
  const OutageResult result = Job().run(
      "duration: 60 s\noutages:\n"
      " - { host: host3, at: 20 s, detection: 5 s, recovery: 5 s, then: restart }\n"
      " - { host: host2, at: 22 s, detection: 5 s, recovery: 5 s, then: restart, back: 24 s }\n");
  REQUIRE(result.phases.size() == 5);
  for (std::size_t i = 1; i < result.phases.size(); ++i) {
    CHECK(result.phases[i].start == result.phases[i - 1].end);
  }
  CHECK(result.phases[1].end == 22000_ms);
  CHECK(result.phases[2].what == "host2 lost: detection and recovery");
  CHECK(result.phases[3].what == "host2 back: recovery");
  // It is missed at 27 s and recovered from at 32 s; its return at 24 s holds up nothing longer.
  CHECK(result.phases[4].start == 32000_ms);
  CHECK(result.phases[4].ranks == 3);
  CHECK(result.phases[4].end == 60000_ms);
}

TEST_CASE("who waits recovers once, when all is back and was missed") {
  const auto training_from = [](const char* back) {
    const OutageResult result =
        Job().run(std::string("duration: 60 s\noutages: [{ link: host0→tor, at: 10 s, then: wait, "
                              "detection: 2 s, recovery: 5 s, back: ") +
                  back + " }]");
    CHECK(result.phases.back().ranks == 4);
    return result.phases.back().start;
  };
  CHECK(training_from("30 s") == 35000_ms);
  CHECK(training_from("11 s") == 17000_ms);
}

TEST_CASE("what cannot be trained through is an error") {
  CHECK_THROWS_AS(Job().run("duration: 100 s\noutages:\n"
                            "  - { host: host0, at: 10 s }\n  - { host: host1, at: 20 s }\n"
                            "  - { host: host2, at: 30 s }\n"),
                  ConfigError);
  CHECK_THROWS_WITH(Job().run("duration: 500 ms\noutages: []"), Catch::Contains("duration"));
}

TEST_CASE("a host whose own cable fails is lost until that is back") {
  const OutageResult result =
      Job().run("duration: 100 s\noutages: [{ link: host0→tor, at: 10 s, back: 50 s }]");
  REQUIRE(result.phases.size() == 3);
  CHECK(result.phases[0].ranks == 4);
  CHECK(result.phases[1].ranks == 3);
  CHECK(result.phases[1].what == "without host0→tor");
  CHECK(result.phases[2].ranks == 4);
}

TEST_CASE("of parallel cables one can fail, or all") {
  Job job;
  const NodeId other = job.topology.add_node({.name = "spare", .kind = NodeKind::kTor});
  const NodeId tor = job.topology.link(LinkId(0)).to;
  for (int i = 0; i < 2; ++i) {
    job.topology.add_duplex_link({.from = tor, .to = other, .bandwidth = 100_GBps});
  }
  const NodeId host = job.topology.node_of(Rank(0));
  job.topology.add_duplex_link({.from = host, .to = tor, .bandwidth = 100_GBps});
  const auto phase = [&](const std::string& link) {
    return job.run("duration: 100 s\noutages: [{ link: " + link + ", at: 10 s }]").phases[1];
  };
  CHECK(phase("host0->tor").ranks == 3);
  CHECK(phase("host0->tor").what == "without host0→tor");
  CHECK(phase("host0->tor#2").ranks == 4);
  CHECK(phase("tor→host0#1").what == "without tor→host0#1");
  CHECK_THROWS_WITH(job.run("duration: 100 s\noutages: [{ link: 'host0->tor#2', at: 10 s }, "
                            "{ link: tor->host0, at: 20 s }]"),
                    Catch::Contains("lost twice"));
}

TEST_CASE("a step counts with the time from one end to the next") {
  // Gradients that move until after the next step has begun elsewhere: steps of ranks overlap.
  Job job;
  job.topology = Topology("star");
  const NodeId tor = job.topology.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = job.topology.add_node(
        {.name = name, .kind = NodeKind::kHost, .host = name, .device_class = "V100"});
    job.topology.add_rank(host);
    job.topology.add_duplex_link({.from = host, .to = tor, .bandwidth = 1_GBps});
  }
  job.workload.tensors = {{"all", 25'000'000, 600_ms}};
  job.options.schedule = "ring";
  job.options.error_budget = 0;
  const auto cost_model = sim::make_cost_model(job.topology, {});
  job.plan = planner::make_plan(job.topology, job.workload, *cost_model, job.options);
  sim::SimulationOptions many;
  many.steps = 50;
  const auto simulated = sim::simulate_step(job.plan, job.workload, job.topology, many);
  const OutageResult result = job.run("duration: 100 s\noutages: []");
  REQUIRE(result.phases.size() == 1);
  CHECK(result.phases[0].step_time.seconds() ==
        Approx(simulated.mean_step_time.seconds()).epsilon(1e-3));
}

TEST_CASE("outages that mean nothing are refused with their place") {
  const auto [text, said] = GENERATE(
      std::pair{"outages: []", "duration"},
      std::pair{"duration: 9 s\noutages: [{ at: 1 s }]", "one of host and link"},
      std::pair{"duration: 9 s\noutages: [{ host: host9, at: 1 s }]", "host9"},
      std::pair{"duration: 9 s\noutages: [{ link: a→b, at: 1 s }]", "such as host0→tor"},
      std::pair{"duration: 9 s\noutages: [{ host: host1, at: 9 s }]", "before the end"},
      std::pair{"duration: 9 s\noutages: [{ host: host1, at: 2 s, back: 1 s }]", "after 2"},
      std::pair{"duration: 9 s\noutages: [{ host: host1, at: 2 s, then: hope }]",
                "restart or wait"},
      std::pair{"duration: 9 s\noutages: [{ host: host1, at: 2 s, then: wait }]", "'back'"},
      std::pair{"duration: 9 s\noutages: [{ host: host1, at: 2 s }, { host: host1, at: 4 s }]",
                "lost twice"},
      std::pair{"duration: 9 s\noutages: [{ host: host1, at: 4 s, back: 6 s }, "
                "{ host: host1, at: 2 s, back: 5 s }]",
                "lost twice"});
  CAPTURE(text);
  CHECK_THROWS_WITH(Job().run(text), Catch::Contains(said));
}

}  // namespace
}  // namespace rackrail::explore::outages_test

#include "explore/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "explore/altered.hpp"
#include "explore/changes.hpp"
#include "explore/outages.hpp"
#include "planner/planner.hpp"
#include "sim/scenario.hpp"
#include "sim/simulator.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore::explain_test {
namespace {

using topology::LinkKind;
using topology::NodeKind;
using topology::Topology;

constexpr Bandwidth kUplink(1'000'000'000);
constexpr Duration kUplinkLatency(1'000'000'000);  // 1 ms

// Two racks of one host each: host – ToR at `nic_factor` times the uplinks' rate, ToR – spine. One
// gradient of `bytes`, ready at the end of the backward pass, in FP32 over a ring: nothing
// overlaps.
struct Case {
  Topology topology{"two racks"};
  plan::Workload workload;
  plan::Plan plan;

  Case(std::int64_t bytes, Duration compute, std::int64_t nic_factor = 200) {
    const NodeId spine = topology.add_node({.name = "spine", .kind = NodeKind::kSpine});
    for (int i = 0; i < 2; ++i) {
      const NodeId tor =
          topology.add_node({.name = fmt::format("tor{}", i), .kind = NodeKind::kTor});
      const std::string name = fmt::format("host{}", i);
      const NodeId host = topology.add_node({.name = name,
                                             .kind = NodeKind::kHost,
                                             .host = name,
                                             .rack = fmt::format("rack{}", i),
                                             .device_class = "H100"});
      topology.add_rank(host);
      topology.add_duplex_link({.from = host,
                                .to = tor,
                                .bandwidth = kUplink * nic_factor,
                                .kind = LinkKind::kHostLink,
                                .tier = "nic"});
      topology.add_duplex_link({.from = tor,
                                .to = spine,
                                .bandwidth = kUplink,
                                .latency = kUplinkLatency,
                                .kind = LinkKind::kUplink,
                                .tier = "rack-uplink"});
    }
    workload.name = "one gradient";
    workload.device_class = "H100";
    workload.tensors = {{"w", bytes / 4, scaled(compute, 0.5)}};
    workload.forward = scaled(compute, 0.25);
    workload.optimizer = scaled(compute, 0.25);
    const auto cost_model = sim::make_cost_model(topology, {});
    planner::PlannerOptions options;
    options.error_budget = 0;
    options.schedule = "ring";
    options.bucket_size = Bytes(bytes);
    options.local_batch = 1;
    plan = planner::make_plan(topology, workload, *cost_model, options);
  }

  Explanation explain(bool replan = false) const {
    ExplainOptions options;
    options.replan = replan;
    return explore::explain(plan, workload, topology, options);
  }
};

const Gain& gain_of(const Explanation& explanation, const std::string& what,
                    const std::string& change) {
  for (const Gain& gain : explanation.gains) {
    if (gain.what == what && gain.change == change) {
      return gain;
    }
  }
  FAIL("no gain of " << what << " by " << change);
  return explanation.gains.front();
}

double share_of(const Explanation& explanation, const std::string& what) {
  for (const Part& part : explanation.parts) {
    if (part.what == what) {
      return part.share;
    }
  }
  return 0;
}

void check_order(const Explanation& explanation) {
  double shares = 0;
  for (const Part& part : explanation.parts) {
    shares += part.share;
  }
  CHECK(shares == Approx(1).epsilon(1e-9));
  for (std::size_t i = 1; i < explanation.gains.size(); ++i) {
    CHECK(explanation.gains[i - 1].gain >= explanation.gains[i].gain);
  }
  for (const Gain& gain : explanation.gains) {
    CHECK(gain.gain == Approx(1 - gain.step_time / explanation.step_time));
  }
}

// Ring all-reduce of S bytes over n = 2: 2(n−1)/n · S = S over the uplink each way, in slices that
// follow each other without a gap, and one latency of the route (two uplinks) at the end:
// T = C + S/B + 2L + a little for the last slice's bytes elsewhere.
TEST_CASE("where the uplinks carry more than anything else takes, they are the bottleneck") {
  const Case network(1'000'000'000, 200_ms);
  const Explanation explanation = network.explain();
  check_order(explanation);
  const double step = explanation.step_time.seconds();
  const double compute = 0.2;
  const double wire = 1.0;
  const double latency = 0.002;
  CHECK(step == Approx(compute + wire + latency).epsilon(0.01));

  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "rack-uplink bandwidth");
  CHECK(explanation.parts.front().what == "wire: rack-uplink");
  CHECK(share_of(explanation, "wire: rack-uplink") == Approx(wire / step).epsilon(0.01));

  const auto gain = [&](const char* what, const char* change) {
    return gain_of(explanation, what, change).gain;
  };
  CHECK(gain("rack-uplink bandwidth", "+10 %") ==
        Approx(wire * (1 - 1 / 1.1) / step).epsilon(0.01));
  CHECK(gain("rack-uplink bandwidth", "x2") == Approx(wire / 2 / step).epsilon(0.01));
  CHECK(gain("device speed", "+10 %") == Approx(compute * (1 - 1 / 1.1) / step).epsilon(0.01));
  CHECK(gain("device speed", "x2") == Approx(compute / 2 / step).epsilon(0.01));
  CHECK(gain("rack-uplink latency", "half") == Approx(latency / 2 / step).epsilon(0.05));
  CHECK(gain("rack-uplink latency", "-10 %") == Approx(latency / 10 / step).epsilon(0.05));
  CHECK(gain("codec speed", "x2") == 0);
  // 200 times too fast already: nothing but the bytes of the last slice.
  CHECK(std::abs(gain("nic bandwidth", "x2")) < 0.001);
  CHECK(gain("uplinks", "2 instead of 1 per ToR") == gain("rack-uplink bandwidth", "x2"));
}

TEST_CASE("where two tiers bind equally, the bottleneck is both") {
  const Case network(1'000'000'000, 200_ms, 1);
  const Explanation explanation = network.explain();
  check_order(explanation);
  const double step = explanation.step_time.seconds();
  // One alone changes nothing; both together what 10 % of a second of wire is.
  CHECK(std::abs(gain_of(explanation, "rack-uplink bandwidth", "x2").gain) < 0.001);
  CHECK(std::abs(gain_of(explanation, "nic bandwidth", "x2").gain) < 0.001);
  CHECK(gain_of(explanation, "bandwidth of every link", "+10 %").gain ==
        Approx(1.0 * (1 - 1 / 1.1) / step).epsilon(0.01));
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "bandwidth of every link");
}

TEST_CASE("where computing takes longest, the device is the bottleneck") {
  const Case compute(10'000'000, 2000_ms);
  const Explanation explanation = compute.explain();
  check_order(explanation);
  const double step = explanation.step_time.seconds();
  CHECK(step == Approx(2.0 + 0.01 + 0.002).epsilon(0.001));
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "device speed");
  CHECK(explanation.parts.front().what == "backward");
  CHECK(share_of(explanation, "backward") == Approx(1.0 / step).epsilon(0.001));
  CHECK(share_of(explanation, "forward") == Approx(0.5 / step).epsilon(0.001));
  CHECK(share_of(explanation, "optimiser") == Approx(0.5 / step).epsilon(0.001));
  CHECK(gain_of(explanation, "device speed", "+10 %").gain ==
        Approx(2.0 * (1 - 1 / 1.1) / step).epsilon(0.001));
  CHECK(gain_of(explanation, "rack-uplink bandwidth", "x2").gain ==
        Approx(0.005 / step).epsilon(0.05));
}

TEST_CASE("where copies to host memory take longest, what ends them is tried") {
  Case staged(1'000'000'000, 200_ms);
  staged.topology = with_ranks(std::move(staged.topology), [](topology::Node& rank) {
    rank.host_staging = Bandwidth(500'000'000);
  });
  const Explanation explanation = staged.explain();
  check_order(explanation);
  const double step = explanation.step_time.seconds();
  // Both halves of the ring's bytes over the slower stage of the pipeline.
  CHECK(step == Approx(0.2 + 2.0 + 0.002).epsilon(0.02));
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "host staging");
  CHECK(gain_of(explanation, "host staging", "+10 %").gain ==
        Approx(2.0 * (1 - 1 / 1.1) / step).epsilon(0.02));
  CHECK(gain_of(explanation, "host staging", "none (GPUDirect RDMA)").gain ==
        Approx(1.0 / step).epsilon(0.03));
  CHECK(share_of(explanation, "copy to host memory") +
            share_of(explanation, "copy from host memory") >
        0.5);
}

ExplainOptions under(const std::string& scenario) {
  ExplainOptions options;
  options.conditions.scenario = Source{"scenario.yaml", scenario};
  return options;
}

/// What simulating the changed cluster with that file gives, without anything of this library.
Duration simulated(const Case& on, const Topology& cluster, const std::string& scenario,
                   const plan::Workload& workload) {
  sim::SimulationOptions options = sim::parse_scenario("scenario.yaml", scenario, cluster).options;
  const sim::StepResult result = sim::simulate_step(on.plan, workload, cluster, options);
  return options.steps > 1 ? result.mean_step_time : result.estimate.step_time;
}

// A straggler, devices that vary, a link that is slow for a while and comes back, one that flaps,
// traffic of others, and a loader that is slower than the devices.
constexpr const char* kRough =
    "steps: 6\n"
    "seed: 3\n"
    "loading: { batch: 60 ms, prefetch: 1 }\n"
    "slow_devices:\n"
    "  - { ranks: [1], factor: 1.5 }\n"
    "  - { sigma: 0.05 }\n"
    "links:\n"
    "  - { link: tor0→spine, from: 100 ms, until: 400 ms, bandwidth: 2 Gbit/s }\n"
    "  - { link: spine→tor1, flapping: { every: 50 ms, for: 5 ms }, from: 500 ms, until: 700 ms }\n"
    "background:\n"
    "  - { from: 0, to: 1, message: 1 MB, rate: 1 Gbit/s }\n";

TEST_CASE("every gain under a scenario is what simulating the changed cluster gives") {
  const Case job(20'000'000, 40_ms);
  ExplainOptions options = under(kRough);
  options.links = {named_links(job.topology, "tor0->spine")};
  const Explanation explanation = explore::explain(job.plan, job.workload, job.topology, options);
  check_order(explanation);
  CHECK(explanation.steps == 6);
  CHECK(explanation.step_time == simulated(job, job.topology, kRough, job.workload));

  std::vector<std::string> notes;
  std::vector<Change> changes = changes_of_links(job.topology, options.links.front());
  const std::size_t of_link = changes.size();
  CHECK(of_link == 7);  // bandwidth there, and both ways, and latency, each twice; one more cable
  for (Change& change : changes_of(job.topology, notes)) {
    changes.push_back(std::move(change));
  }
  std::size_t compared = 0;
  for (const Change& change : changes) {
    if (change.device_rates) {
      continue;
    }
    INFO(change.what << " " << change.by);
    const Topology cluster = change.links ? with_links(job.topology, change.links) : job.topology;
    CHECK(gain_of(explanation, change.what, change.by).step_time ==
          simulated(job, cluster, kRough, with_speed(job.workload, change.device_speed)));
    ++compared;
  }
  CHECK(compared > of_link + 8);
}

TEST_CASE("what goes wrong costs what the step is shorter without it") {
  const Case job(20'000'000, 40_ms);
  const Explanation explanation =
      explore::explain(job.plan, job.workload, job.topology, under(kRough));
  const auto without = [&](const std::string& line, const std::string& instead = "") {
    std::string text = kRough;
    const std::size_t at = text.find(line);
    REQUIRE(at != std::string::npos);
    return simulated(job, job.topology, text.replace(at, line.size(), instead), job.workload);
  };
  const auto time = [&](const char* what, const char* change) {
    return gain_of(explanation, what, change).step_time;
  };
  CHECK(time("slowness of rank 1", "gone") == without("factor: 1.5", "factor: 1"));
  CHECK(time("variation of all ranks", "gone") == without("sigma: 0.05", "sigma: 0"));
  CHECK(time("trouble of tor0→spine", "gone") ==
        without("  - { link: tor0→spine, from: 100 ms, until: 400 ms, bandwidth: 2 Gbit/s }\n"));
  CHECK(time("background from rank 0 to rank 1", "gone") ==
        without("background:\n  - { from: 0, to: 1, message: 1 MB, rate: 1 Gbit/s }\n"));
  CHECK(time("speed of data loading", "x2") == without("batch: 60 ms", "batch: 30 ms"));
  CHECK(time("batches loaded ahead", "2 instead of 1") == without("prefetch: 1", "prefetch: 2"));
  CHECK(time("speed of rank 1", "x2") ==
        without("  - { sigma: 0.05 }\n", "  - { sigma: 0.05 }\n  - { ranks: [1], factor: 0.5 }\n"));
  CHECK(time("trouble of 2 links", "gone") <= time("trouble of tor0→spine", "gone"));
  for (const Gain& gain : explanation.gains) {
    CHECK(gain.is_disturbance == (gain.change == "gone"));
  }
}

TEST_CASE("a straggler is its own bottleneck, not devices as such") {
  const Case compute(1'000'000, 400_ms);
  const Explanation explanation =
      explore::explain(compute.plan, compute.workload, compute.topology,
                       under("slow_devices: [{ ranks: [1], factor: 2 }]\n"));
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "speed of rank 1");
  REQUIRE(explanation.worst_disturbance() != nullptr);
  CHECK(explanation.worst_disturbance()->what == "slowness of rank 1");
  // 0.8 s of 0.8 s + what 1 MB takes; without it half of that.
  CHECK(explanation.worst_disturbance()->gain == Approx(0.5).epsilon(0.01));
}

TEST_CASE("a link that is slow all the time is found, and what it is to others does not matter") {
  const Case network(1'000'000'000, 200_ms);
  const std::string slow = "links: [{ link: tor0→spine, bandwidth: 1 Gbit/s }]\n";
  ExplainOptions options = under(slow);
  options.links = {named_links(network.topology, "tor0→spine")};
  const Explanation explanation =
      explore::explain(network.plan, network.workload, network.topology, options);
  // The file says what it carries, whatever cable is there.
  CHECK(std::abs(gain_of(explanation, "tor0→spine bandwidth", "x2").gain) < 0.01);
  REQUIRE(explanation.worst_disturbance() != nullptr);
  CHECK(explanation.worst_disturbance()->what == "trouble of tor0→spine");
  CHECK(explanation.worst_disturbance()->step_time == network.explain().step_time);
}

TEST_CASE("one link of a tier is the bottleneck where the others are wide") {
  const Case even(1'000'000'000, 200_ms);
  const Topology uneven = with_links(even.topology, [&](LinkId id, topology::Link& link) {
    if (link.tier == "rack-uplink" && even.topology.link_name(id) != "spine→tor1") {
      link.bandwidth = kUplink * 50;
    }
  });
  ExplainOptions options;
  options.links = {named_links(uneven, "spine→tor1")};
  const Explanation explanation = explore::explain(even.plan, even.workload, uneven, options);
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "spine→tor1 bandwidth");
  CHECK(gain_of(explanation, "spine→tor1 and back bandwidth", "x2").step_time ==
        gain_of(explanation, "cables spine↔tor1", "2 instead of 1").step_time);
  const auto& wire = *std::find_if(explanation.parts.begin(), explanation.parts.end(),
                                   [](const Part& p) { return p.what == "wire: rack-uplink"; });
  CHECK(wire.link == "spine→tor1");
  CHECK(wire.link_time <= wire.time);
}

TEST_CASE("a run with drains is explained by the time that a step of it takes") {
  const Case job(1'000'000, 2000_ms);
  const std::string text =
      "duration: 600 s\n"
      "outages:\n"
      "  - { link: tor0→spine, at: 100 s, drain: true, then: wait, back: 200 s, recovery: 2 s }\n"
      "  - { link: tor1→spine, at: 300 s, detection: 30 s, then: wait, back: 400 s, recovery: 2 s "
      "}\n";
  const Explanation explanation =
      explore::explain(job.plan, job.workload, job.topology, under(text));
  const auto per_step = [&](const std::string& scenario, const plan::Workload& workload) {
    const auto outages = read_outages(ConfigValue::parse("scenario.yaml", scenario), job.topology);
    REQUIRE(outages.has_value());
    const OutageResult run =
        simulate_outages(job.plan, workload, job.topology, *outages, planner::PlannerOptions());
    return static_cast<double>(job.plan.batch.global_batch()) / run.samples_per_s;
  };
  CHECK(explanation.step_time.seconds() == Approx(per_step(text, job.workload)).epsilon(1e-9));
  CHECK(gain_of(explanation, "device speed", "x2").step_time.seconds() ==
        Approx(per_step(text, with_speed(job.workload, 2))).epsilon(1e-9));
  CHECK(gain_of(explanation, "drain of tor0→spine", "gone").gain == Approx(1 / 5.0).epsilon(0.05));
  CHECK(gain_of(explanation, "loss of tor1→spine", "gone").gain == Approx(1 / 5.0).epsilon(0.05));
  CHECK(gain_of(explanation, "all that is lost or drained", "gone").gain ==
        Approx(1 / 3.0).epsilon(0.05));
  CHECK(gain_of(explanation, "time of recovery", "half").gain > 0);
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "device speed");
}

TEST_CASE("a scenario without steps that all wait for is not explained") {
  const Case job(1'000'000, 40_ms);
  for (const char* text :
       {"asynchronous: true\n", "jobs: [{ plan: other.json }]\n", "placement: { ranks: [1, 0] }\n",
        "packets: { queue_capacity: 1 MiB }\n", "local_steps: 4\n"}) {
    INFO(text);
    CHECK_THROWS_AS(explore::explain(job.plan, job.workload, job.topology, under(text)),
                    ConfigError);
  }
}

TEST_CASE("planning anew is never worse than the plan as it is") {
  Case network(100'000'000, 50_ms);
  // The plan allows 8-bit codes but was made without: planning anew finds them.
  network.plan.error_budget = 0.02;
  const Explanation kept = network.explain(false);
  const Explanation anew = network.explain(true);
  check_order(anew);
  for (const Gain& gain : kept.gains) {
    INFO(gain.what << " " << gain.change);
    CHECK_FALSE(gain.kept_plan_time.has_value());
    const Gain& other = gain_of(anew, gain.what, gain.change);
    REQUIRE(other.kept_plan_time.has_value());
    CHECK(*other.kept_plan_time == gain.step_time);
    CHECK(other.step_time <= gain.step_time);
  }
  // 100 ms of FP32 on the wire become about 25 ms.
  CHECK(gain_of(anew, "plan", "anew").gain > 0.4);
  CHECK(anew.gains.size() == kept.gains.size() + 1);
}

TEST_CASE("an explanation is the same on any number of threads") {
  const Case network(100'000'000, 50_ms);
  const auto text = [&](std::size_t threads) {
    ExplainOptions options;
    options.threads = threads;
    std::size_t calls = 0;
    options.progress = [&](std::size_t done, std::size_t) { CHECK(done == ++calls); };
    const Explanation result = explain(network.plan, network.workload, network.topology, options);
    CHECK(calls == result.gains.size());
    std::string lines;
    for (const Gain& gain : result.gains) {
      lines += fmt::format("{} {} {}\n", gain.what, gain.change, gain.step_time.picoseconds());
    }
    return lines;
  };
  const std::string alone = text(1);
  CHECK(text(2) == alone);
  CHECK(text(16) == alone);
}

// Four hosts on a switch with so many cores each, of which TCP at full rate takes a share.
Topology hosts_with_cores(int cores, double share_of_cores, Bandwidth nic = 10_GBps) {
  Topology topology("hosts with cores");
  const NodeId tor = topology.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node(
        {.name = name, .kind = NodeKind::kHost, .host = name, .device_class = "V100"});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host,
                              .to = tor,
                              .bandwidth = nic,
                              .latency = 20_us,
                              .kind = LinkKind::kHostLink,
                              .tier = "nic",
                              .cpu_share = share_of_cores});
    const NodeId processor =
        topology.add_node({.name = name + ".cores", .kind = NodeKind::kSwitch, .host = name});
    topology.set_processor(Rank(static_cast<std::size_t>(i)),
                           topology.add_link({.from = host,
                                              .to = processor,
                                              .bandwidth = 1_GBps * cores,
                                              .kind = LinkKind::kShared,
                                              .tier = "cores",
                                              .cpu_share = 1.0 / cores}));
  }
  return topology;
}

// Of a plan for one gradient of 200 MB.
struct BigGradient {
  plan::Workload workload;
  plan::Plan plan;

  explicit BigGradient(const Topology& topology) {
    workload.name = "big";
    workload.tensors = {{"w", 50'000'000, 10_ms}};
    workload.forward = 10_ms;
    planner::PlannerOptions options;
    options.error_budget = 0;
    options.schedule = "ring";
    options.local_batch = 1;
    const auto cost_model = sim::make_cost_model(topology, {});
    plan = planner::make_plan(topology, workload, *cost_model, options);
  }
  Duration step_time(const Topology& topology) const {
    return sim::simulate_step(plan, workload, topology, {}).estimate.step_time;
  }
};

TEST_CASE("where cores bind, a faster card gains nothing and more cores what they would") {
  const Topology two = hosts_with_cores(2, 0.8);
  const BigGradient job(two);
  const Explanation explanation = explain(job.plan, job.workload, two, {});
  CHECK(share_of(explanation, "wire: cores") > 0.5);
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "cores");
  CHECK(std::abs(gain_of(explanation, "nic bandwidth", "x2").gain) < 0.01);
  // The same core time per byte, spread over twice as many.
  CHECK(gain_of(explanation, "cores", "x2").step_time == job.step_time(hosts_with_cores(4, 0.4)));
}

TEST_CASE("a faster card costs the cores what its bytes cost before") {
  const Topology four = hosts_with_cores(4, 0.2);
  const BigGradient job(four);
  const Explanation explanation = explain(job.plan, job.workload, four, {});
  CHECK(gain_of(explanation, "nic bandwidth", "x2").step_time ==
        job.step_time(hosts_with_cores(4, 0.4, 20_GBps)));
}

TEST_CASE("where one message takes only a part of its link, that is the bottleneck") {
  const Topology whole = hosts_with_cores(2, 0);
  const Topology part = with_links(whole, [](LinkId, topology::Link& link) {
    if (link.tier == "nic") {
      link.flow_bandwidth = 1_GBps;
    }
  });
  const BigGradient job(part);
  const Explanation explanation = explain(job.plan, job.workload, part, {});
  REQUIRE(explanation.bottleneck() != nullptr);
  CHECK(explanation.bottleneck()->what == "nic rate of one message");
  CHECK(gain_of(explanation, "nic bandwidth", "x2").gain < 0.01);
  CHECK(gain_of(explanation, "nic rate of one message", "x2").gain > 0.4);
  std::vector<std::string> notes;
  for (const Change& change : changes_of(whole, notes)) {
    CHECK(change.what != "nic rate of one message");
  }
}

TEST_CASE("a faster device shortens all of its times") {
  const Case some(1'000'000, 80_ms);
  plan::Workload workload = some.workload;
  workload.backward_tail = 8_ms;
  const plan::Workload faster = with_speed(workload, 2);
  CHECK(faster.forward == 10_ms);
  CHECK(faster.backward() == 24_ms);
  CHECK(faster.optimizer == 10_ms);
  CHECK(faster.digest() == workload.digest());
}

}  // namespace
}  // namespace rackrail::explore::explain_test

#include "sim/jobs.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::sim::jobs_test {
namespace {

using topology::NodeKind;
using topology::Topology;

constexpr std::int64_t kElements = 2'000'000;  // 8 MB: 8 ms at 1 GB/s

// Pairs of hosts with 10 GB/s each, one on the left and one on the right, and between the two
// switches one link of 1 GB/s each way. Rank 2i is the left host of pair i, 2i + 1 its right one.
Topology dumbbell(std::size_t pairs) {
  Topology topology("dumbbell");
  const NodeId left = topology.add_node({.name = "left", .kind = NodeKind::kTor});
  const NodeId right = topology.add_node({.name = "right", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < 2 * pairs; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link(
        {.from = host, .to = i % 2 == 0 ? left : right, .bandwidth = Bandwidth(10'000'000'000)});
  }
  topology.add_duplex_link({.from = left,
                            .to = right,
                            .bandwidth = Bandwidth(1'000'000'000),
                            .latency = 1_us,
                            .tier = "between"});
  return topology;
}

// Each of two ranks sends everything to the other, so that a step takes compute and bytes alone.
plan::TransferGraph exchange() {
  plan::TransferGraph graph("exchange", plan::Collective::kAllReduce, 2, {1});
  for (const int src : {0, 1}) {
    graph.add_transfer({.src = Rank(src), .dst = Rank(1 - src), .op = plan::TransferOp::kCopy}, {});
  }
  return graph;
}

// Computes for `compute`, then exchanges `elements`.
Job job(const std::string& name, Duration compute, std::vector<Rank> ranks, Duration start = {},
        int steps = 1, std::int64_t elements = kElements) {
  Job job{.name = name, .ranks = std::move(ranks), .start = start, .steps = steps};
  job.workload.name = name;
  job.workload.tensors = {{"all", elements, compute}};
  job.workload.fixed_share = 0;
  job.plan.name = name;
  job.plan.rank_names = {"a", "b"};
  job.plan.workload_name = name;
  job.plan.workload_digest = job.workload.digest();
  job.plan.schedules = {exchange()};
  job.plan.buckets = {{.tensors = {0}, .elements = elements, .slice_elements = elements}};
  job.plan.batch.local_batch = {1, 1};
  return job;
}

Duration time_of(const std::vector<StepSpan>& steps, std::size_t step) {
  return steps[step].end - steps[step].start;
}

TEST_CASE("two jobs over one bottleneck with equal demand communicate for twice as long") {
  const auto result = simulate_jobs(
      {job("a", 10_ms, {Rank(0), Rank(1)}), job("b", 10_ms, {Rank(2), Rank(3)})}, dumbbell(2), {});
  REQUIRE(result.jobs.size() == 2);
  for (const JobResult& of_job : result.jobs) {
    CHECK(time_of(of_job.steps_alone, 0) == 18_ms + 1_us);
    CHECK(time_of(of_job.steps, 0) == 26_ms + 1_us);
    CHECK(of_job.slowdown == Approx(26.001 / 18.001).epsilon(1e-12));
    CHECK(of_job.samples_per_s == Approx(2 / 26.001e-3).epsilon(1e-12));
  }
  // Both jobs' bytes: on the link between they fill 16 of 26.001 ms.
  double between = 0;
  for (const LinkUse& use : result.links) {
    if (use.bytes == Bytes(16'000'000)) {
      between = use.utilization;
    } else {
      CHECK(use.bytes == Bytes(8'000'000));
    }
  }
  CHECK(between == Approx(16 / 26.001).epsilon(1e-12));
}

TEST_CASE("n jobs over one bottleneck take n times as long") {
  const std::size_t n = GENERATE(1, 2, 3, 5, 8);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < n; ++i) {
    jobs.push_back(job(fmt::format("job {}", i), 1_ms, {Rank(2 * i), Rank(2 * i + 1)}));
  }
  const auto result = simulate_jobs(jobs, dumbbell(n), {});
  for (const JobResult& of_job : result.jobs) {
    const auto beside = (time_of(of_job.steps, 0) - 1_ms - 1_us).picoseconds();
    CHECK(std::abs(beside - 8'000'000'000 * static_cast<std::int64_t>(n)) <= 1);
  }
}

TEST_CASE("jobs without a link in common change nothing, to the picosecond") {
  // Both ranks of each on one side, where nothing but the switch is shared.
  const auto result = simulate_jobs({job("a", 3_ms, {Rank(0), Rank(2)}, Duration(), 7, 1'234'567),
                                     job("b", 5_ms, {Rank(1), Rank(3)}, 1_ms, 5, 765'431)},
                                    dumbbell(2), {});
  for (const JobResult& of_job : result.jobs) {
    REQUIRE(of_job.steps.size() == of_job.steps_alone.size());
    for (std::size_t s = 0; s < of_job.steps.size(); ++s) {
      CHECK(of_job.steps[s].start == of_job.steps_alone[s].start);
      CHECK(of_job.steps[s].end == of_job.steps_alone[s].end);
    }
    CHECK(of_job.slowdown == 1);
  }
}

TEST_CASE("jobs that are never there at the same time change nothing") {
  const auto result = simulate_jobs({job("a", 10_ms, {Rank(0), Rank(1)}, Duration(), 3),
                                     job("b", 10_ms, {Rank(2), Rank(3)}, 54_ms + 3_us, 2)},
                                    dumbbell(2), {});
  CHECK(result.jobs[0].steps.back().end == 54_ms + 3_us);
  CHECK(result.jobs[1].steps.front().start == 54_ms + 3_us);
  CHECK(result.jobs[0].slowdown == 1);
  CHECK(result.jobs[1].slowdown == 1);
  CHECK(result.end == 90_ms + 5_us);
}

TEST_CASE("what jobs cost each other depends on when they start") {
  // Compute 8 ms, then 8 ms of bytes. The microsecond of latency belongs to the step.
  const auto step_time = [](Duration shift) {
    const auto result = simulate_jobs({job("a", 8_ms, {Rank(0), Rank(1)}, Duration(), 4),
                                       job("b", 8_ms, {Rank(2), Rank(3)}, shift, 4)},
                                      dumbbell(2), {});
    return std::pair(time_of(result.jobs[0].steps, 1), time_of(result.jobs[1].steps, 1));
  };
  // At once: each has half of the link.
  CHECK(step_time(Duration()) == std::pair(24_ms + 1_us, 24_ms + 1_us));
  // One computes while the other one sends: nothing is lost.
  CHECK(step_time(8_ms) == std::pair(16_ms + 1_us, 16_ms + 1_us));
  // Shifted by 3 ms: a is alone for 3 ms, its other 5 ms take 10, until 21 (and 1 us); b has sent
  // 5 ms' worth by then and needs 3 more, until 24: again 3 ms behind, so all steps are alike.
  CHECK(step_time(3_ms) == std::pair(21_ms + 1_us, 21_ms + 1_us));
}

TEST_CASE("a longer job is alone again when the other one has ended") {
  const auto result = simulate_jobs({job("a", 2_ms, {Rank(0), Rank(1)}, Duration(), 1),
                                     job("b", 2_ms, {Rank(2), Rank(3)}, Duration(), 2)},
                                    dumbbell(2), {});
  CHECK(time_of(result.jobs[1].steps, 0) == 18_ms + 1_us);
  CHECK(time_of(result.jobs[1].steps, 1) == 10_ms + 1_us);
  CHECK(result.jobs[1].step_time_s == Approx(14.001e-3).epsilon(1e-12));
}

TEST_CASE("pinned routes are those of the cluster that the jobs share") {
  Topology topology = dumbbell(2);
  // A second, slower way between the switches that no router would take.
  const LinkId there = topology.add_duplex_link({.from = *topology.find_node("left"),
                                                 .to = *topology.find_node("right"),
                                                 .bandwidth = Bandwidth(500'000'000),
                                                 .latency = 5_us});
  Job pinned = job("pinned", 1_ms, {Rank(2), Rank(3)});
  plan::TransferGraph graph("exchange", plan::Collective::kAllReduce, 2, {1});
  // The plan was made for links 0 to 2: up, between and down.
  const RouteId route = graph.add_route({LinkId(0), LinkId(1), LinkId(2)});
  graph.add_transfer({.src = Rank(0), .dst = Rank(1), .route = route}, {});
  pinned.plan.schedules = {graph};
  pinned.links = {LinkId(4), there, LinkId(7)};
  CHECK(pins_routes(graph));
  CHECK_FALSE(pins_routes(exchange()));
  const auto result = simulate_jobs({pinned}, topology, {});
  CHECK(time_of(result.jobs[0].steps, 0) == 17_ms + 5_us);
}

TEST_CASE("switches reduce and multicast for a job as for a plan alone") {
  Topology topology("star");
  const NodeId hub = topology.add_node(
      {.name = "hub", .kind = NodeKind::kNvSwitch, .multicasts = true, .reduces = true});
  Job one{.name = "one", .ranks = {Rank(0), Rank(1), Rank(2), Rank(3)}};
  for (int i = 0; i < 4; ++i) {
    const std::string name = fmt::format("host{}", i);
    topology.add_rank(topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name}));
    topology.add_duplex_link({.from = topology.node_of(Rank(i)),
                              .to = hub,
                              .bandwidth = Bandwidth(1'000'000'000),
                              .latency = 1_us});
    one.plan.rank_names.push_back(name);
    one.plan.batch.local_batch.push_back(1);
  }
  plan::TransferGraph graph("multicast", plan::Collective::kAllReduce, 4, {1});
  for (const int dst : {1, 2, 3}) {
    const RouteId route = graph.add_route({LinkId(0), LinkId(2 * dst + 1)});
    graph.add_transfer({.src = Rank(0), .dst = Rank(dst), .route = route}, {});
  }
  graph.add_group(TransferId(0), 3);
  one.workload.name = "one";
  one.workload.tensors = {{"all", kElements, 1_ms}};
  one.workload.fixed_share = 0;
  one.plan.workload_digest = one.workload.digest();
  one.plan.schedules = {graph};
  one.plan.buckets = {{.tensors = {0}, .elements = kElements, .slice_elements = kElements}};
  const auto result = simulate_jobs({one}, topology, {});
  const auto alone = simulate_step(one.plan, one.workload, topology, {});
  CHECK(time_of(result.jobs[0].steps, 0) == alone.estimate.step_time);
  // Once over the sender's link, not three times.
  CHECK(result.links.front().bytes == Bytes(4 * kElements));
}

TEST_CASE("each job has its own part of the timeline") {
  SimulationOptions options;
  options.record_timeline = true;
  const auto result = simulate_jobs(
      {job("a", 10_ms, {Rank(0), Rank(1)}), job("b", 10_ms, {Rank(2), Rank(3)}, 4_ms)}, dumbbell(2),
      options);
  for (const std::size_t i : {0U, 1U}) {
    REQUIRE(result.jobs[i].timeline.size() == 4);  // of two ranks: backward and one message
    for (const plan::TimelineEvent& event : result.jobs[i].timeline) {
      const bool is_first = event.track.find("rank 0") == 0 || event.track.find("rank 1") == 0;
      CHECK(is_first == (i == 0));
      CHECK(event.start >= (i == 0 ? Duration() : 4_ms));
    }
  }
}

TEST_CASE("jobs that cannot be are refused") {
  const Topology topology = dumbbell(2);
  const Job a = job("a", 1_ms, {Rank(0), Rank(1)});
  CHECK_THROWS_WITH(simulate_jobs({a, job("b", 1_ms, {Rank(1), Rank(2)})}, topology, {}),
                    Catch::Contains("job 'b'") && Catch::Contains("rank 1, which job 'a' has"));
  CHECK_THROWS_WITH(simulate_jobs({job("b", 1_ms, {Rank(2), Rank(2)})}, topology, {}),
                    Catch::Contains("rank 2, which it has"));
  CHECK_THROWS_AS(simulate_jobs({job("b", 1_ms, {Rank(2)})}, topology, {}), PlanError);
  CHECK_THROWS_AS(simulate_jobs({job("b", 1_ms, {Rank(2), Rank(4)})}, topology, {}), PlanError);
  Job other = a;
  other.workload.tensors[0].elements += 1;
  CHECK_THROWS_AS(simulate_jobs({other}, topology, {}), PlanError);
}

}  // namespace
}  // namespace rackrail::sim::jobs_test

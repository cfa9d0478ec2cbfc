// Asynchronous parameter servers on three ranks around a switch; rank 0 serves the only bucket.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "sim/simulator.hpp"
#include "tests/support/free_devices.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim::asynchronous_test {
namespace {

using topology::NodeKind;
using topology::Topology;

Topology star(std::size_t n) {
  Topology topology("star");
  const NodeId hub = topology.add_node({.name = "hub", .kind = NodeKind::kTor});
  for (std::size_t i = 0; i < n; ++i) {
    const std::string name = fmt::format("host{}", i);
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = hub, .bandwidth = Bandwidth(1'000'000'000)});
  }
  return topology;
}

// Forward 10 ms, backward 20 ms, then 1 MB to the server and back, then the optimiser 1 ms.
struct Job {
  Topology topology;
  plan::Workload workload;
  plan::Plan plan;
  SimulationOptions options;

  explicit Job(std::size_t n, const std::string& schedule = "parameter-server")
      : topology(star(n)) {
    workload.name = "job";
    workload.tensors = {{"all", 250'000, 20_ms}};
    workload.forward = 10_ms;
    workload.fixed_share = 0;
    workload.optimizer = 1_ms;
    topology::Router router(topology);
    plan::TransferGraph graph(schedule, plan::Collective::kAllReduce, n, {1});
    std::vector<TransferId> sums;
    for (std::size_t r = 1; r < n; ++r) {
      sums.push_back(graph.add_transfer({.src = Rank(r),
                                         .dst = Rank(0),
                                         .op = plan::TransferOp::kReduce,
                                         .route = graph.add_route(router.route(Rank(r), Rank(0)))},
                                        {}));
    }
    for (std::size_t r = 1; r < n; ++r) {
      graph.add_transfer({.src = Rank(0),
                          .dst = Rank(r),
                          .op = plan::TransferOp::kCopy,
                          .route = graph.add_route(router.route(Rank(0), Rank(r)))},
                         sums);
    }
    plan.name = "job";
    plan.rank_names.assign(n, "host");
    plan.workload_digest = workload.digest();
    plan.workload_name = workload.name;
    plan.schedules = {graph};
    plan.buckets = {{.tensors = {0}, .elements = 250'000, .slice_elements = 250'000}};
    plan.batch.local_batch.assign(n, 1);
    options.device_rates = test::free_devices();
    options.steps = 20;
  }
  AsynchronousResult run() const {
    return simulate_asynchronous(plan, workload, topology, options);
  }
};

double ms(Duration time) { return time.seconds() * 1e3; }

TEST_CASE("a worker alone pushes and pulls in every step, and nothing conflicts") {
  const AsynchronousResult result = Job(2).run();
  REQUIRE(result.step_times.size() == 2);
  CHECK(ms(result.step_times[0]) == Approx(31).epsilon(1e-3));
  CHECK(ms(result.step_times[1]) == Approx(33).epsilon(1e-3));
  CHECK(result.samples_per_s == Approx(1 / 0.031 + 1 / 0.033).epsilon(1e-3));
  CHECK(result.conflict_rate == 0);
  CHECK(result.staleness == 0);
}

TEST_CASE("workers in step share the server's link, and all updates but the first meet another") {
  const AsynchronousResult result = Job(3).run();
  // Two pushes share 1 GB/s, and so do two pulls: 2 ms each way.
  CHECK(ms(result.step_times[1]) == Approx(35).epsilon(1e-3));
  CHECK(ms(result.step_times[2]) == Approx(35).epsilon(1e-3));
  // They are applied one after the other: the second finds the first one's, and the first that of
  // the second from the step before, which was not there yet when its parameters were read.
  CHECK(result.conflict_rate == Approx(39.0 / 40));
  CHECK(result.staleness == Approx(39.0 / 40));
}

TEST_CASE("of updates at one time, as symmetric ranks make them, each meets the other's once") {
  Job job(2);
  topology::Router router(job.topology);
  plan::TransferGraph halves("parameter-server", plan::Collective::kAllReduce, 2, {1, 1});
  std::vector<TransferId> pushes;
  for (const auto op : {plan::TransferOp::kReduce, plan::TransferOp::kCopy}) {
    for (std::size_t server = 0; server < 2; ++server) {
      const Rank other(1 - server);
      const Rank src = op == plan::TransferOp::kReduce ? other : Rank(server);
      const Rank dst = op == plan::TransferOp::kReduce ? Rank(server) : other;
      const std::span<const TransferId> after =
          op == plan::TransferOp::kReduce ? std::span<const TransferId>()
                                          : std::span<const TransferId>(&pushes[server], 1);
      pushes.push_back(halves.add_transfer({.src = src,
                                            .dst = dst,
                                            .chunk_begin = static_cast<std::uint32_t>(server),
                                            .op = op,
                                            .route = halves.add_route(router.route(src, dst))},
                                           after));
    }
  }
  job.plan.schedules = {halves};
  const AsynchronousResult result = job.run();
  CHECK(result.step_times[0] == result.step_times[1]);
  CHECK(result.conflict_rate == Approx(38.0 / 40));  // all but the first ones
  CHECK(result.staleness == Approx(38.0 / 40));
}

TEST_CASE("a slow worker holds up nobody, and its updates are the stale ones") {
  Job job(3);
  job.options.disturbances.slow_devices = {{.ranks = {Rank(2)}, .factor = 4}};
  const AsynchronousResult result = job.run();
  CHECK(ms(result.step_times[1]) < 33.3);
  CHECK(ms(result.step_times[2]) == Approx(4 * 31 + 2).epsilon(0.01));
  // While the fast one works, 3.8 updates of it meet each of the slow one's, and one of the slow
  // one's meets each 3.8th of its own; what the slow one does alone after that does not count.
  CHECK(result.staleness == Approx((3.8 + 1) / 4.8).epsilon(0.15));
  CHECK(result.conflict_rate == Approx(2 / 4.8).epsilon(0.15));
  // So they do not depend on how many steps there are.
  job.options.steps = 200;
  const AsynchronousResult longer = job.run();
  CHECK(longer.staleness == Approx((3.8 + 1) / 4.8).epsilon(0.03));
  CHECK(longer.conflict_rate == Approx(2 / 4.8).epsilon(0.03));
  job.options.steps = 20;
  // A synchronous step would wait for it every time.
  CHECK(ms(simulate_step(job.plan, job.workload, job.topology, job.options).estimate.step_time) >
        4 * 31);
}

TEST_CASE("what a step costs does not grow with their number") {
  // Were all of them there from the beginning on, as many steps would take minutes.
  Job job(3);
  job.options.steps = 20'000;
  const AsynchronousResult result = job.run();
  CHECK(ms(result.step_times[1]) == Approx(35).epsilon(1e-3));
  CHECK(result.conflict_rate == Approx(1).epsilon(1e-3));  // all updates but the first
}

TEST_CASE(
    "what has all ranks in step does not take an asynchronous scenario for a synchronous one") {
  Job job(2);
  job.options.is_asynchronous = true;
  CHECK_THROWS_AS(simulate_step(job.plan, job.workload, job.topology, job.options), ConfigError);
  CHECK_THROWS_AS(simulate_collective(job.plan.schedules[0], 1000, 1000, job.topology, job.options),
                  ConfigError);
}

TEST_CASE("only parameter servers can be asynchronous") {
  CHECK_THROWS_AS(Job(3, "ring").run(), PlanError);
}

}  // namespace
}  // namespace rackrail::sim::asynchronous_test

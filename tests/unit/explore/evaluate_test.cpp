#include "explore/evaluate.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::explore::evaluate_test {
namespace {

// Two hosts on one cable of 1 GB/s, a model of one gradient of 10⁸ bytes.
Cell pair_cell() {
  Cell cell;
  cell.cluster = {"pair.yaml",
                  "name: pair\n"
                  "nodes:\n"
                  "  - { name: host0, kind: host, host: a, rank: 0 }\n"
                  "  - { name: host1, kind: host, host: b, rank: 1 }\n"
                  "links:\n"
                  "  - { from: host0, to: host1, bandwidth: 1 GB/s, latency: 1 us, kind: other,\n"
                  "      tier: cable, duplex: true }\n"};
  cell.workload = {"model.yaml",
                   "name: model\nprofiled_batch: 10\nforward: 20 ms\nfixed_share: 0\n"
                   "tensors: [[w, 25000000, 40 ms]]\n"};
  cell.plan = {{"error_budget", "0"}, {"local_batch", "20"}};
  return cell;
}

TEST_CASE("figures of a cell are those of the arithmetic") {
  Cell cell = pair_cell();
  cell.repetitions = 3;
  const Figures figures = evaluate(cell);
  // Twice the profiled batch: 2·(20 + 40) ms of compute, then 10⁸ B once each way over the cable at
  // 10⁹ B/s (2(n−1)/n = 1): 100 ms, and no step can be shorter.
  CHECK(figures.bound_s == Approx(0.220).epsilon(1e-6));
  CHECK(figures.step_time_s >= figures.bound_s);
  CHECK(figures.step_time_s < 0.220 * 1.1);
  CHECK(figures.gap == Approx(figures.step_time_s / figures.bound_s - 1));
  CHECK(figures.sync_share == Approx(1 - 0.120 / figures.step_time_s).epsilon(1e-6));
  CHECK(figures.global_batch == 40);
  CHECK(figures.throughput == Approx(40 / figures.step_time_s));
  CHECK(figures.goodput == Approx(figures.throughput));  // without a noise scale
  CHECK(figures.executions == 3);
  CHECK(figures.executions_equal);
}

TEST_CASE("a naive plan is no better, and a plan is given to who asks") {
  Cell cell = pair_cell();
  plan::Plan made;
  const double searched = evaluate(cell, &made).step_time_s;
  CHECK(made.rank_count() == 2);
  CHECK(made.prediction.step_time.seconds() == Approx(searched));
  cell.plan = {{"naive", "true"}, {"local_batch", "20"}};
  CHECK(evaluate(cell).step_time_s >= searched);
}

TEST_CASE("faults of a cell slow it down as they say, each execution with its own random numbers") {
  Cell cell = pair_cell();
  cell.repetitions = 3;
  const double quiet = evaluate(cell).step_time_s;
  // 120 ms of compute on the slower of two devices, once in four steps twice as long.
  cell.faults =
      Source{"faults.yaml", "steps: 4\nslow_devices: [{ ranks: [0], factor: 2, last_step: 0 }]\n"};
  const Figures slow = evaluate(cell);
  CHECK(slow.step_time_s == Approx(quiet + 0.120 / 4).epsilon(1e-3));
  CHECK(slow.executions_equal);

  cell.faults->text = "steps: 4\nslow_devices: [{ sigma: 0.2 }]\n";
  const Figures random = evaluate(cell);
  CHECK_FALSE(random.executions_equal);
  // The share is a median as well: of three executions it is not outside those of the first two.
  const auto share_of = [&](int executions) {
    cell.repetitions = executions;
    return evaluate(cell).sync_share;
  };
  const double first = share_of(1);
  const double second = 2 * share_of(2) - first;
  CHECK(first != second);
  CHECK(share_of(3) == random.sync_share);
  CHECK(random.sync_share >= std::min(first, second) - 1e-12);
  CHECK(random.sync_share <= std::max(first, second) + 1e-12);
  CHECK(random.step_time_s == evaluate(cell).step_time_s);
  cell.seed = 1;
  CHECK(random.step_time_s != evaluate(cell).step_time_s);
}

TEST_CASE("what is wrong with a cell is thrown") {
  Cell cell = pair_cell();
  cell.plan["codec"] = "gzip";
  CHECK_THROWS_AS(evaluate(cell), ConfigError);
  cell = pair_cell();
  cell.cluster.text += "  - { from: host0, to: nowhere, bandwidth: 1 GB/s, latency: 1 us }\n";
  CHECK_THROWS_AS(evaluate(cell), ConfigError);
}

TEST_CASE("objectives are the figures of their names") {
  Figures figures;
  figures.step_time_s = 1;
  figures.throughput = 2;
  figures.goodput = 3;
  figures.sync_share = 4;
  figures.gap = 5;
  CHECK(value_of(figures, objective_named("step_time_s")) == 1);
  CHECK(value_of(figures, objective_named("throughput")) == 2);
  CHECK(value_of(figures, objective_named("goodput")) == 3);
  CHECK(value_of(figures, objective_named("sync_share")) == 4);
  CHECK(value_of(figures, objective_named("gap")) == 5);
  CHECK_THROWS_AS(objective_named("speed"), ConfigError);
}

}  // namespace
}  // namespace rackrail::explore::evaluate_test

#include "explore/tune.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/verifier.hpp"
#include "plan/workload.hpp"
#include "tests/support/paths.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore::tune_test {
namespace {

Scenario read(const std::string& vary) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "scenario.yaml";
  write_file_atomically(path, "cluster: two-racks-40g\nworkload: resnet-50\n" + vary);
  return read_scenario(path);
}

Scenario shipped(const std::string& workload, double error_budget) {
  return tuning_scenario(cluster_source("two-racks-40g"), workload_source(workload), error_budget);
}

TEST_CASE("batches are searched around the profiled one, as far as memory reaches") {
  // V100 with 16 GB. BERT-large: (16 GB − 5.35 GB) / 1.132 GB = 9.4 samples, 4 profiled; ResNet-50:
  // (16 GB − 0.31 GB) / 88.8 MB = 176 samples, 32 profiled.
  CHECK(shipped("bert-large", 0.02).axes[1].values == std::vector<std::string>{"1", "2", "4", "8"});
  CHECK(shipped("resnet-50", 0.02).axes[1].values ==
        std::vector<std::string>{"8", "16", "32", "64", "128"});
  Source large = workload_source("bert-large");
  const std::string key = "\nmemory_fixed: ";
  const std::size_t at = large.text.find(key);
  REQUIRE(at != std::string::npos);
  large.text.insert(at + key.size(), "9");  // 95 GB
  CHECK_THROWS_AS(tuning_scenario(cluster_source("two-racks-40g"), large, 0), ConfigError);
}

TEST_CASE("no error budget above the given one is searched") {
  CHECK(shipped("resnet-50", 0).axes[2].values == std::vector<std::string>{"0"});
  CHECK(shipped("resnet-50", 0.0005).axes[2].values == std::vector<std::string>{"0", "0.0005"});
  CHECK(shipped("resnet-50", 0.02).axes[2].values ==
        std::vector<std::string>{"0", "0.001", "0.02"});
  CHECK(shipped("resnet-50", 0.5).axes[2].values ==
        std::vector<std::string>{"0", "0.001", "0.02", "0.5"});
}

TEST_CASE("buckets are searched between one mebibyte and the whole gradient") {
  const Scenario scenario = shipped("resnet-50", 0.02);
  REQUIRE(scenario.axes[0].range.has_value());
  CHECK(scenario.axes[0].range->at(0) == "1 MiB");
  CHECK(scenario.axes[0].range->at(1) == "98 MiB");  // 25,557,032 parameters: 97.5 MiB
  CHECK(Cells(scenario).size() == 50);
  CHECK(scenario.repetitions == 3);
}

TEST_CASE("the best of all settings is found, and its plan made", "[slow]") {
  const Scenario scenario = read(
      "plan: {error_budget: 0}\nobjective: throughput\n"
      "vary: {plan.bucket_size: [2 MiB, 25 MiB], plan.local_batch: [8, 16, 24]}\n");
  const TuneResult result = tune(scenario, {});
  // By hand: every cell evaluated by itself.
  const Cells cells(scenario);
  double best = evaluate([&] {
                  Cell alone = cells.at(0);
                  alone.plan = {{"error_budget", "0"}};
                  return alone;
                }())
                    .throughput;
  CHECK(result.planner_alone.figures->throughput == best);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const double value = evaluate(cells.at(i)).throughput;
    CHECK(result.trials.rows[i].figures->throughput == value);
    best = std::max(best, value);
  }
  CHECK(result.best.figures->throughput == best);
  const auto cluster = topology::read_cluster("two-racks-40g").topology;
  const auto workload = plan::read_workload("resnet-50", topology::configs_folder());
  CHECK(plan::verify(result.plan, &cluster, &workload).ok());
  CHECK(result.plan.prediction.step_time.seconds() == Approx(result.best.figures->step_time_s));
  CHECK(result.plan.prediction.baselines.contains("naive ring fp32 25 MiB"));
}

TEST_CASE("where no setting beats the planner, its own choice is the result") {
  const Scenario scenario =
      read("vary: {plan.naive: [true]}\nplan: {local_batch: 8, error_budget: 0}\n");
  const TuneResult result = tune(scenario, {});
  CHECK(result.planner_alone_is_best());
  CHECK(result.best.varied.empty());
  CHECK(result.trials.rows.size() == 1);
  CHECK(result.plan.prediction.step_time.seconds() <= result.trials.rows[0].figures->step_time_s);
}

TEST_CASE("what goes wrong goes wrong for the planner's own choice too") {
  Scenario scenario = read("vary: {plan.naive: [true]}\nplan: {local_batch: 8, error_budget: 0}\n");
  const TuneResult usual = tune(scenario, {});
  scenario.faults = Source{"slow.yaml", "slow_devices: [{ factor: 3 }]\n"};
  const TuneResult slow = tune(scenario, {});
  CHECK(slow.planner_alone.figures->step_time_s > 2 * usual.planner_alone.figures->step_time_s);
}

TEST_CASE("only options of the planner can be tuned, and failures are told") {
  CHECK_THROWS_AS(tune(read("vary: {cluster.racks.hosts: [2, 3]}\n"), {}), ConfigError);
  // No V100 holds so many samples; the planner alone is asked for them too.
  const Scenario hopeless = read("vary: {plan.codec: [none]}\nplan: {local_batch: 100000}\n");
  try {
    tune(hopeless, {});
    FAIL("it was tuned");
  } catch (const ConfigError& e) {
    CHECK(std::string(e.what()).find("memory") != std::string::npos);
  }
}

TEST_CASE("tuning is the same on any number of threads") {
  Scenario scenario = shipped("resnet-50", 0);
  scenario.trials = 4;
  SweepOptions two;
  two.threads = 2;
  SweepOptions one;
  one.threads = 1;
  TuneResult a = tune(scenario, one);
  TuneResult b = tune(scenario, two);
  a.best.seconds = 0;
  b.best.seconds = 0;
  CHECK(to_line(a.best) == to_line(b.best));
}

}  // namespace
}  // namespace rackrail::explore::tune_test

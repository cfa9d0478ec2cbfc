#include "explore/throughput_model.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::explore::throughput_model_test {
namespace {

/// T = 0.3·C + max-like sum of 0.7·C and S, with constants by hand: nothing of the fit is used.
double made_seconds(const MeasuredPlacement& placement, double batch) {
  const double compute = 0.02 + 0.004 * batch;
  if (placement.replicas == 1) {
    return compute;
  }
  const double per_node =
      static_cast<double>(placement.replicas) / static_cast<double>(placement.nodes);
  double sync = 0.01 + 0.002 * static_cast<double>(placement.replicas - 2);
  if (placement.nodes > 1) {
    sync = (placement.nodes == 2 ? 0.2 : 0.12) * std::pow(per_node, 0.4);
  }
  const double later = 0.7 * compute;
  return 0.3 * compute + std::cbrt(later * later * later + sync * sync * sync);
}

std::vector<MeasuredStep> made_steps(double noise, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0, noise);
  std::vector<MeasuredStep> steps;
  for (const std::int64_t nodes : {1, 2, 4}) {
    for (std::int64_t per_node = 1; per_node <= 4; ++per_node) {
      for (const std::int64_t batch : {4, 8, 16, 32, 64}) {
        const MeasuredPlacement placement{
            std::string(static_cast<std::size_t>(nodes), static_cast<char>('0' + per_node)), nodes,
            nodes * per_node, per_node};
        const double seconds = made_seconds(placement, static_cast<double>(batch));
        steps.push_back(
            {placement, batch, Duration::from_seconds(seconds * std::exp(normal(generator)))});
      }
    }
  }
  return steps;
}

std::filesystem::path pollux(const char* model) {
  const char* shared = std::getenv("RACKRAIL_SHARED");
  const std::filesystem::path folder =
      shared != nullptr ? std::filesystem::path(shared) : test::source_dir() / ".." / "shared";
  return folder / "measured" / "pollux" / model;
}

std::vector<MeasuredStep> measured(const char* model) {
  std::vector<MeasuredStep> steps = read_measured_steps(pollux(model) / "placements.csv");
  for (MeasuredStep& step : read_measured_steps(pollux(model) / "scalability.csv")) {
    steps.push_back(std::move(step));
  }
  return steps;
}

TEST_CASE("a step time of the model's own form is found again, without and with noise") {
  const auto exact = ThroughputModel::fit(made_steps(0, 1));
  const MeasuredPlacement unseen{"3", 1, 3, 3};
  CHECK(prediction_errors(exact, made_steps(0, 1)).worst < 0.005);
  CHECK(exact.step_time(unseen, 24).seconds() == Approx(made_seconds(unseen, 24)).epsilon(0.01));
  for (const unsigned seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    const auto noisy = ThroughputModel::fit(made_steps(0.05, seed));
    // Nearer to the truth than the rows it was fitted to, which are off by 0.05·√(2/π) on average.
    CHECK(prediction_errors(noisy, made_steps(0, seed)).mean < 0.85 * 0.0399);
  }
}

TEST_CASE("compute constants come out as they were put in") {
  const auto model = ThroughputModel::fit(made_steps(0, 1));
  CHECK(model.compute_base().seconds() == Approx(0.02).epsilon(0.03));
  CHECK(model.compute_per_sample().seconds() == Approx(0.004).epsilon(0.03));
  CHECK(model.compute_time({"1", 1, 1, 1}, 16).seconds() == Approx(0.084).epsilon(0.03));
}

TEST_CASE("single outliers do not rule the fit") {
  std::vector<MeasuredStep> steps = made_steps(0, 1);
  for (std::size_t i = 3; i < steps.size(); i += 10) {
    steps[i].step_time = 3 * steps[i].step_time;
  }
  CHECK(prediction_errors(ThroughputModel::fit(steps), made_steps(0, 1)).median < 0.03);
}

TEST_CASE("what a placement has that no other has is learnt from its own rows only") {
  std::vector<MeasuredStep> steps = made_steps(0, 1);
  std::vector<MeasuredStep> held_out;
  for (std::size_t i = 0; i < steps.size();) {
    MeasuredStep& step = steps[i];
    if (step.placement.name == "2222") {
      step.step_time = scaled(step.step_time, 1.2);
      if (step.local_batch == 8) {
        held_out.push_back(step);
        steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
    }
    ++i;
  }
  REQUIRE(held_out.size() == 1);
  const auto model = ThroughputModel::fit(steps);
  CHECK(prediction_errors(model, held_out).worst < 0.08);
  MeasuredPlacement stranger = held_out.front().placement;
  stranger.name = "another of that shape";
  const double made = made_seconds(stranger, 8);
  CHECK(model.step_time(stranger, 8).seconds() < 1.07 * made);
  CHECK(model.step_time(held_out.front().placement, 8) > model.step_time(stranger, 8));
}

TEST_CASE("the same rows give the same model, bit by bit") {
  const auto steps = made_steps(0.1, 7);
  CHECK(ThroughputModel::fit(steps).parameters() == ThroughputModel::fit(steps).parameters());
}

TEST_CASE("too few rows are refused") {
  std::vector<MeasuredStep> few = made_steps(0, 1);
  few.resize(5);
  CHECK_THROWS_AS(ThroughputModel::fit(few), ConfigError);
  CHECK_THROWS_AS(ThroughputModel::fit(few, ThroughputForm::kSevenParameters), ConfigError);
  CHECK_THROWS_AS(prediction_errors(ThroughputModel::fit(made_steps(0, 1)), {}), ConfigError);
}

TEST_CASE("held-out rows and placements are a fifth, chosen without looking at times") {
  std::vector<MeasuredStep> steps;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::string name = std::to_string(i / 5);
    steps.push_back({{name, 1, 1, 1}, 1 + i % 5, Duration::from_seconds(1 + 0.1 * (i % 7))});
  }
  const auto names = [](const std::vector<MeasuredStep>& some) {
    std::set<std::string> found;
    for (const MeasuredStep& step : some) {
      found.insert(step.placement.name);
    }
    return found;
  };
  for (const HoldOut what : {HoldOut::kRows, HoldOut::kPlacements}) {
    const auto divided = divide(steps, what);
    CHECK(divided.known.size() + divided.held_out.size() == steps.size());
    CHECK(divided.held_out.size() > 120);
    CHECK(divided.held_out.size() < 280);
    std::vector<MeasuredStep> others = steps;
    for (MeasuredStep& step : others) {
      step.step_time = Duration::from_seconds(5 - step.step_time.seconds());
    }
    CHECK(names(divide(others, what).held_out) == names(divided.held_out));
  }
  const auto places = divide(steps, HoldOut::kPlacements);
  CHECK(names(places.known).size() + names(places.held_out).size() == 200);
  CHECK(names(divide(steps, HoldOut::kRows).known).size() == 200);
}

TEST_CASE("measured steps of Pollux's models are predicted where they were held out") {
  for (const char* model : {"bert", "cifar10"}) {
    if (!std::filesystem::exists(pollux(model))) {
      RACKRAIL_SKIP("no measurements in " + pollux(model).string());
    }
    CAPTURE(model);
    const auto steps = measured(model);
    const auto rows = divide(steps, HoldOut::kRows);
    const auto fitted = ThroughputModel::fit(rows.known);
    const auto row_errors = prediction_errors(fitted, rows.held_out);
    const auto seven = prediction_errors(
        ThroughputModel::fit(rows.known, ThroughputForm::kSevenParameters), rows.held_out);
    const auto places = divide(steps, HoldOut::kPlacements);
    const auto place_errors =
        prediction_errors(ThroughputModel::fit(places.known), places.held_out);
    CHECK(row_errors.mean < 0.06);
    CHECK(row_errors.mean < seven.mean);
    CHECK(place_errors.mean < 0.12);
  }
}

TEST_CASE("files of measured steps are read, or refused with their line") {
  const test::TemporaryDirectory folder;
  const auto read = [&](const char* text) {
    const auto path = folder.path() / "steps.csv";
    write_file_atomically(path, text);
    return read_measured_steps(path);
  };
  const auto steps = read("placement,local_bsz,step_time\n1142,8, 0.5\n\n1,4,0.25\n");
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].placement.nodes == 4);
  CHECK(steps[0].placement.replicas == 8);
  CHECK(steps[0].placement.largest_node == 4);
  CHECK(steps[0].step_time == Duration::from_seconds(0.5));
  CHECK(read("num_nodes,num_replicas,local_bsz,step_time\n6,7,4,1\n")[0].placement.largest_node ==
        2);
  using Catch::Contains;
  CHECK_THROWS_WITH(read("placement,local_bsz,step_time\n1,4,-1\n"),
                    Contains("line 2, step_time") && Contains("'-1'"));
  CHECK_THROWS_WITH(read("placement,local_bsz,step_time\n10,4,1\n"), Contains("'10'"));
  CHECK_THROWS_WITH(read("placement,local_bsz\n1,4\n"), Contains("step_time"));
  CHECK_THROWS_WITH(read("placement,local_bsz,step_time\n1,4\n"), Contains("2 cells"));
  CHECK_THROWS_WITH(read("num_nodes,num_replicas,local_bsz,step_time\n6,5,4,1\n"), Contains("'5'"));
  CHECK_THROWS_AS(read(""), ConfigError);
}

}  // namespace
}  // namespace rackrail::explore::throughput_model_test

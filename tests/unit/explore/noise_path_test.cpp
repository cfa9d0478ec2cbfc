#include "explore/noise_path.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::explore::noise_path_test {
namespace {

TEST_CASE("noise scales between points, runs and beyond them") {
  const NoisePath one({{64, {{100, 100, 200}, {300, 300, 800}}}});
  CHECK(one.at(50, 64) == Approx(200));
  CHECK(one.at(200, 64) == Approx(400));  // half way in the logarithm
  CHECK(one.at(900, 64) == Approx(800));
  CHECK(one.at(200, 4096) == Approx(400));
  const NoisePath two({{64, {{100, 100, 200}}}, {256, {{100, 40, 400}}}});
  CHECK(two.at(100, 128) == Approx(200 * std::sqrt(2)));
  CHECK(two.at(100, 1024) == Approx(800));
}

TEST_CASE("how far a path is from a run is the median of its points") {
  const NoisePath path({{64, {{100, 100, 200}, {300, 300, 800}}}});
  CHECK(path.median_log_error({64, {{100, 100, 200}, {200, 200, 400}}}) == Approx(0).margin(1e-12));
  // Off by factors of 2, 1/4 and 8.
  const NoiseRun odd{64, {{100, 100, 100}, {200, 200, 1600}, {300, 300, 100}}};
  CHECK(path.median_log_error(odd) == Approx(std::log(4)));
  const NoiseRun even{64, {{100, 100, 100}, {300, 300, 100}}};
  CHECK(path.median_log_error(even) == Approx(std::log(4)));
}

TEST_CASE("steps are the integral of progress over gain") {
  const NoisePath flat({{64, {{1000, 1000, 300}}}});
  const double gain = (300.0 / 64 + 1) / (300.0 / 512 + 1);
  CHECK(flat.steps(0, 1000, 64, 512) == Approx(1000 / gain));
  CHECK(flat.steps(200, 700, 64, 64) == Approx(500));
  // N = 64·e^{p/1000}: with B₀ = 64 and B large, 1/gain is 1/(e^{p/1000} + 1), whose integral from
  // 0 to 1000 is 1000·(1 − ln((e + 1)/2)).
  std::vector<NoisePoint> points;
  for (int i = 1; i <= 1001; ++i) {
    points.push_back({i - 0.5, static_cast<double>(i), 64 * std::exp((i - 0.5) / 1000)});
  }
  const NoisePath rising({{64, points}});
  CHECK(rising.steps(0, 1000, 64, 1e12) ==
        Approx(1000 * (1 - std::log((std::exp(1.0) + 1) / 2))).epsilon(1e-3));
}

TEST_CASE("paths that mean nothing are refused") {
  using Runs = std::vector<NoiseRun>;
  const Runs bad[] = {Runs{}, Runs{NoiseRun{64, {}}}, Runs{NoiseRun{0, {{100, 100, 5}}}},
                      Runs{NoiseRun{64, {{100, 100, 0}}}},
                      Runs{NoiseRun{64, {{100, 100, 1}, {100, 200, 1}}}}};
  for (const Runs& runs : bad) {
    CHECK_THROWS_AS(NoisePath(runs), ConfigError);
  }
}

TEST_CASE("files of runs are read, or refused") {
  const test::TemporaryDirectory folder;
  const auto file = [&](const char* name, const char* rows) {
    const auto path = folder.path() / name;
    write_file_atomically(path,
                          std::string("progress,iteration,metric,grad_sqr,grad_var\n") + rows);
    return path;
  };
  const auto large = file("run-64.csv", "10,4,0.5,2,6\n20,8,0.6,1,4\n");
  const auto base = file("run-16.csv", "10,10,0.5,2,2\n");
  const auto runs = read_noise_runs({large, base});
  REQUIRE(runs.size() == 2);
  CHECK(runs[0].batch == 16);
  CHECK(runs[0].points[0].noise_scale == 16);
  CHECK(runs[1].points[1].noise_scale == 64);
  CHECK_THROWS_AS(read_noise_runs({file("nothing.csv", "")}), ConfigError);
  CHECK_THROWS_AS(read_noise_runs({file("empty-16.csv", "")}), ConfigError);
  CHECK_THROWS_AS(read_noise_runs({base, file("other-16.csv", "10,10,0.5,2,2\n")}), ConfigError);
  CHECK_THROWS_WITH(read_noise_runs({file("back-8.csv", "10,4,0.5,2,6\n9,8,0.6,1,4\n")}),
                    Catch::Contains("line 3"));
}

TEST_CASE("a batch's steps are predicted from the noise of the other batches") {
  const char* shared = std::getenv("RACKRAIL_SHARED");
  const std::filesystem::path folder =
      (shared != nullptr ? std::filesystem::path(shared) : test::source_dir() / ".." / "shared") /
      "measured" / "pollux";
  if (!std::filesystem::exists(folder)) {
    RACKRAIL_SKIP("no measurements in " + folder.string());
  }
  for (const char* model : {"bert", "cifar10"}) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder / model)) {
      if (entry.path().filename().string().starts_with("validation-")) {
        paths.push_back(entry.path());
      }
    }
    const std::vector<NoiseRun> runs = read_noise_runs(paths);
    REQUIRE(runs.size() == 6);
    const double base = runs.front().batch;
    for (std::size_t i = 1; i < runs.size(); ++i) {
      CAPTURE(model, runs[i].batch);
      std::vector<NoiseRun> others = runs;
      others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
      const NoisePoint& end = runs[i].points.back();
      CHECK(NoisePath(others).steps(0, end.progress, base, runs[i].batch) ==
            Approx(end.steps).epsilon(0.1));
      CHECK(NoisePath({runs[i]}).steps(0, end.progress, base, runs[i].batch) ==
            Approx(end.steps).epsilon(0.13));
    }
  }
}

}  // namespace
}  // namespace rackrail::explore::noise_path_test

#include "explore/sweep.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "base/error.hpp"
#include "base/file.hpp"
#include "explore/parallel.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::explore::sweep_test {
namespace {

// Twelve cells whose figures are a function of their values; batch 3 of fp16 fails.
class Study {
 public:
  Study() {
    const auto path = folder_.path() / "scenario.yaml";
    write_file_atomically(path,
                          "cluster: two-racks-40g\nworkload: resnet-50\nvary:\n"
                          "  plan.codec: [none, fp16]\n  plan.local_batch: [1, 2, 3, 4, 5, 6]\n");
    scenario_ = read_scenario(path);
    cells_.emplace(scenario_);
  }

  std::filesystem::path file(const char* name = "results.jsonl") const {
    return folder_.path() / name;
  }
  std::string text(const char* name = "results.jsonl") const { return read_file(file(name)); }
  const Cells& cells() const { return *cells_; }
  const Objective& objective() const { return *scenario_.objective; }

  SweepResult run(std::size_t threads = 1, Share share = {}, bool retry = false) {
    ran.clear();
    SweepOptions options;
    options.results = file();
    options.threads = threads;
    options.retry_failed = retry;
    options.share = share;
    options.evaluate = [this](const Cell& cell) {
      {
        const std::lock_guard lock(mutex_);
        ++ran[cell.number];
      }
      const double batch = std::stod(cell.plan.at("local_batch"));
      if (fails && cell.plan.at("codec") == "fp16" && batch == 3) {
        throw std::runtime_error("too large");
      }
      Figures figures;
      figures.step_time_s = (cell.plan.at("codec") == "fp16" ? 1 : 2) * (10 + batch);
      figures.throughput = batch / figures.step_time_s;
      return figures;
    };
    return run_sweep(cells(), options);
  }

  std::map<std::size_t, int> ran;  ///< cell → how often
  bool fails = true;

 private:
  test::TemporaryDirectory folder_;
  Scenario scenario_;
  std::optional<Cells> cells_;
  std::mutex mutex_;
};

// Lines without the wall time, which is no result.
std::vector<std::string> lines_of(const std::vector<Row>& rows) {
  std::vector<std::string> lines;
  for (Row row : rows) {
    row.seconds = 0;
    lines.push_back(to_line(row));
  }
  return lines;
}

TEST_CASE("every cell is a row, and a failing one says why") {
  Study study;
  const SweepResult result = study.run();
  CHECK(result.ran == 12);
  CHECK(result.failed == 1);
  REQUIRE(result.rows.size() == 12);
  for (std::size_t i = 0; i < 12; ++i) {
    CHECK(result.rows[i].cell == i);
    CHECK(result.rows[i].figures.has_value() == (i != 8));
    CHECK(study.ran[i] == 1);
  }
  CHECK(result.rows[8].error == "too large");
  CHECK(lines_of(read_rows(study.file()).rows) == lines_of(result.rows));
  // fp16 with batch 1: 11 s; the objective is the step time.
  REQUIRE(best_row(result.rows, study.objective()) != nullptr);
  CHECK(best_row(result.rows, study.objective())->cell == 6);
  CHECK(best_row(result.rows, objective_named("throughput"))->cell == 11);
}

TEST_CASE("the results are the same on any number of threads") {
  Study alone;
  const auto expected = lines_of(alone.run(1).rows);
  for (const std::size_t threads : {2U, 5U, 40U}) {
    Study study;
    INFO(threads);
    CHECK(lines_of(study.run(threads).rows) == expected);
    CHECK(lines_of(read_rows(study.file()).rows) == expected);
  }
}

TEST_CASE("a sweep goes on wherever it was cut off, and runs no cell twice") {
  Study study;
  study.run();
  const std::string whole = study.text();
  const auto expected = lines_of(read_rows(study.file()).rows);
  std::vector<std::size_t> ends{0};
  for (std::size_t at = 0; (at = whole.find('\n', at)) != std::string::npos;) {
    ends.push_back(++at);
  }
  for (std::size_t size = 0; size < whole.size(); size += 61) {
    write_file_atomically(study.file(), whole.substr(0, size));
    const auto complete = static_cast<std::size_t>(
        std::count_if(ends.begin(), ends.end(), [&](std::size_t e) { return e > 0 && e <= size; }));
    INFO("cut after " << size << " bytes, " << complete << " whole lines");
    const SweepResult result = study.run(2);
    CHECK(result.ran == 12 - complete);
    CHECK(study.ran.size() == result.ran);
    CHECK(lines_of(result.rows) == expected);
    CHECK(lines_of(read_rows(study.file()).rows) == expected);
  }
}

TEST_CASE("finished cells are not run again, failed ones only when asked") {
  Study study;
  study.run();
  CHECK(study.run().ran == 0);
  CHECK(study.run().failed == 1);
  study.fails = false;
  const SweepResult again = study.run(1, {}, true);
  CHECK(again.ran == 1);
  CHECK(again.failed == 0);
  CHECK(read_rows(study.file()).rows.size() == 12);
}

TEST_CASE("processes share a sweep, and one more run joins their files") {
  Study alone;
  const auto expected = lines_of(alone.run().rows);
  Study study;
  std::set<std::size_t> seen;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const SweepResult part = study.run(2, {rank, 3});
    CHECK(part.rows.size() == 4);
    for (const auto& [cell, times] : study.ran) {
      CHECK(times == 1);
      CHECK(seen.insert(cell).second);
    }
  }
  CHECK(seen.size() == 12);
  CHECK(read_rows(study.file("results.rank1.jsonl")).rows.size() == 4);
  CHECK_FALSE(std::filesystem::exists(study.file()));
  const SweepResult joined = study.run();
  CHECK(joined.ran == 0);
  CHECK(lines_of(joined.rows) == expected);
  // Another number of processes finds what the first ones did.
  CHECK(study.run(1, {1, 2}).ran == 0);
}

TEST_CASE("results of other cells in the file are kept") {
  Study study;
  Row other{
      .cell = 0, .digest = "other", .varied = {}, .figures = Figures{}, .error = {}, .seconds = 1};
  write_rows(study.file(), {&other, 1});
  const SweepResult result = study.run();
  CHECK(result.kept == 1);
  CHECK(result.rows.size() == 12);
  const RowFile file = read_rows(study.file());
  REQUIRE(file.rows.size() == 13);
  CHECK(file.rows.front().digest == "other");
}

TEST_CASE("progress counts every cell, those finished before too") {
  Study study;
  std::vector<std::size_t> done;
  SweepOptions options;
  options.results = study.file();
  options.evaluate = [](const Cell&) { return Figures{}; };
  options.progress = [&](std::size_t now, std::size_t all) {
    CHECK(all == 12);
    done.push_back(now);
  };
  run_sweep(study.cells(), options);
  REQUIRE(done.size() == 13);
  for (std::size_t i = 0; i < done.size(); ++i) {
    CHECK(done[i] == i);
  }
}

TEST_CASE("results that cannot be written are an error before any cell runs") {
  Study study;
  SweepOptions options;
  options.results = "/proc/no/such/results.jsonl";
  options.evaluate = [](const Cell&) -> Figures { throw std::logic_error("it ran"); };
  CHECK_THROWS_AS(run_sweep(study.cells(), options), ConfigError);
}

TEST_CASE("work is done once each, and the first failure is what is thrown") {
  for (const std::size_t threads : {1U, 3U}) {
    std::vector<int> times(100);
    for_each_index(times.size(), threads, [&](std::size_t i) { ++times[i]; });
    CHECK(times == std::vector<int>(100, 1));
    CHECK_THROWS_WITH(for_each_index(100, threads,
                                     [](std::size_t i) {
                                       if (i == 40) {
                                         throw std::runtime_error("forty");
                                       }
                                     }),
                      "forty");
  }
  CHECK(thread_count(4, 2) == 2);
  CHECK(thread_count(4, 0) == 1);
  CHECK(thread_count(0, 1000) >= 1);
}

}  // namespace
}  // namespace rackrail::explore::sweep_test

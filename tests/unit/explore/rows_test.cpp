#include "explore/rows.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::explore::rows_test {
namespace {

Row good_row() {
  Row row{.cell = 3,
          .digest = "abc",
          .varied = {{"cluster.b", "10 Gbit/s"}, {"plan.a", "say \"x\", y"}},
          .figures = Figures{},
          .error = {},
          .seconds = 0.25};
  row.figures->step_time_s = 0.1 + 0.2;  // needs all its digits
  row.figures->bound_s = 0.25;
  row.figures->gap = 0.2;
  row.figures->sync_share = 0.125;
  row.figures->throughput = 400;
  row.figures->goodput = 300;
  row.figures->global_batch = 128;
  row.figures->executions = 3;
  row.figures->executions_equal = false;
  return row;
}

Row failed_row() {
  return {.cell = 4,
          .digest = "def",
          .varied = {{"cluster.b", "none"}, {"plan.a", "1"}},
          .figures = std::nullopt,
          .error = "it failed, \"badly\"",
          .seconds = 0.5};
}

TEST_CASE("rows are read as they were written") {
  const auto read = parse_line(to_line(good_row()));
  REQUIRE(read.has_value());
  CHECK(to_line(*read) == to_line(good_row()));
  REQUIRE(read->figures.has_value());
  CHECK(read->figures->step_time_s == good_row().figures->step_time_s);
  CHECK(read->figures->executions_equal == false);
  CHECK(read->varied == good_row().varied);
  const auto failed = parse_line(to_line(failed_row()));
  REQUIRE(failed.has_value());
  CHECK_FALSE(failed->figures.has_value());
  CHECK(failed->error == failed_row().error);
}

TEST_CASE("what is no row is none, wherever it is cut") {
  const std::string line = to_line(good_row());
  for (std::size_t size = 0; size < line.size(); ++size) {
    INFO(size);
    CHECK_FALSE(parse_line(line.substr(0, size)).has_value());
  }
  CHECK_FALSE(parse_line("{}").has_value());
  CHECK_FALSE(parse_line("[1]").has_value());
}

TEST_CASE("an error that is no UTF-8 is written all the same") {
  Row row = failed_row();
  row.error = "caf\xe9";
  const auto read = parse_line(to_line(row));
  REQUIRE(read.has_value());
  CHECK(read->error.starts_with("caf"));
}

TEST_CASE("a table has a line per row, with quotes where a comma needs them") {
  const Row rows[] = {good_row(), failed_row()};
  CHECK(to_csv(rows) ==
        "cell,cluster.b,plan.a,step_time_s,bound_s,gap,sync_share,throughput,goodput,"
        "global_batch,executions,error\n"
        "3,10 Gbit/s,\"say \"\"x\"\", y\",0.30000000000000004,0.25,0.2,0.125,400,300,128,3,\n"
        "4,none,1,,,,,,,,,\"it failed, \"\"badly\"\"\"\n");
}

TEST_CASE("a half-written last line is left out, any other that is no row is an error") {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "rows.jsonl";
  CHECK(read_rows(path).rows.empty());
  const std::string first = to_line(good_row()) + "\n";
  const std::string second = to_line(failed_row());
  for (std::size_t size = 1; size <= second.size(); ++size) {
    write_file_atomically(path, first + second.substr(0, size));
    const RowFile file = read_rows(path);
    INFO(size);
    CHECK(file.is_damaged);
    CHECK(file.rows.size() == 1);
  }
  write_file_atomically(path, first + second + "\n");
  CHECK_FALSE(read_rows(path).is_damaged);
  CHECK(read_rows(path).rows.size() == 2);
  write_file_atomically(path, first + "half\n" + second + "\n");
  try {
    read_rows(path);
    FAIL("it was read");
  } catch (const ConfigError& e) {
    CHECK(e.context().file == path.string());
    CHECK(e.context().where == "line 2");
  }
}

}  // namespace
}  // namespace rackrail::explore::rows_test

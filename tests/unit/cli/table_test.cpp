#include "cli/table.hpp"

#include <catch2/catch.hpp>

namespace rackrail::cli::table_test {
namespace {

TEST_CASE("columns are as wide as their widest cell; numbers stand to the right") {
  Table table({{"name"}, {"bytes", Align::kRight}});
  CHECK(table.empty());
  table.add_row({"a", "1"});
  table.add_row({"longer", "123456"});
  CHECK_FALSE(table.empty());
  CHECK(table.to_string() ==
        "name     bytes\n"
        "------  ------\n"
        "a            1\n"
        "longer  123456\n");
}

TEST_CASE("rows that are printed as they come stand under their titles") {
  const RowByRow table({{"name", 6}, {"codec", 2}, {"bytes", 6, Align::kRight}});
  CHECK(table.head() ==
        "name    codec   bytes\n"
        "------  -----  ------\n");
  CHECK(table.row({"a", "fp16", "1"}) == "a       fp16        1\n");
  CHECK(table.row({"much longer", "x", "1"}) == "much longer  x           1\n");
}

TEST_CASE("no line of a table ends in blanks") {
  Table table({{"left"}, {"also left"}});
  table.add_row({"x", ""});
  table.add_row({"", "y"});
  const std::string text = table.to_string();
  CHECK(text.find(" \n") == std::string::npos);
  CHECK(text.back() == '\n');
}

TEST_CASE("width counts characters, not bytes") {
  Table table({{"route"}, {"time", Align::kRight}});
  table.add_row({"tor0→core", "1 µs"});
  table.add_row({"123456789", "22 us"});
  CHECK(table.to_string() ==
        "route       time\n"
        "---------  -----\n"
        "tor0→core   1 µs\n"
        "123456789  22 us\n");
}

TEST_CASE("a table without rows is its head") {
  CHECK(Table({{"one"}, {"two", Align::kRight}}).to_string() == "one  two\n---  ---\n");
}

TEST_CASE("a row of another length is refused instead of printed askew") {
  Table table({{"one"}, {"two"}});
  table.add_row({"alone"});
  CHECK_THROWS(table.to_string());
}

TEST_CASE("shares are printed in percent with one decimal") {
  CHECK(percent(0) == "0.0 %");
  CHECK(percent(0.1234) == "12.3 %");
  CHECK(percent(1) == "100.0 %");
  CHECK(percent(-0.05) == "-5.0 %");
}

}  // namespace
}  // namespace rackrail::cli::table_test

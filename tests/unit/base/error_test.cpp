#include "base/error.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace rackrail::error_test {

using namespace rackrail;

TEST_CASE("an error context becomes one line from the parts that are known") {
  CHECK(describe({"a.yaml", "line 3", "'4'", "a size"}) ==
        "a.yaml: line 3: found '4', expected a size");
  CHECK(describe({"a.yaml", "", "'4'", ""}) == "a.yaml: found '4'");
  CHECK(describe({"", "line 3", "'4'", "a size"}) == "line 3: found '4', expected a size");
  CHECK(describe({"", "", "'4'", "a size"}) == "found '4', expected a size");
  CHECK(describe({"a.yaml", "", "", "a size"}) == "a.yaml: expected a size");
  CHECK(describe({"", "", "", "a size"}) == "expected a size");
  CHECK(describe({"a.yaml", "line 3", "", ""}) == "a.yaml: line 3");
}

TEST_CASE("an error is one line of bounded length, whatever was found") {
  CHECK(describe({"f", "", "a\nb\tc\x7f", ""}) == "f: found a\\nb\\x09c\\x7f");
  const std::string message = describe({"f", "", std::string(10'000, 'x'), "less"});
  CHECK(message.size() < 500);
  CHECK_THAT(message, Catch::EndsWith("x..., expected less"));
  // Cut between characters, not inside one.
  std::string umlauts;
  for (int i = 0; i < 1000; ++i) umlauts += "\u00e4";
  CHECK_THAT(describe({"f", "", "x" + umlauts, ""}), Catch::EndsWith("\u00e4..."));
}

TEST_CASE("bad input is told from a broken environment") {
  CHECK(ConfigError("x").is_bad_input());
  CHECK(PlanError("x").is_bad_input());
  CHECK_FALSE(OverflowError("x").is_bad_input());
  CHECK_FALSE(SimulationError("x").is_bad_input());
  CHECK_FALSE(PeerLostError("x").is_bad_input());
}

TEST_CASE("an error keeps its parts for programs") {
  const ConfigError error(ErrorContext{"f", "w", "x", "y"});
  CHECK(error.context().file == "f");
  CHECK(error.context().where == "w");
  CHECK(error.context().found == "x");
  CHECK(error.context().expected == "y");
  CHECK(std::string(error.what()) == "f: w: found x, expected y");
}

TEST_CASE("a lost peer is a failure of the runtime") {
  CHECK_THROWS_AS(throw PeerLostError("rank 3"), RuntimeFailure);
}

}  // namespace rackrail::error_test

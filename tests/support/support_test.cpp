#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"

namespace rackrail::support_test {

namespace fs = std::filesystem;
using rackrail::test::TemporaryDirectory;

TEST_CASE("source_dir is the root of the source tree") {
  CHECK(fs::exists(rackrail::test::source_dir() / "tests/support/support_test.cpp"));
}

TEST_CASE("a temporary directory is empty, writable and goes with its owner") {
  fs::path path;
  {
    const TemporaryDirectory directory;
    path = directory.path();
    REQUIRE(fs::is_empty(path));
    std::ofstream(path / "file") << "text";
    CHECK(fs::file_size(path / "file") == 4);
  }
  CHECK_FALSE(fs::exists(path));
}

// Hidden: run_tests_test.py runs these by name and looks at how they are counted.
TEST_CASE("counted as skipped", "[.run-tests]") { RACKRAIL_SKIP("no such device"); }

TEST_CASE("counted as skipped once, with both reasons", "[.run-tests]") {
  SECTION("can run") { CHECK(true); }
  SECTION("one") { RACKRAIL_SKIP("first reason"); }
  SECTION("another") { RACKRAIL_SKIP("second\nreason"); }
  SECTION("and again") { RACKRAIL_SKIP("first reason"); }
}

TEST_CASE("counted as failed although it skips", "[.run-tests]") {
  CHECK(false);
  RACKRAIL_SKIP("too late");
}

TEST_CASE("counted as failed when it crashes", "[.run-tests]") { std::abort(); }

}  // namespace rackrail::support_test

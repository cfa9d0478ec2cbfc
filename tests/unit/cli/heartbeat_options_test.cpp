#include "cli/heartbeat_options.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::cli::heartbeat_options_test {
namespace {

TEST_CASE("a silent worker is noticed sooner where the job goes on without it") {
  const HeartbeatOptions usual;
  CHECK(usual.heartbeats(false).period == 1_s);
  CHECK(usual.heartbeats(false).timeout == 3_s);
  CHECK(usual.heartbeats(true).period == 200_ms);
  CHECK(usual.heartbeats(true).timeout == 1200_ms);
}

TEST_CASE("the usual period is a third of a shorter silence that is given alone, down to 0.5 s") {
  const auto period = [](const char* timeout) {
    return HeartbeatOptions{.period = "", .timeout = timeout}.heartbeats(false).period;
  };
  CHECK(period("3 s") == 1_s);
  CHECK(period("2.4 s") == 800_ms);
  CHECK(period("1 s") == 500_ms);
  CHECK_THROWS_AS(period("0.9 s"), ConfigError);
}

TEST_CASE("the silence follows a period that is given, and may be given alone") {
  CHECK(HeartbeatOptions{.period = "0.5 s", .timeout = ""}.heartbeats(false).timeout == 3_s);
  CHECK(HeartbeatOptions{.period = "0.5 s", .timeout = "1 s"}.heartbeats(true).timeout == 1_s);
  CHECK(HeartbeatOptions{.period = "", .timeout = "9 s"}.heartbeats(false).period == 1_s);
  CHECK_THROWS_AS((HeartbeatOptions{.period = "1 s", .timeout = "1.9 s"}.heartbeats(false)),
                  ConfigError);
  CHECK_THROWS_AS((HeartbeatOptions{.period = "49 ms", .timeout = ""}.heartbeats(false)),
                  ConfigError);
}

}  // namespace
}  // namespace rackrail::cli::heartbeat_options_test

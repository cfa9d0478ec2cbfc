#include "runtime/coordinator/host_port.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::runtime::host_port_test {

TEST_CASE("host:port is read and written") {
  CHECK(parse_host_port("node-1.cluster:4000", "--coordinator") ==
        HostPort{"node-1.cluster", 4000});
  CHECK(parse_host_port("[::1]:80", "--coordinator") == HostPort{"::1", 80});
  CHECK(to_string(HostPort{"node-1", 4000}) == "node-1:4000");
  CHECK(to_string(HostPort{"fe80::2", 1}) == "[fe80::2]:1");
}

TEST_CASE("what is no host:port is refused with place, found and expected") {
  for (const char* text : {"", "host", "host:", ":80", "host:65536", "host:-1", "host:8o", "::1:80",
                           "[::1]", "ho st:80", "[::1:80", "host:80:"}) {
    CAPTURE(text);
    try {
      parse_host_port(text, "RACKRAIL_COORDINATOR", "<environment>");
      FAIL("accepted");
    } catch (const ConfigError& error) {
      CHECK(error.context().file == "<environment>");
      CHECK(error.context().where == "RACKRAIL_COORDINATOR");
      CHECK_THAT(error.what(), Catch::Contains("expected host:port"));
    }
  }
}

TEST_CASE("loopback addresses are told from others") {
  CHECK(is_loopback("127.0.0.1"));
  CHECK(is_loopback("127.1.2.3"));
  CHECK(is_loopback("localhost"));
  CHECK(is_loopback("::1"));
  CHECK_FALSE(is_loopback("0.0.0.0"));
  CHECK_FALSE(is_loopback("127.example.org"));
  CHECK_FALSE(is_loopback("10.0.0.1"));
  CHECK_FALSE(is_loopback("node-1"));
}

}  // namespace rackrail::runtime::host_port_test

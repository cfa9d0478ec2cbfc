#include "runtime/coordinator/own_addresses.hpp"

#include <catch2/catch.hpp>

#include "runtime/coordinator/local_socket.hpp"

namespace rackrail::runtime::own_addresses_test {

TEST_CASE("a name is listened for at all addresses, as it may lead to loopback here alone") {
  CHECK(everywhere({"node0", 5}) == HostPort{"0.0.0.0", 5});
  CHECK(everywhere({"10.0.0.1", 5}) == HostPort{"10.0.0.1", 5});
  CHECK(everywhere({"fd00::1", 5}) == HostPort{"fd00::1", 5});
  CHECK(everywhere({"localhost", 5}) == HostPort{"localhost", 5});
  CHECK(everywhere(local_meeting("job")) == local_meeting("job"));
}

TEST_CASE("this process finds by loopback what listens everywhere") {
  CHECK(own_address({"0.0.0.0", 5}) == HostPort{"127.0.0.1", 5});
  CHECK(own_address({"::", 5}) == HostPort{"::1", 5});
  CHECK(own_address({"10.0.0.1", 5}) == HostPort{"10.0.0.1", 5});
}

TEST_CASE("others are told numbers of this host with the port, never what means all of them") {
  CHECK(addresses_for_others({"10.0.0.1", 5}) == "10.0.0.1:5");
  const std::string all = addresses_for_others({"0.0.0.0", 5});
  CHECK_THAT(all, Catch::EndsWith(":5") && !Catch::Contains("0.0.0.0:"));
}

}  // namespace rackrail::runtime::own_addresses_test

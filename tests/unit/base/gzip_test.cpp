#include "base/gzip.hpp"

#include <catch2/catch.hpp>

#include <string>

#include "base/error.hpp"

namespace rackrail::gzip_test {
namespace {

using Catch::Contains;

/// printf 'hello\n' | gzip -n
const std::string kHello(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00"
    "\x20\x30\x3a\x36\x06\x00\x00\x00",
    26);

TEST_CASE("gzip files of one or several members are unpacked") {
  REQUIRE(is_gzip(kHello));
  CHECK_FALSE(is_gzip("hello"));
  CHECK(gunzip(kHello, "f") == "hello\n");
  CHECK(gunzip(kHello + kHello, "f") == "hello\nhello\n");
  CHECK(gunzip(kHello + std::string(5, '\0'), "f") == "hello\n");  // padding
}

TEST_CASE("a damaged or too large gzip file is refused with its name") {
  for (std::size_t end = 2; end < kHello.size(); ++end) {
    CAPTURE(end);
    CHECK_THROWS_WITH(gunzip(kHello.substr(0, end), "f"), Contains("f") && Contains("too early"));
  }
  std::string damaged = kHello;
  damaged[22] = 'x';
  CHECK_THROWS_WITH(gunzip(damaged, "f"), Contains("damaged"));
  CHECK_THROWS_WITH(gunzip(kHello, "f", Bytes(5)), Contains("more than 5 B"));
}

}  // namespace
}  // namespace rackrail::gzip_test

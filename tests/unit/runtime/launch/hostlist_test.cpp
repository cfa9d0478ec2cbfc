#include "runtime/launch/hostlist.hpp"

#include <catch2/catch.hpp>

#include "base/error.hpp"

namespace rackrail::runtime::hostlist_test {
namespace {

using Hosts = std::vector<std::string>;

Hosts expand(std::string_view text, std::size_t limit = 100) {
  return expand_hostlist(text, "SLURM_NODELIST", limit);
}

}  // namespace

TEST_CASE("hostlists expand as Slurm writes them") {
  CHECK(expand("node7") == Hosts{"node7"});
  CHECK(expand("a,b,c") == Hosts{"a", "b", "c"});
  CHECK(expand("node[1-3]") == Hosts{"node1", "node2", "node3"});
  CHECK(expand("node[08-11]") == Hosts{"node08", "node09", "node10", "node11"});
  CHECK(expand("node[098-101]") == Hosts{"node098", "node099", "node100", "node101"});
  CHECK(expand("n[1-2,5,7-8]x,login") == Hosts{"n1x", "n2x", "n5x", "n7x", "n8x", "login"});
  CHECK(expand("r[1-2]n[1-2]") == Hosts{"r1n1", "r1n2", "r2n1", "r2n2"});
}

TEST_CASE("only as many hosts are made as are asked for") {
  CHECK(expand("node[0-999999999]", 2) == Hosts{"node0", "node1"});
  CHECK(expand("a[0-9]b[0-999999999],c", 1) == Hosts{"a0b0"});
}

TEST_CASE("what is no hostlist is refused") {
  for (const char* text : {"", ",", "a,", ",a", "n[1-3", "n1-3]", "n[]", "n[1-]", "n[-3]", "n[3-1]",
                           "n[a-c]", "n[1,,2]", "n[1[2]]", "n[1-2-3]", "n[99999999999]"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(expand(text), ConfigError);
  }
}

}  // namespace rackrail::runtime::hostlist_test

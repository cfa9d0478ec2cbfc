#include <catch2/catch.hpp>

#include "tests/unit/topology/readers/network_cases.hpp"

namespace rackrail::graphml_test {

using namespace rackrail;
using namespace rackrail::topology;
using namespace rackrail::topology::test;

namespace {

std::string graph(const std::string& inside, const std::string& direction = "undirected") {
  return "<?xml version=\"1.0\"?>\n<graphml xmlns=\"http://graphml.graphdrawing.org/xmlns\">\n"
         "<key id=\"d0\" for=\"edge\" attr.name=\"Bandwidth\"/>"
         "<key id=\"d1\" for=\"edge\" attr.name=\"latency_us\"/>"
         "<key id=\"d2\" for=\"node\" attr.name=\"type\"/>"
         "<key id=\"d3\" for=\"node\" attr.name=\"label\"/>"
         "<graph edgedefault=\"" +
         direction + "\">" + inside + "</graph></graphml>";
}

constexpr const char* kStar =
    "<node id=\"0\"><data key=\"d2\">server</data><data key=\"d3\">a</data></node>"
    "<node id=\"1\"><data key=\"d2\">host</data></node>"
    "<node id=\"2\"><data key=\"d2\">switch</data><data key=\"d3\">hub</data></node>"
    "<edge source=\"0\" target=\"2\"><data key=\"d0\">100 Gbit/s</data><data key=\"d1\">2</data>"
    "</edge><edge source=\"1\" target=\"2\"><data key=\"d0\">25 Gbit/s</data></edge>";

}  // namespace

TEST_CASE("GraphML: kinds, rates and latencies by the names of attributes") {
  const ReadResult result = read_network(graph(kStar));
  const Topology& t = result.topology;
  CHECK(t.rank_count() == 2);
  CHECK(rate_between(t, "a", "hub") == 100_Gbps);
  CHECK(rate_between(t, "hub", "1") == 25_Gbps);
  CHECK(t.link(LinkId(0)).latency == 2_us);
  CHECK(has_note(result, "attributes taken: 'Bandwidth' for bandwidth, 'latency_us' for latency"));
  CHECK(has_note(result, "230 ns assumed as latency of 1 edge"));
}

TEST_CASE("GraphML: without hosts all vertices are ranks, edges may have one direction") {
  const std::string ring =
      "<node id=\"x\"/><node id=\"y\"/><edge source=\"x\" target=\"y\"/>"
      "<edge source=\"y\" target=\"x\"/><edge source=\"x\" target=\"x\"/>";
  const ReadResult result = read_network(graph(ring, "directed"), "", {{"link", 10_Gbps}});
  CHECK(result.topology.rank_count() == 2);
  CHECK(result.topology.link_count() == 2);
  CHECK(has_note(result, "no vertex is called a GPU or host"));
  CHECK(has_note(result, "1 edge from a vertex to itself left out"));
}

TEST_CASE("GraphML: a graph called directed whose edges stand once has cables") {
  const std::string path =
      "<node id=\"x\"/><node id=\"y\"/><node id=\"z\"/><edge source=\"x\" target=\"y\"/>"
      "<edge source=\"y\" target=\"z\"/>";
  const ReadResult result = read_network(graph(path, "directed"), "", {{"link", 10_Gbps}});
  CHECK(result.topology.link_count() == 4);
  CHECK(has_note(result, "each is taken for both directions"));
  const std::string ring = path + "<edge source=\"z\" target=\"x\"/>";
  CHECK(read_network(graph(ring, "directed"), "", {{"link", 10_Gbps}}).topology.link_count() == 3);
}

TEST_CASE("GraphML: what is wrong is named") {
  CHECK(error_of_network(graph("<node id=\"x\"/><node id=\"y\"/><edge source=\"x\" target=\"y\"/>"))
            .find("edge 1: found no bandwidth, expected an attribute 'bandwidth'") !=
        std::string::npos);
  CHECK(error_of_network(graph("<node id=\"x\"/><edge source=\"x\" target=\"z\"/>"))
            .find("found 'x' to 'z'") != std::string::npos);
  CHECK(error_of_network(graph("<node id=\"x\"/><node id=\"x\"/>")).find("the id 'x'") !=
        std::string::npos);
  std::string bare = graph(kStar);
  bare.replace(bare.find("25 Gbit/s"), 9, "25");
  CHECK(error_of_network(bare).find("edge 2, Bandwidth") != std::string::npos);
  CHECK(error_of_network("<graphml><graph>").find("expected XML") != std::string::npos);
}

}  // namespace rackrail::graphml_test

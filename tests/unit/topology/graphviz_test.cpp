#include <catch2/catch.hpp>

#include "topology/reader.hpp"

namespace rackrail::topology {

TEST_CASE("a drawing has each cable once, an arrow where directions differ", "[topology]") {
  const Topology cluster = read_cluster_text("small.csv",
                                             "source,target,bandwidth,latency,directed\n"
                                             "gpu0,\"a \"\"b\"\"\",25 GB/s,1 us,false\n"
                                             "gpu1,\"a \"\"b\"\"\",25 GB/s,1 us,true\n"
                                             "\"a \"\"b\"\"\",gpu1,12 GB/s,1 us,true\n")
                               .topology;
  CHECK(to_graphviz(cluster) ==
        "digraph \"small\" {\n"
        "  node [fontsize=10]; edge [fontsize=8];\n"
        "  \"gpu0\" [shape=box];\n"
        "  \"a \\\"b\\\"\" [shape=hexagon];\n"
        "  \"gpu1\" [shape=box];\n"
        "  \"gpu0\" -> \"a \\\"b\\\"\" [label=\"25.0 GB/s\", dir=none];\n"
        "  \"gpu1\" -> \"a \\\"b\\\"\" [label=\"25.0 GB/s\"];\n"
        "  \"a \\\"b\\\"\" -> \"gpu1\" [label=\"12.0 GB/s\"];\n"
        "}\n");
}

}  // namespace rackrail::topology

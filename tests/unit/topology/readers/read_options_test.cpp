// What the user says beside a file, whatever its format.
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::read_options_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;

namespace {

constexpr const char* kEdges =
    "source,target,bandwidth,latency,kind\n"
    "host0,tor0,10 GB/s,2 us,host-link\n"
    "host1,tor1,10 GB/s,2 us,host-link\n"
    "tor0,tor1,10 GB/s,3 us,uplink\n";

ReadResult read_with(const std::string& tier, Bandwidth rate) {
  ReadOptions options;
  options.tier_bandwidths.emplace(tier, rate);
  return read_cluster_text("edges.csv", kEdges, options);
}

}  // namespace

TEST_CASE("a tier's bandwidth replaces that of its links, both ways, and of no others") {
  const Topology t = read_with("uplink", 25_GBps).topology;
  std::size_t changed = 0;
  for (std::size_t i = 0; i < t.link_count(); ++i) {
    const Link& link = t.link(LinkId(i));
    const bool is_uplink = link.tier == "uplink";
    changed += is_uplink ? 1 : 0;
    CHECK(link.bandwidth == (is_uplink ? 25_GBps : 10_GBps));
    CHECK(link.latency == (is_uplink ? 3_us : 2_us));
  }
  CHECK(changed == 2);
}

TEST_CASE("a tier that is not there is refused with those that are") {
  CHECK(error_of([] { read_with("spine", 25_GBps); }) ==
        "<command line>: --tier-bandwidth: found tier 'spine', expected a tier of this cluster: "
        "host-link, uplink");
}

TEST_CASE("text about a machine that is no cluster is told with what to give instead") {
  const auto read = [](const std::string& text) {
    return error_of([&] { read_cluster_text("some.txt", text); });
  };
  CHECK_THAT(read("host:1:1 [0] NCCL INFO Bootstrap : Using eth0\n"),
             Catch::Contains("found a log of NCCL") && Catch::Contains("NCCL_TOPO_DUMP_FILE"));
  CHECK_THAT(read("NVIDIA-SMI 535.54 Driver Version: 535.54\n"),
             Catch::Contains("nvidia-smi topo -m"));
}

}  // namespace rackrail::read_options_test

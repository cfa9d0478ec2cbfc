// What holds of every real file that describes one machine, whatever wrote it.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::machine_files_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::TextFile;
namespace fs = std::filesystem;

namespace {

/// Files of the formats, by name of the format.
std::vector<fs::path> files_below(const fs::path& folder, const std::set<std::string>& names) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file() && (names.empty() || names.contains(name))) {
      files.push_back(entry.path());
    }
  }
  return files;
}

void check_machine(const fs::path& file, const ReadOptions& options) {
  CAPTURE(file);
  const ReadResult result = read_cluster(file.string(), options);
  const Topology& t = result.topology;
  CHECK(t.rank_count() >= 1);
  CHECK(t.rank_count() <= 16);
  CHECK(ranks_by_host(t).size() == 1);
  for (const std::string& note : result.notes) {
    CHECK(note.find('\n') == std::string::npos);
    CHECK(std::count(result.notes.begin(), result.notes.end(), note) == 1);
  }
  Router router(t);
  for (std::size_t a = 0; a < t.rank_count(); ++a) {
    for (std::size_t b = 0; b < t.rank_count(); ++b) {
      CHECK((a == b || !router.route(Rank(a), Rank(b)).empty()));
    }
  }
  CHECK(read_cluster_text("flat.yaml", to_flat_yaml(t)).topology.digest() == t.digest());
}

}  // namespace

TEST_CASE("every real file of a machine gives one host whose GPUs reach each other") {
  const fs::path inputs = topology::test::shared_inputs();
  if (!fs::is_directory(inputs)) RACKRAIL_SKIP("no " + inputs.string());
  std::vector<fs::path> files = files_below(inputs / "nccl-topology", {});
  std::erase_if(files, [](const fs::path& f) { return f.filename() == "g5.48xl-topo.xml"; });
  for (const fs::path& file :
       files_below(inputs / "fabric" / "text",
                   {"b200-a4-gke-dranet.txt", "a100-nvlinkbridge-8gpu-nonic.txt"})) {
    files.push_back(file);
  }
  REQUIRE(files.size() >= 7);
  for (const fs::path& file : files) {
    check_machine(file, {});
    // The class that the user names counts for all of them.
    ReadOptions options;
    options.device_class = "H200";
    check_machine(file, options);
    const Topology named = read_cluster(file.string(), options).topology;
    CHECK(named.node(named.node_of(Rank(0))).device_class == "H200");
  }
}

TEST_CASE("with an overlay, every real file of a machine makes a cluster") {
  const fs::path inputs = topology::test::shared_inputs();
  if (!fs::is_directory(inputs)) RACKRAIL_SKIP("no " + inputs.string());
  const TextFile overlay("overlay.yaml",
                         "hosts: 2\nnics: 2\nnic: { bandwidth: 100 Gbit/s, latency: 1 us }\n");
  const TextFile own_nics("own.yaml", "hosts: 2\nnic: { bandwidth: 100 Gbit/s, latency: 1 us }\n");
  for (const char* name :
       {"nccl-topology/ndv4-topo.xml", "nccl-topology/ndv5-topo.xml",
        "nccl-topology/p4d-24xl-topo.xml", "nccl-topology/rccl-topo_8p_90a.xml",
        "fabric/text/b200-a4-gke-dranet.txt", "fabric/text/a100-nvlinkbridge-8gpu-nonic.txt"}) {
    CAPTURE(name);
    ReadOptions options;
    const bool has_nics = std::string(name).find("nonic") == std::string::npos;
    options.overlay = has_nics ? own_nics.path() : overlay.path();
    options.tier_bandwidths.emplace("pcie", 7_GBps);
    const Topology t = read_cluster((inputs / name).string(), options).topology;
    CHECK(t.rank_count() == 16);
    CHECK(ranks_by_host(t).size() == 2);
    Router router(t);
    CHECK(route_bandwidth(t, router.route(Rank(0), Rank(15))) == 7_GBps);
  }
}

}  // namespace rackrail::machine_files_test

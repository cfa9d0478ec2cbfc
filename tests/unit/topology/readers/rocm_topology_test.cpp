// `rocm-smi --showtopo` and `amd-smi topology`.
#include <fmt/format.h>
#include <catch2/catch.hpp>

#include <functional>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::rocm_topology_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::has_note;
using topology::test::rate_between;
using topology::test::TextFile;

namespace {

using Cell = std::function<std::string(int, int)>;

std::string table(const std::string& title, int gpus, const Cell& cell) {
  std::string text = "==================== " + title + " ====================\n      ";
  for (int i = 0; i < gpus; ++i) text += fmt::format(" GPU{}         ", i);
  for (int i = 0; i < gpus; ++i) {
    text += fmt::format("\nGPU{}  ", i);
    for (int j = 0; j < gpus; ++j) text += fmt::format(" {:12}", i == j ? "0" : cell(i, j));
  }
  return text + "\n\n";
}

std::string numa_nodes(int gpus, const std::function<int(int)>& node) {
  std::string text = "================ Numa Nodes ================\n";
  for (int i = 0; i < gpus; ++i) {
    text += fmt::format("GPU[{}]\t\t: (Topology) Numa Node: {}\n", i, node(i));
    text += fmt::format("GPU[{}]\t\t: (Topology) Numa Affinity: {}\n", i, node(i));
  }
  return text + "================ End of ROCm SMI Log ================\n";
}

/// Two sockets with a hive of half the GPUs each.
std::string hives(int gpus) {
  const auto same = [gpus](int i, int j) { return i / (gpus / 2) == j / (gpus / 2); };
  return "=========== ROCm System Management Interface ===========\n" +
         table("Weight between two GPUs", gpus,
               [&](int i, int j) { return same(i, j) ? "15" : "72"; }) +
         table("Hops between two GPUs", gpus,
               [&](int i, int j) { return same(i, j) ? "1" : "3"; }) +
         table("Link Type between two GPUs", gpus,
               [&](int i, int j) { return same(i, j) ? "XGMI" : "PCIE"; }) +
         numa_nodes(gpus, [gpus](int i) { return i / (gpus / 2); });
}

ReadResult read_text(const std::string& text, const std::string& overlay = "",
                     const std::string& device_class = "") {
  const TextFile extra("overlay.yaml", overlay);
  ReadOptions options;
  if (!overlay.empty()) options.overlay = extra.path();
  options.device_class = device_class;
  return read_cluster_text("topo.txt", text, options);
}

std::string class_of(const ReadResult& result) {
  return result.topology.node(result.topology.node_of(Rank(0))).device_class;
}

}  // namespace

TEST_CASE("tables of rocm-smi give sockets and xGMI") {
  const ReadResult result = read_text(hives(8));
  const Topology& t = result.topology;
  CHECK(t.rank_count() == 8);
  CHECK(rate_between(t, "gpu0.0", "gpu0.3") == 24_GBps);
  CHECK(rate_between(t, "gpu0.0", "gpu0.4") == Bandwidth(0));
  CHECK(rate_between(t, "gpu0.4", "cpu0.1") == 24_GBps);
  CHECK(class_of(result) == "MI100");
  CHECK(has_note(result, "one xGMI link between two GPUs assumed"));
  CHECK(has_note(result, "MI100 assumed"));
}

TEST_CASE("eight GPUs with xGMI each to each are MI300X") {
  const ReadResult result =
      read_text(table("Link Type between two GPUs", 8, [](int, int) { return "XGMI"; }), "", "");
  CHECK(class_of(result) == "MI300X");
  CHECK(rate_between(result.topology, "gpu0.0", "gpu0.7") == 48_GBps);
  CHECK(rate_between(result.topology, "gpu0.0", "cpu0.0") == 48_GBps);
}

TEST_CASE("xGMI over another GPU is no link") {
  const Cell ring = [](int i, int j) { return (i - j + 4) % 4 == 2 ? "30" : "15"; };
  const ReadResult result =
      read_text(table("Weight between two GPUs", 4, ring) +
                table("Link Type between two GPUs", 4, [](int, int) { return "XGMI"; }));
  CHECK(class_of(result) == "MI250X");
  CHECK(rate_between(result.topology, "gpu0.0", "gpu0.1") == 36_GBps);
  CHECK(rate_between(result.topology, "gpu0.0", "gpu0.2") == Bandwidth(0));
  CHECK(has_note(result, "weight above 15 passes another GPU"));
}

TEST_CASE("PCIe alone: sockets by hops where NUMA nodes are missing") {
  const ReadResult result = read_text(
      table("Hops between two GPUs", 4, [](int i, int j) { return i / 2 == j / 2 ? "2" : "3"; }) +
      table("Link Type between two GPUs", 4, [](int, int) { return "PCIE"; }));
  CHECK(rate_between(result.topology, "gpu0.1", "cpu0.0") > Bandwidth(0));
  CHECK(rate_between(result.topology, "gpu0.2", "cpu0.1") > Bandwidth(0));
  CHECK(has_note(result, "no links between GPUs"));
}

TEST_CASE("amd-smi names GPUs by bus id and tells bandwidths") {
  const ReadResult result = read_text(
      "WEIGHT TABLE:\n             0000:0c:00.0 0000:22:00.0 \n"
      "0000:0c:00.0 0            15           \n0000:22:00.0 15           0            \n\n"
      "LINK TYPE TABLE:\n             0000:0c:00.0 0000:22:00.0 \n"
      "0000:0c:00.0 SELF         XGMI         \n0000:22:00.0 XGMI         SELF         \n\n"
      "NUMA BW TABLE:\n             0000:0c:00.0 0000:22:00.0 \n"
      "0000:0c:00.0 N/A          50000-50000  \n0000:22:00.0 50000-50000  N/A          \n");
  CHECK(result.topology.rank_count() == 2);
  CHECK(rate_between(result.topology, "gpu0.0", "gpu0.1") == 50_GBps);
}

TEST_CASE("the user, or the text around the tables, names the class") {
  CHECK(class_of(read_text("GPU[0]: Card Series: AMD Instinct MI210\n" + hives(4))) == "MI210");
  const ReadResult chosen = read_text(hives(4),
                                      "nics: 2\nhosts: 2\nnic: {bandwidth: 100 Gbit/s, "
                                      "latency: 1 us}\n",
                                      "MI250X");
  CHECK(class_of(chosen) == "MI250X");
  CHECK(rate_between(chosen.topology, "gpu0.0", "gpu0.1") == 36_GBps);
  CHECK(rate_between(chosen.topology, "nic1.1", "cpu1.1") > Bandwidth(0));
  CHECK(chosen.topology.rank_count() == 8);
}

TEST_CASE("tables that do not fit are refused with their line") {
  const std::string good = hives(4);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from, text.find("Link Type"));
    return text.replace(at, from.size(), to);
  };
  const auto read = [](const std::string& text) { return error_of([&] { read_text(text); }); };
  CHECK_THAT(read(with("XGMI", "PCIE")),
             Catch::Contains("XGMI in row GPU1, column GPU0, but PCIE in row GPU0, column GPU1"));
  CHECK_THAT(read(with("XGMI", "WIFI")), Catch::Contains("'WIFI' in row GPU0, column GPU1"));
  CHECK_THAT(read(with("XGMI", "")), Catch::Contains("found 3 cells in row GPU0"));
  CHECK_THAT(read(with("\nGPU3", "\nGPU9")), Catch::Contains("row 'GPU9'"));
  CHECK_THAT(read(with("\nGPU3", "\nGPU2")), Catch::Contains("row GPU2 twice"));
  CHECK_THAT(read("== Link Type between two GPUs ==\n"), Catch::Contains("no table of link types"));
}

}  // namespace rackrail::rocm_topology_test

// `nvidia-smi topo -m`: every form in which the matrix is pasted, and the machine behind it.
#include <catch2/catch.hpp>
#include <string>

#include "base/file.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::topo_matrix_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::has_note;
using topology::test::rate_between;
using topology::test::TextFile;
namespace fs = std::filesystem;

namespace {

/// Two sockets with a PCIe switch each: two GPUs with a bridge of NVLinks, and a NIC.
constexpr const char* kFour =
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV12\tSYS\tSYS\tPIX\tSYS\t0-31\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tSYS\tPIX\tSYS\t0-31\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tNV12\tSYS\tPIX\t32-63\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNV12\t X \tSYS\tPIX\t32-63\t1\t\tN/A\n"
    "NIC0\tPIX\tPIX\tSYS\tSYS\t X \tSYS\t\t\t\n"
    "NIC1\tSYS\tSYS\tPIX\tPIX\tSYS\t X \t\t\t\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_bond_1\n";

ReadResult read_text(const std::string& text, const std::string& overlay = "",
                     const std::string& device_class = "") {
  const TextFile extra("overlay.yaml", overlay);
  ReadOptions options;
  if (!overlay.empty()) options.overlay = extra.path();
  options.device_class = device_class;
  return read_cluster_text("topo.txt", text, options);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string edges_of(const ReadResult& result) { return to_edge_list(result.topology); }

std::string class_of(const ReadResult& result) {
  return result.topology.node(result.topology.node_of(Rank(0))).device_class;
}

}  // namespace

TEST_CASE("a matrix gives sockets, PCIe switches, NICs and NVLinks") {
  const ReadResult result = read_text(kFour);
  const Topology& t = result.topology;
  CHECK(t.rank_count() == 4);
  CHECK(ranks_by_host(t).size() == 1);
  CHECK(rate_between(t, "gpu0.0", "gpu0.1") == 240_GBps);
  CHECK(rate_between(t, "gpu0.1", "gpu0.2") == Bandwidth(0));
  CHECK(rate_between(t, "gpu0.0", "pcie0.0") == 24_GBps);
  CHECK(rate_between(t, "nic0.0", "pcie0.0") == 24_GBps);
  CHECK(rate_between(t, "nic0.1", "pcie0.1") == 24_GBps);
  CHECK(rate_between(t, "pcie0.1", "cpu0.1") == 24_GBps);
  CHECK(rate_between(t, "cpu0.0", "cpu0.1") == 10_GBps);
  CHECK(class_of(result) == "A100");
  CHECK(has_note(result, "A100 assumed, the likeliest with NV12"));
  CHECK(has_note(result, "20.0 GB/s in each direction"));
  CHECK(has_note(result, "PCIe 4.0 x16"));
  CHECK(has_note(result, "10 GB/s assumed between sockets"));
  CHECK(result.notes.size() == 4);
}

TEST_CASE("a matrix is the same however it was pasted") {
  const std::string expected = edges_of(read_text(kFour));
  const std::string four = kFour;
  const std::string matrix = four.substr(0, four.find("\nLegend"));
  const auto [what, text] = GENERATE_COPY(table<std::string, std::string>(
      {{"runs of spaces", replaced(four, "\t", "      ")},
       {"an underlined heading",
        "\x1b[4m" + replaced(four, "GPU NUMA ID\n", "GPU NUMA ID\x1b[0m\n")},
       {"an underline that lost its escape character",
        "[4m" + replaced(four, "GPU NUMA ID\n", "GPU NUMA ID[0m\n")},
       {"an underline in caret notation",
        "^[[4m" + replaced(four, "GPU NUMA ID\n", "GPU NUMA ID^[[0m\n")},
       {"a quoted mail", "> " + replaced(four, "\n", "\n> ")},
       {"ends of lines of Windows", replaced(four, "\n", "\r\n")},
       {"a byte order mark", "\xef\xbb\xbf" + four},
       {"no-break spaces", replaced(four, "\t", "\xc2\xa0")},
       {"fused cells", replaced(replaced(four, "SYS\tSYS", "SYSSYS"), "PIX\tPIX", "PIXPIX")},
       {"a fused heading", replaced(four, "Affinity\tNUMA", "AffinityNUMA")},
       {"a column fused with the affinity", replaced(four, "PIX\t32-63", "PIX32-63")},
       {"double tabs", replaced(four, "\t", "\t\t")},
       {"a prompt before and after",
        "me@host:~$ nvidia-smi topo -m\n" + matrix + "me@host:~$ exit\n"},
       {"Markdown", "Topology:\n```\n" + replaced(four, "\t", " | ") + "```\n"},
       {"no last columns", replaced(matrix, "\tGPU NUMA ID", "")},
       {"rows broken in two",
        replaced(replaced(four, "SYS\tPIX", "SYS\nPIX"), "GPU3\tNIC0", "GPU3\nNIC0")},
       {"no rows of NICs", four.substr(0, four.find("NIC0\tPIX"))},
       {"all on one line", replaced(matrix, "\n", " ")}}));
  CAPTURE(what);
  CHECK(edges_of(read_text(text)) == expected);
}

TEST_CASE("a matrix of GPUs alone, without affinity, is one machine") {
  const ReadResult result =
      read_text("\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV2\tSYS\nGPU1\tNV2\tX\nGPU2\tSYS\tSYS\tX\n");
  CHECK(result.topology.rank_count() == 3);
  CHECK(class_of(result) == "V100");
  CHECK(rate_between(result.topology, "gpu0.0", "gpu0.1") == 40_GBps);
  const ReadResult one = read_text("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-31\tN/A\n");
  CHECK(one.topology.rank_count() == 1);
}

TEST_CASE("more NVLinks to all peers than a GPU has are those to NVSwitches") {
  const auto all_to_all = [](std::size_t gpus, const std::string& links) {
    std::string text;
    for (std::size_t i = 0; i < gpus; ++i) text += "\tGPU" + std::to_string(i);
    for (std::size_t i = 0; i < gpus; ++i) {
      text += "\nGPU" + std::to_string(i);
      for (std::size_t j = 0; j < gpus; ++j) text += i == j ? "\tX" : "\t" + links;
      text += "\t0-31\t" + std::to_string(2 * i / gpus);
    }
    return text + "\n";
  };
  const ReadResult box = read_text(all_to_all(8, "NV18"));
  CHECK(class_of(box) == "H100");
  CHECK(rate_between(box.topology, "gpu0.7", "nvswitch0") == Bandwidth(18 * 20'600'000'000));
  CHECK(rate_between(box.topology, "gpu0.7", "cpu0.1") == 48_GBps);
  CHECK(has_note(box, "NV18 between 8 GPUs is over NVSwitches"));
  CHECK(rate_between(read_text(all_to_all(8, "NV18"), "", "B200").topology, "gpu0.0",
                     "nvswitch0") == Bandwidth(18 * 40'100'000'000));
  CHECK(rate_between(read_text(all_to_all(4, "NV12")).topology, "gpu0.0", "nvswitch0") == 240_GBps);
  CHECK(class_of(read_text(all_to_all(16, "NV6"))) == "V100");
  // Boards of 4 join each pair directly.
  const ReadResult board = read_text(all_to_all(4, "NV6"));
  CHECK(class_of(board) == "H100");
  CHECK(rate_between(board.topology, "gpu0.0", "gpu0.3") == Bandwidth(6 * 20'600'000'000));
  CHECK_FALSE(board.topology.find_node("nvswitch0"));
}

TEST_CASE("the class of the GPUs: named by the user, else by the text around, else the likeliest") {
  const std::string report = "GPU models and configuration:\nGPU 0: NVIDIA H100 80GB HBM3\n" +
                             std::string(kFour) + "GPU 1: NVIDIA H100 80GB HBM3\n";
  const ReadResult named = read_text(report);
  CHECK(class_of(named) == "H100");
  CHECK(has_note(named, "device class H100, which the text around the table names"));
  CHECK(class_of(read_text("GPU 0: NVIDIA H100\n" + report + "GPU 2: Tesla V100\n")) == "A100");
  const ReadResult chosen = read_text(report, "", "A100");
  CHECK(class_of(chosen) == "A100");
  CHECK(rate_between(chosen.topology, "gpu0.0", "gpu0.1") == 240_GBps);
  CHECK_FALSE(has_note(chosen, "assumed, the likeliest"));
  CHECK(class_of(read_text(kFour, "device_class: V100\n")) == "V100");
}

TEST_CASE("all of an overlay works on a matrix") {
  const std::string nic = "hosts: 2\nnic: { bandwidth: 200 Gbit/s, latency: 1 us }\n";
  const Topology two = read_text(kFour, "name: pair\n" + nic +
                                            "pcie: { bandwidth: 9 GB/s, latency: 1 us }\n"
                                            "nvlink: { bandwidth: 300 GB/s, latency: 1 us }\n")
                           .topology;
  CHECK(two.name() == "pair");
  CHECK(two.rank_count() == 8);
  CHECK(rate_between(two, "nic1.1", "tor0") == 200_Gbps);
  CHECK(rate_between(two, "gpu1.0", "pcie1.0") == 9_GBps);
  CHECK(rate_between(two, "gpu1.0", "nvswitch1") == 300_GBps);
  const Topology one_nic = read_text(kFour, nic + "nics: [mlx5_bond_1]\n").topology;
  CHECK_FALSE(one_nic.find_node("nic0.1"));
  CHECK(rate_between(one_nic, "nic0.0", "pcie0.1") == 24_GBps);
  CHECK_THAT(error_of([&] { read_text(kFour, "hosts: 2\n"); }),
             Catch::Contains("row NIC0: found NIC NIC0 without a speed"));
}

TEST_CASE("PXB puts PCIe switches below one port, and NODE beside each other") {
  const Topology t = read_text(
                         "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
                         "GPU0\t X \tPXB\tPIX\tNODE\t0-15\t0\n"
                         "GPU1\tPXB\t X \tPXB\tNODE\t0-15\t0\n"
                         "mlx5_0\tPIX\tPXB\t X \tNODE\n"
                         "mlx5_1\tNODE\tNODE\tNODE\t X \n")
                         .topology;
  CHECK(rate_between(t, "gpu0.0", "pcie0.1") > Bandwidth(0));
  CHECK(rate_between(t, "nic0.0", "pcie0.1") > Bandwidth(0));
  CHECK(rate_between(t, "pcie0.1", "pcie0.0") > Bandwidth(0));
  CHECK(rate_between(t, "gpu0.1", "pcie0.0") > Bandwidth(0));
  CHECK(rate_between(t, "nic0.1", "cpu0.0") > Bandwidth(0));
}

TEST_CASE("NODE across sockets is taken as SYS, and said") {
  const ReadResult result = read_text(replaced(
      replaced(kFour, "GPU0\t X \tNV12\tSYS", "GPU0\t X \tNV12\tNODE"), "GPU2\tSYS", "GPU2\tNODE"));
  CHECK(result.topology.find_node("cpu0.1"));
  CHECK(has_note(result, "NODE in row GPU0, column GPU2, though"));
}

TEST_CASE("matrices that no machine has are refused with the cells") {
  const std::string four = kFour;
  const auto [text, expected] = GENERATE_COPY(table<std::string, std::string>(
      {{replaced(four, "GPU0\t X \tNV12", "GPU0\t X \tNV8"),
        "line 2: found 'NV8' in row GPU0, column GPU1, but 'NV12' in row GPU1, column GPU0"},
       {replaced(replaced(four, "SYS\tPIX\t32-63", "PIX\tPIX\t32-63"), "NIC0\tPIX\tPIX\tSYS\tSYS",
                 "NIC0\tPIX\tPIX\tPIX\tPIX"),
        "found SYS in row GPU0, column GPU2, expected a closer place, by PIX in row GPU0, column "
        "NIC0, PIX in row NIC0, column GPU2"},
       {replaced(four, "GPU2\tSYS\tSYS\t X \t", "GPU2\tSYS\t X \t"), "found 5 cells in row GPU2"},
       {replaced(four, "GPU2\tSYS\tSYS\t X ", "GPU2\tSYS\t X \tSYS"),
        "found 'X' in row GPU2, column GPU1"},
       {replaced(four, "GPU2\tSYS\tSYS", "GPU2\tSYS\tFAR"), "found 'FAR' in row GPU2"},
       {four.substr(0, four.find("GPU3\tSYS")), "no row for GPU3"},
       {replaced(four, "GPU1\tNV12", "GPU0\tNV12"), "line 3: found row GPU0 twice"},
       {"\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n", "'nvidia-smi topo -p2p'"},
       {"\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV12\tNV12\nGPU1\tNV12\tX\tSYS\nGPU2\tNV12\tSYS\tX\n",
        "found SYS in row GPU1, column GPU2, expected NVLinks there, too"}}));
  CAPTURE(text);
  CHECK_THAT(error_of([&, t = text] { read_text(t); }),
             Catch::Contains("topo.txt: ") && Catch::Contains(expected));
}

TEST_CASE("of several matrices the first counts") {
  const ReadResult result = read_text(std::string(kFour) + kFour);
  CHECK(result.topology.rank_count() == 4);
  CHECK(has_note(result, "several matrices"));
}

TEST_CASE("text that only mentions GPUs is no matrix") {
  for (const char* text : {"GPU0 is busy\n", "GPU0 GPU1\nsource,target\n", "name: x\ngpus: GPU0\n",
                           "GPU0: NVIDIA A100\nGPU1: NVIDIA A100\n"}) {
    CAPTURE(text);
    CHECK_THAT(error_of([&] { read_text(text); }), !Catch::Contains("row"));
  }
}

TEST_CASE("a long text of labels is read at once") {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "GPU" + std::to_string(i % 10'000) + " ";
  CHECK_THAT(error_of([&] { read_text(text); }), !Catch::Contains("row"));
}

TEST_CASE("real matrices are read") {
  const fs::path folder = topology::test::shared_inputs() / "fabric" / "text";
  const fs::path b200 = folder / "b200-a4-gke-dranet.txt";
  if (!fs::exists(b200)) RACKRAIL_SKIP("no " + b200.string());
  const Topology box = read_cluster(b200.string(), {.device_class = "B200"}).topology;
  CHECK(box.rank_count() == 8);
  CHECK(rate_between(box, "gpu0.0", "nvswitch0") == Bandwidth(18 * 40'100'000'000));
  CHECK(rate_between(box, "nic0.7", "pcie0.3") == 48_GBps);
  CHECK(rate_between(box, "gpu0.6", "pcie0.3") == 48_GBps);
  const Topology pairs =
      read_cluster((folder / "a100-nvlinkbridge-8gpu-nonic.txt").string()).topology;
  CHECK(pairs.rank_count() == 8);
  CHECK(rate_between(pairs, "gpu0.6", "gpu0.7") == 240_GBps);
  CHECK(rate_between(pairs, "gpu0.7", "cpu0.1") == 24_GBps);
  CHECK(allgather_bound(pairs).algbw > Bandwidth(0));
}

}  // namespace rackrail::topo_matrix_test

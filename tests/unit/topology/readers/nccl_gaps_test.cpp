// What NCCL topology XML leaves open or says in odd ways, and what fills it.
#include <catch2/catch.hpp>
#include <string>

#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::nccl_gaps_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::has_note;
using topology::test::rate_between;
using topology::test::TextFile;

namespace {

std::string pci(const std::string& bus, const std::string& code, const std::string& inside) {
  return "<pci busid=\"" + bus + "\" class=\"" + code +
         "\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">" + inside + "</pci>";
}

ReadResult read_devices(const std::string& devices, const std::string& overlay = "",
                        const std::string& device_class = "") {
  const TextFile extra("overlay.yaml", overlay);
  ReadOptions options;
  if (!overlay.empty()) options.overlay = extra.path();
  options.device_class = device_class;
  return read_cluster_text("topo.xml",
                           "<system version=\"2\"><cpu numaid=\"0\">" + devices + "</cpu></system>",
                           options);
}

std::string amd_gpu(const std::string& bus, const std::string& peer) {
  return pci(bus, "0x038000",
             "<gpu dev=\"" + bus.substr(6, 1) + "\" gcn=\"906\"><xgmi target=\"" + peer +
                 "\" count=\"1\" tclass=\"0x038000\"/></gpu>");
}

std::string class_of(const ReadResult& result) {
  return result.topology.node(result.topology.node_of(Rank(0))).device_class;
}

}  // namespace

TEST_CASE("speeds of NICs in other units than Mbit/s are read as what they can be") {
  const auto rate = [](const std::string& speed) {
    const ReadResult result = read_devices(
        pci("0000:01:00.0", "0x030200", "<gpu dev=\"0\" sm=\"80\"/>") +
            pci("0000:02:00.0", "0x020000",
                "<nic><net name=\"cxi0\" port=\"1\" guid=\"0x0\" speed=\"" + speed + "\"/></nic>"),
        "hosts: 2\n");
    CHECK(has_note(result, "cannot be in Mbit/s") == (speed.size() > 8));
    return rate_between(result.topology, "nic0.0", "tor0");
  };
  CHECK(rate("200000") == 200_Gbps);
  CHECK(rate("3200000") == 3200_Gbps);
  CHECK(rate("200000000") == 200_Gbps);
  CHECK(rate("200000000000") == 200_Gbps);
  CHECK_THAT(error_of([&] { rate("99999999999999999"); }), Catch::Contains("speed=\"9999"));
}

TEST_CASE("a device class that the user names beats that of the file, and says so") {
  const std::string two =
      amd_gpu("0000:01:00.0", "0000:02:00.0") + amd_gpu("0000:02:00.0", "0000:01:00.0");
  CHECK(class_of(read_devices(two)) == "MI50");
  const ReadResult other = read_devices(two, "", "MI100");
  CHECK(class_of(other) == "MI100");
  CHECK(has_note(other, "device class MI100 counts instead of MI50, which the file names"));
  // The command line is nearer than the overlay.
  CHECK(class_of(read_devices(two, "device_class: MI60\n", "MI100")) == "MI100");
  CHECK_FALSE(has_note(read_devices(two, "", "mi50"), "instead of"));
}

TEST_CASE("links of unknown generation take the rate of the device class that the user names") {
  const auto gpu = [](const std::string& bus, const std::string& peer) {
    return pci(bus, "0x030200",
               "<gpu><nvlink target=\"" + peer + "\" count=\"2\" tclass=\"0x030200\"/></gpu>");
  };
  const std::string two = gpu("0000:01:00.0", "0000:02:00.0") + gpu("0000:02:00.0", "0000:01:00.0");
  CHECK(rate_between(read_devices(two).topology, "gpu0.0", "gpu0.1") == 40_GBps);
  const ReadResult named = read_devices(two, "device_class: NVIDIA H100 80GB HBM3\n");
  CHECK(rate_between(named.topology, "gpu0.0", "gpu0.1") == Bandwidth(2 * 20'600'000'000));
  CHECK_FALSE(has_note(named, "unknown generation"));
}

TEST_CASE("NVLinks that end at their own GPU or at none are left out with a note") {
  const std::string gpu =
      pci("0001:00:00.0", "0x030200",
          "<gpu dev=\"0\" sm=\"80\">"
          "<nvlink target=\"0001:00:00.0\" count=\"12\" tclass=\"0x030200\"/></gpu>") +
      pci("0002:00:00.0", "0x030200",
          "<gpu dev=\"1\" sm=\"80\">"
          "<nvlink target=\"0009:00:00.0\" count=\"12\" tclass=\"0x030200\"/></gpu>");
  const ReadResult result = read_devices(gpu);
  CHECK(rate_between(result.topology, "gpu0.0", "gpu0.1") == Bandwidth(0));
  CHECK(has_note(result, "links of 1 GPU (0001:00:00.0) point at the GPU itself"));
  CHECK(has_note(result, "does not have (0002:00:00.0 to 0009:00:00.0)"));
  const ReadResult bridged =
      read_devices(gpu, "nvlink: { bandwidth: 240 GB/s, latency: 600 ns }\n");
  CHECK_FALSE(has_note(bridged, "left out"));
}

TEST_CASE("an overlay chooses among the NICs of a dump, by bus id or name") {
  const auto nic = [](const std::string& bus, const std::string& name) {
    return pci(
        bus, "0x020700",
        "<nic><net name=\"" + name + "\" port=\"1\" speed=\"100000\" guid=\"" + bus + "\"/></nic>");
  };
  const std::string devices = pci("0000:01:00.0", "0x030200", "<gpu dev=\"0\" sm=\"80\"/>") +
                              nic("0000:02:00.0", "mlx5_0") + nic("0000:03:00.0", "mlx5_1") +
                              nic("0000:04:00.0", "eth0");
  const ReadResult result = read_devices(devices, "hosts: 2\nnics: ['0000:02:00.0', mlx5_1]\n");
  CHECK(result.topology.find_node("nic0.1"));
  CHECK_FALSE(result.topology.find_node("nic0.2"));
  CHECK(has_note(result, "the overlay's 'nics' leaves out 1 of the file's nics"));
  CHECK_THAT(error_of([&] { read_devices(devices, "nics: 2\n"); }),
             Catch::Contains("found 2 NICs for a file that has 3"));
  CHECK_THAT(error_of([&] { read_devices(devices, "nics: [eth7]\n"); }),
             Catch::Contains("no device 'eth7'"));
}

TEST_CASE("an overlay adds NICs to a file that has none") {
  std::string devices;
  for (const char* bus : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) {
    devices += pci(std::string(bus).replace(5, 1, "f"), "0x060400",
                   pci(bus, "0x030200", "<gpu sm=\"80\"/>"));
  }
  const std::string nic = "nic: { bandwidth: 100 Gbit/s, latency: 1 us }\n";
  const ReadResult result = read_devices(devices, "hosts: 2\nnics: 2\n" + nic);
  CHECK(rate_between(result.topology, "nic1.1", "tor0") == 100_Gbps);
  // Beside the first and the third GPU.
  CHECK(rate_between(result.topology, "nic0.0", "pcie0.0") > Bandwidth(0));
  CHECK(rate_between(result.topology, "nic0.1", "pcie0.2") > Bandwidth(0));
  CHECK(has_note(result, "2 NICs from the overlay"));
  CHECK_THAT(error_of([&] { read_devices(devices, "hosts: 2\n" + nic); }),
             Catch::Contains("2 hosts without a NIC") && Catch::Contains("'nics: 8'"));
  CHECK_THAT(error_of([&] { read_devices(devices, "nics: 1025\n" + nic); }),
             Catch::Contains("nics: found '1025'"));
}

TEST_CASE("a file with bus ids only is refused with those to put into the overlay") {
  const std::string bare = R"(<pci busid="0000:00:16.0"/><pci busid="0000:00:17.0"/>)";
  CHECK_THAT(error_of([&] { read_devices(bare, "", "A10G"); }),
             Catch::Contains("2 devices without a class and no GPU") &&
                 Catch::Contains(R"(of: ["0000:00:16.0", "0000:00:17.0"])"));
  const ReadResult result = read_devices(bare, "gpus: ['0000:00:16.0', '0000:00:17.0']\n", "A10G");
  CHECK(result.topology.rank_count() == 2);
  CHECK(class_of(result) == "A10G");
}

TEST_CASE("XML of other kinds is told with what to give instead") {
  const auto read = [](const std::string& text) {
    return error_of([&] { read_cluster_text("topo.xml", text); });
  };
  CHECK_THAT(read("<topology version=\"2.0\"/>"), Catch::Contains("NCCL_TOPO_DUMP_FILE=topo.xml"));
  CHECK_THAT(read("<graphs version=\"1\"/>"), Catch::Contains("rings and trees"));
  CHECK_THAT(read("<nvidia_smi_log/>"), Catch::Contains("nvidia-smi topo -m"));
}

}  // namespace rackrail::nccl_gaps_test

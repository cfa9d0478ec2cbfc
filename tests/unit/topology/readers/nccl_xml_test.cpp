#include <catch2/catch.hpp>
#include <string>

#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/queries.hpp"
#include "topology/reader.hpp"

namespace rackrail::nccl_xml_test {

using namespace rackrail;
using namespace rackrail::topology;
using topology::test::error_of;
using topology::test::has_note;
using topology::test::rate_between;
using topology::test::TextFile;
namespace fs = std::filesystem;

namespace {

fs::path real_file(const std::string& name) {
  return topology::test::shared_inputs() / "nccl-topology" / name;
}

ReadResult read_text(const std::string& xml, const std::string& overlay = "") {
  const TextFile file("topo.xml", xml);
  const TextFile extra("overlay.yaml", overlay);
  ReadOptions options;
  if (!overlay.empty()) options.overlay = extra.path();
  return read_cluster(file.path(), options);
}

ReadResult read_real(const fs::path& file, const std::string& overlay = "") {
  const TextFile extra("overlay.yaml", overlay);
  ReadOptions options;
  if (!overlay.empty()) options.overlay = extra.path();
  return read_cluster(file.string(), options);
}

std::string gpu(const std::string& bus, const std::string& inside,
                const std::string& attributes = R"(link_speed="16 GT/s" link_width="16")") {
  return "<pci busid=\"" + bus + "\" class=\"0x030200\" " + attributes + ">" + inside + "</pci>";
}

std::string nic(const std::string& bus, const std::string& nets) {
  return "<pci busid=\"" + bus +
         "\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\"><nic>" + nets +
         "</nic></pci>";
}

std::string machine(const std::string& devices, const std::string& cpu = R"(numaid="0")") {
  return "<system version=\"1\"><cpu " + cpu + ">" + devices + "</cpu></system>";
}

}  // namespace

TEST_CASE("Azure ND A100 v4 x 8 with the shipped overlay") {
  const fs::path file = real_file("ndv4-topo.xml");
  if (!fs::exists(file)) RACKRAIL_SKIP("no " + file.string());
  ReadOptions options;
  options.overlay = rackrail::test::source_dir() / "configs/overlays/ndv4-8-nodes.yaml";
  const ReadResult result = read_cluster(file.string(), options);
  const Topology& t = result.topology;
  CHECK(t.name() == "ndv4-8-nodes");
  CHECK(t.rank_count() == 64);
  CHECK(ranks_by_host(t).size() == 8);
  CHECK(ranks_by_rack(t).size() == 2);
  CHECK(result.inputs.size() == 2);
  CHECK(result.notes.empty());
  CHECK(t.node(t.node_of(Rank(63))).device_class == "A100");
  CHECK(t.node(t.node_of(Rank(63))).memory == Bytes(40'000'000'000));
  CHECK(rate_between(t, "gpu0.0", "nvswitch0") == 300_GBps);
  CHECK(rate_between(t, "nic3.2", "tor0") == 200_Gbps);
  CHECK(rate_between(t, "cpu0.0", "cpu0.3") == 16_GBps);
  // 16 GT/s x 16 lanes as NCCL counts them.
  CHECK(rate_between(t, "gpu0.0", "pcie0.1") == 24_GBps);
  Router router(t);
  CHECK(router.route(Rank(0), Rank(1)).size() == 2);
  CHECK(route_bandwidth(t, router.route(Rank(0), Rank(8))) == 24_GBps);
  // 56 GPUs' shards enter the last machine over 8 PCIe links of 24 GB/s.
  CHECK(allgather_bound(t).algbw == Bandwidth(64 * 192'000'000'000LL / 56));
}

TEST_CASE("where a file says that NICs cannot read the memory of GPUs, that is noted") {
  const auto notes = [](const std::string& gdr, const std::string& overlay) {
    const std::string net = "<net dev=\"0\" speed=\"100000\"" + gdr + "/>";
    return read_text(machine(gpu("0000:01:00.0", "") + nic("0000:02:00.0", net)), overlay);
  };
  const std::string hosts = "hosts: 2\n";
  CHECK(has_note(notes(" gdr=\"0\"", hosts), "host_staging"));
  CHECK_FALSE(has_note(notes(" gdr=\"1\"", hosts), "host_staging"));
  CHECK_FALSE(has_note(notes("", hosts), "host_staging"));
  CHECK_FALSE(has_note(notes(" gdr=\"0\"", hosts + "host_staging: 12 GB/s\n"), "host_staging"));
  CHECK_FALSE(has_note(notes(" gdr=\"0\"", ""), "host_staging"));  // one machine alone
}

TEST_CASE("every real file of a machine is read") {
  const std::vector<std::string> names{"ndv4-topo.xml", "ndv5-topo.xml", "p4d-24xl-topo.xml",
                                       "rccl-topo_8p_90a.xml", "rccl-topo_8p_rome_4n_2.xml"};
  if (!fs::exists(real_file(names.front()))) {
    RACKRAIL_SKIP("no " + real_file(names.front()).string());
  }
  for (const std::string& name : names) {
    CAPTURE(name);
    const Topology t = read_real(real_file(name)).topology;
    CHECK(t.rank_count() == 8);
    CHECK(ranks_by_host(t).size() == 1);
    Router router(t);
    for (std::size_t a = 0; a < 8; ++a) {
      for (std::size_t b = 0; b < 8; ++b)
        CHECK((a == b || !router.route(Rank(a), Rank(b)).empty()));
    }
    CHECK(allgather_bound(t).algbw > Bandwidth(0));
  }
}

TEST_CASE("real hint files: rates, classes and order") {
  if (!fs::exists(real_file("ndv5-topo.xml"))) {
    RACKRAIL_SKIP("no " + real_file("ndv5-topo.xml").string());
  }
  const Topology v5 = read_real(real_file("ndv5-topo.xml")).topology;
  CHECK(rate_between(v5, "gpu0.0", "pcie0.0") == 48_GBps);
  CHECK(rate_between(v5, "cpu0.0", "cpu0.1") == 22_GBps);
  const ReadResult p4d = read_real(real_file("p4d-24xl-topo.xml"));
  CHECK(p4d.topology.node(NodeId(0)).device_class == "A100");
  CHECK(rate_between(p4d.topology, "gpu0.0", "pcie0.0") == 12_GBps);
  CHECK(rate_between(p4d.topology, "cpu0.0", "cpu0.1") == 10_GBps);
  CHECK(has_note(p4d, "no links between GPUs"));
}

TEST_CASE("real RCCL dumps: xGMI, deep PCIe, a management port") {
  if (!fs::exists(real_file("rccl-topo_8p_90a.xml"))) {
    RACKRAIL_SKIP("no " + real_file("rccl-topo_8p_90a.xml").string());
  }
  const Topology mi200 = read_real(real_file("rccl-topo_8p_90a.xml")).topology;
  CHECK(rate_between(mi200, "gpu0.0", "gpu0.1") == 36_GBps);
  CHECK(rate_between(mi200, "gpu0.0", "gpu0.4") == Bandwidth(0));
  CHECK(mi200.node(NodeId(0)).device_class == "MI250X");
  CHECK(mi200.find_node("nic0.0"));
  const Topology mi100 = read_real(real_file("rccl-topo_8p_rome_4n_2.xml")).topology;
  CHECK(mi100.node(NodeId(0)).device_class == "MI100");
  CHECK(rate_between(mi100, "gpu0.0", "gpu0.3") == 24_GBps);
  // With several machines the ports have the speed that the file gives.
  const Topology four = read_real(real_file("rccl-topo_8p_rome_4n_2.xml"), "hosts: 4\n").topology;
  CHECK(four.rank_count() == 32);
  CHECK(rate_between(four, "nic2.0", "tor0") == 100_Gbps);
}

TEST_CASE("a file with bus ids only needs an overlay, and says which devices there are") {
  const fs::path file = real_file("g5.48xl-topo.xml");
  if (!fs::exists(file)) RACKRAIL_SKIP("no " + file.string());
  CHECK_THAT(error_of([&] { read_real(file); }), Catch::Contains("9 devices without a class") &&
                                                     Catch::Contains("0000:00:1d.0") &&
                                                     Catch::Contains("'gpus'"));
  const std::string overlay =
      "gpus: ['0000:00:16.0', '0000:00:17.0', '0000:00:18.0', '0000:00:19.0', '0000:00:1a.0',"
      " '0000:00:1b.0', '0000:00:1c.0', '00000000:00:1D.0']\n"
      "device_class: A10G\nmemory: 24 GB\n";
  const ReadResult one = read_real(file, overlay);
  CHECK(one.topology.rank_count() == 8);
  CHECK(has_note(one, "1 devices without a class"));
  CHECK(has_note(one, "PCIe 3.0 x16"));
  CHECK_THAT(error_of([&] { read_real(file, overlay + "hosts: 2\n"); }),
             Catch::Contains("2 hosts without a NIC"));
  CHECK_THAT(error_of([&] { read_real(file, overlay + "hosts: 2\nnics: ['0000:00:15.0']\n"); }),
             Catch::Contains("line 24") && Catch::Contains("NIC 0000:00:15.0 without a speed"));
  const Topology two = read_real(file, overlay +
                                           "hosts: 2\nnics: ['0000:00:15.0']\n"
                                           "host_staging: 12 GB/s\n"
                                           "nic: { bandwidth: 100 Gbit/s, latency: 10 us }\n"
                                           "pcie: { bandwidth: 16 GB/s, latency: 1 us }\n")
                           .topology;
  CHECK(two.rank_count() == 16);
  CHECK(two.node(two.node_of(Rank(15))).host_staging == 12_GBps);
  CHECK(rate_between(two, "nic1.0", "tor0") == 100_Gbps);
  CHECK(rate_between(two, "gpu1.7", "cpu1.1") == 16_GBps);
  CHECK_THAT(error_of([&] { read_real(file, "gpus: ['0000:99:00.0']\n"); }),
             Catch::Contains("overlay, gpus") && Catch::Contains("no device '0000:99:00.0'"));
}

TEST_CASE("an overlay's rate of PCIe replaces what the file tells, and says so") {
  const std::string file = machine(gpu("0000:01:00.0", "") + gpu("0000:02:00.0", ""));
  const ReadResult told = read_text(file);
  const ReadResult slow = read_text(file, "pcie: { bandwidth: 3 GB/s, latency: 1 us }\n");
  CHECK(rate_between(told.topology, "gpu0.0", "cpu0.0") > 3_GBps);
  CHECK(rate_between(slow.topology, "gpu0.0", "cpu0.0") == 3_GBps);
  CHECK(has_note(slow, "'pcie' replaces"));
  CHECK_FALSE(has_note(told, "'pcie' replaces"));
}

TEST_CASE("NVLinks between GPUs and to NVSwitches") {
  const auto v100 = [](const char* dev, const std::string& links) {
    return "<gpu dev=\"" + std::string(dev) + "\" sm=\"70\">" + links + "</gpu>";
  };
  const ReadResult cube = read_text(
      machine(gpu("0000:01:00.0",
                  v100("0", R"(<nvlink target="0000:02:00.0" count="2" tclass="0x030200"/>)"
                            R"(<nvlink target="0000:77:00.0" count="1" tclass="0x030200"/>)")) +
              gpu("0000:02:00.0",
                  v100("1", R"(<nvlink target="0000:01:00.0" count="2" tclass="0x030200"/>)")) +
              gpu("0000:03:00.0",
                  v100("2", R"(<nvlink target="0000:01:00.0" count="1" tclass="0x030200"/>)"))));
  CHECK(rate_between(cube.topology, "gpu0.0", "gpu0.1") == 40_GBps);
  CHECK(rate_between(cube.topology, "gpu0.1", "gpu0.0") == 40_GBps);
  // Listed at one end only; still a cable.
  CHECK(rate_between(cube.topology, "gpu0.0", "gpu0.2") == 20_GBps);
  CHECK(cube.topology.node(NodeId(0)).device_class == "V100");

  const auto h100 = [](const char* dev) {
    return "<gpu dev=\"" + std::string(dev) +
           "\" sm=\"90\" rank=\"-1\"><nvlink target=\"0000:c5:00.0\" count=\"4\" "
           "tclass=\"0x068000\"/><nvlink target=\"0000:c6:00.0\" count=\"5\" "
           "tclass=\"0x068000\"/></gpu>";
  };
  const ReadResult box =
      read_text(machine(gpu("0000:0B:00.0", h100("1")) + gpu("0000:0A:00.0", h100("0"))));
  CHECK(rate_between(box.topology, "gpu0.0", "nvswitch0") == Bandwidth(9 * 20'600'000'000));
  CHECK(box.notes.empty() == false);  // the CPU is not named

  const ReadResult odd = read_text(
      machine(gpu("0000:01:00.0", R"(<gpu dev="0" sm="35"><nvlink target="x" count="1"/></gpu>)")));
  CHECK(has_note(odd, "nvlink of unknown generation"));
}

TEST_CASE("GPUs are ranks in the file's own order, else by bus id") {
  const ReadResult by_dev = read_text(machine(gpu("0000:01:00.0", R"(<gpu dev="1" sm="80"/>)") +
                                              gpu("0000:02:00.0", R"(<gpu dev="0" sm="90"/>)")));
  CHECK(by_dev.topology.node(by_dev.topology.node_of(Rank(0))).device_class == "H100");
  const ReadResult by_bus = read_text(
      machine(gpu("0000:02:00.0", R"(<gpu sm="80"/>)") + gpu("0000:01:00.0", R"(<gpu sm="90"/>)")));
  CHECK(by_bus.topology.node(by_bus.topology.node_of(Rank(0))).device_class == "H100");
}

TEST_CASE("NICs: directly below the CPU, with two ports, with the same port twice") {
  const std::string devices =
      gpu("0000:01:00.0", R"(<gpu dev="0" sm="80"/>)") +
      R"(<nic><net name="eth0" speed="25000" port="1" guid="0x0"/></nic>)" +
      nic("0000:03:00.0",
          R"(<net name="mlx5_0" dev="0" speed="100000" port="1" guid="0xab"/>)"
          R"(<net name="mlx5_0" dev="1" speed="100000" port="2" guid="0xab"/>)"
          R"(<net name="mlx5_0" dev="2" speed="100000" port="1" guid="0xab" coll="1"/>)");
  const Topology t =
      read_text(machine(devices, R"(numaid="-1" arch="x86_64")"), "hosts: 2\n").topology;
  CHECK(t.rank_count() == 2);
  CHECK((rate_between(t, "nic0.0", "tor0") == 25_Gbps) !=
        (rate_between(t, "nic0.1", "tor0") == 25_Gbps));
  CHECK(rate_between(t, "nic0.0", "tor0") + rate_between(t, "nic0.1", "tor0") == 225_Gbps);
}

TEST_CASE("PCIe speeds that are missing, odd or unknown") {
  const ReadResult result =
      read_text(machine(gpu("0000:01:00.0", "", R"(link_speed="16.0 GT/s PCIe" link_width="8")") +
                        gpu("0000:02:00.0", "", R"(link_speed="" link_width="")") +
                        gpu("0000:03:00.0", "", R"(link_speed="Unknown speed" link_width="255")") +
                        gpu("0000:04:00.0", "", R"(link_speed="2.5 GT/s" link_width="0")")));
  const Topology& t = result.topology;
  CHECK(rate_between(t, "gpu0.0", "cpu0.0") == 12_GBps);
  CHECK(rate_between(t, "gpu0.1", "cpu0.0") == 12_GBps);
  CHECK(rate_between(t, "gpu0.2", "cpu0.0") == 12_GBps);
  CHECK(rate_between(t, "gpu0.3", "cpu0.0") == 3_GBps);
  CHECK(has_note(result, "12.0 GB/s assumed, the widest"));
  CHECK(has_note(result, "16 lanes assumed"));
}

TEST_CASE("bus ids that stand twice, and coherent links to the CPU") {
  const ReadResult result = read_text(
      machine(gpu("0000:01:00.0", R"(<gpu dev="0" sm="90"><c2c bw="44000" count="5"/></gpu>)") +
              gpu("0000:01:00.0", R"(<gpu dev="1" sm="90"/>)")));
  CHECK(result.topology.rank_count() == 1);
  CHECK(has_note(result, "stands there twice"));
  CHECK(rate_between(result.topology, "gpu0.0", "cpu0.0") == 220_GBps + 24_GBps);
}

TEST_CASE("in a dump, a class code alone does not make a GPU or a NIC") {
  const ReadResult result = read_text(
      machine(
          gpu("0000:01:00.0", R"(<gpu dev="0" sm="90"/>)") +
          gpu("0000:02:00.0", R"(<gpu dev="1" sm="90"/>)") +
          R"(<pci busid="0000:03:00.0" class="0x030000" link_speed="2.5 GT/s" link_width="1"/>)" +
          nic("0000:04:00.0", R"(<net name="a" speed="100000" port="1" guid="0x1"/>)") +
          R"(<pci busid="0000:05:00.0" class="0x020000" link_speed="8 GT/s" link_width="4"/>)"),
      "hosts: 2\n");
  CHECK(result.topology.rank_count() == 4);
  CHECK_FALSE(result.topology.find_node("nic0.1"));
  CHECK(has_note(result, "0000:03:00.0 has the class of a GPU"));
  CHECK(has_note(result, "0000:05:00.0 has the class of a NIC"));
}

TEST_CASE("a merged file with host hashes is several machines") {
  const auto cpu = [](const std::string& hash, const std::string& sm) {
    return "<cpu numaid=\"0\" host_hash=\"" + hash + "\">" +
           gpu("0000:01:00.0", "<gpu dev=\"0\" sm=\"" + sm + "\"/>") +
           nic("0000:02:00.0", "<net name=\"ib0\" speed=\"400000\" port=\"1\" guid=\"0x1\"/>") +
           "</cpu>";
  };
  const std::string xml =
      "<system version=\"1\">" + cpu("0x1", "80") + cpu("0x2", "90") + "</system>";
  const Topology t = read_text(xml).topology;
  CHECK(t.rank_count() == 2);
  CHECK(ranks_by_host(t).size() == 2);
  CHECK(t.node(t.node_of(Rank(1))).device_class == "H100");
  CHECK(read_text(xml, "hosts: 4\n").topology.rank_count() == 4);
  CHECK_THAT(error_of([&] { read_text(xml, "hosts: 3\n"); }),
             Catch::Contains("3 hosts for a file with 2 machines"));
}

TEST_CASE("an overlay joins the machines by any network") {
  const std::string xml =
      machine(gpu("0000:01:00.0", "") + gpu("0000:02:00.0", "") +
              nic("0000:03:00.0", R"(<net name="a" speed="200000" port="1" guid="0x1"/>)") +
              nic("0000:04:00.0", R"(<net name="b" speed="200000" port="1" guid="0x2"/>)"));
  const Topology t = read_text(xml,
                               "name: rails\nracks: { count: 2, hosts: 3 }\n"
                               "device_classes: { X: { memory: 9 GB } }\ndevice_class: X\n"
                               "nvlink: { bandwidth: 100 GB/s, latency: 1 us, switched: false }\n"
                               "network:\n  wiring: rail-optimised\n"
                               "  spine: { count: 2, oversubscription: 1.5, latency: 1 us }\n")
                         .topology;
  CHECK(t.name() == "rails");
  CHECK(t.rank_count() == 12);
  CHECK(rate_between(t, "gpu0.0", "gpu0.1") == 100_GBps);
  CHECK(rate_between(t, "nic5.1", "leaf1.1") == 200_Gbps);
  CHECK(rate_between(t, "leaf1.1", "spine0") == 200_Gbps);
  CHECK(t.node(NodeId(0)).memory == Bytes(9'000'000'000));
}

TEST_CASE("mistakes in an overlay are named with its line") {
  const std::string xml = machine(gpu("0000:01:00.0", ""));
  CHECK_THAT(error_of([&] { read_text(xml, "hosts: 0\n"); }),
             Catch::Contains("overlay.yaml: line 1, hosts: found '0'"));
  CHECK_THAT(error_of([&] { read_text(xml, "hosts: 1\nracks: {hosts: 2}\n"); }),
             Catch::Contains("both 'hosts' and 'racks'"));
  CHECK_THAT(error_of([&] { read_text(xml, "host: 1\n"); }), Catch::Contains("unknown key 'host'"));
  CHECK_THAT(error_of([&] { read_text(xml, "nic: {bandwidth: 200, latency: 1 us}\n"); }),
             Catch::Contains("line 1, nic.bandwidth: found '200'"));
  CHECK_THAT(error_of([&] { read_text(xml, "racks: {count: 2, hosts: 1}\n"); }),
             Catch::Contains("2 racks and no 'network'"));
  CHECK_THAT(error_of([&] { read_text(xml, "3\n"); }), Catch::Contains("an overlay: a map"));
  ReadOptions options;
  options.overlay = "/no/such/overlay.yaml";
  const TextFile file("topo.xml", xml);
  CHECK_THAT(error_of([&] { read_cluster(file.path(), options); }),
             Catch::Contains("/no/such/overlay.yaml"));
}

TEST_CASE("other XML and broken XML are told for what they are") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"<?xml version=\"1.0\"?><topology version=\"2.0\"/>", "an hwloc topology"},
      {"<graphs version=\"1\"/>", "an NCCL graph"},
      {"<algo name=\"x\"/>", "an MSCCL schedule"},
      {"<!-- only a comment -->", "line 1"},
      {"<html></html>", "root 'html'"},
      {"<system version=\"1\">\n<cpu numaid=\"0\">\n", "line "},
      {"<system version=\"1\"></system>", "no 'cpu'"},
      {"<system><cpu></cpu></system>", "no GPU"},
      {"<system><cpu><pci busid=\"1\" class=\"0x030200\">\n<gpu dev=\"0\" sm=\"80\">"
       "<nvlink target=\"2\" count=\"99999\"/></gpu></pci></cpu></system>",
       "line 2: found count=\"99999\""},
      {"<system><cpu><pci busid=\"1\" class=\"0x030200\"><gpu dev=\"zero\"/></pci></cpu></system>",
       "dev=\"zero\""},
      {"<system><cpu>\n<pci busid=\"1\" busid=\"2\"/></cpu></system>",
       "line 2: found attribute 'busid' twice"},
      {"<system><cpu><pci busid=\"1\" link_speed=\"16.0 GT/s PCIe\" "
       "link_width=\"-16\"/></cpu></system>",
       "link_width=\"-16\", expected a whole number from 0 to 64, or -1"},
      {"<system><cpu><pci busid=\"1\" link_speed=\"1e308 GT/s\" link_width=\"16\"/></cpu></system>",
       "link_speed=\"1e308 GT/s\""},
      {"<system><cpu><pci busid=\"1\" link_speed=\"-8 GT/s\" link_width=\"16\"/></cpu></system>",
       "link_speed=\"-8 GT/s\""},
  }));
  CAPTURE(text);
  CHECK_THAT(error_of([&, t = text] { read_text(t); }),
             Catch::Contains("topo.xml: ") && Catch::Contains(expected));
}

TEST_CASE("nesting without end is refused") {
  std::string xml = "<system><cpu>";
  for (int i = 0; i < 100'000; ++i) xml += "<pci>";
  for (int i = 0; i < 100'000; ++i) xml += "</pci>";
  CHECK_THAT(error_of([&] { read_text(xml + "</cpu></system>"); }), Catch::Contains("nested"));
}

TEST_CASE("NCCL XML: what is slow to build is refused, and long numbers are read at once") {
  std::string cpus;
  for (int i = 0; i < 257; ++i) cpus += "<cpu/>\n";
  CHECK_THAT(error_of([&] { read_text("<system>\n" + cpus + "</system>"); }),
             Catch::Contains("line 258: found more than 256 CPUs of a machine, expected fewer"));
  // A domain of a million digits: the last four of them count.
  const std::string digits(1'000'000, '0');
  const ReadResult result = read_text("<system><cpu>" + gpu(digits + "ab:01:00.0", "") +
                                      gpu("00ab:01:00.0", "") + "</cpu></system>");
  CHECK(has_note(result, "bus id 00ab:01:00.0 stands there twice"));
}

}  // namespace rackrail::nccl_xml_test

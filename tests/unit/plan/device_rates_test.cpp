#include <catch2/catch.hpp>
#include <memory>

#include "base/error.hpp"
#include "plan/cost_model.hpp"
#include "plan/device_class.hpp"
#include "plan/workload.hpp"

namespace rackrail::plan::device_rates_test {
namespace {

const CodecRate& rate_of(const DeviceRates& rates, CodecKind kind) {
  return rates.codecs[static_cast<std::size_t>(kind)];
}

TEST_CASE("a V100 adds FP32 at four twelfths of its sustained memory bandwidth") {
  // 0.8 · 900 GB/s, 12 bytes moved for each 4 of gradient.
  CHECK(device_rates("V100").reduce == Bandwidth(240'000'000'000));
  CHECK(rate_of(device_rates("V100"), CodecKind::kFp16).encode == Bandwidth(480'000'000'000));
}

TEST_CASE("a class is known in any case, under one name") {
  REQUIRE(find_device_class("a100") != nullptr);
  CHECK(find_device_class("a100") == find_device_class("A100"));
  CHECK(find_device_class("CPU") == find_device_class("cpu"));
  CHECK(find_device_class("a10") == nullptr);
  CHECK(find_device_class("a1000") == nullptr);
  CHECK(device_class_name("mi300x") == "MI300X");
  CHECK(device_class_name("a100-sxm") == "a100-sxm");
  CHECK(device_class_name("NVIDIA H100 80GB HBM3") == "H100");
  CHECK(device_class_name("nvidia a100-sxm4-80gb") == "A100-80G");
  topology::Topology cluster("three");
  for (const char* name : {"a100", "A100", "mine"}) {
    cluster.add_rank(cluster.add_node({.name = name, .device_class = name}));
  }
  name_device_classes(cluster);
  CHECK(cluster.node(NodeId(0)).device_class == "A100");
  CHECK(cluster.node(NodeId(1)).device_class == "A100");
  CHECK(cluster.node(NodeId(2)).device_class == "mine");
}

TEST_CASE("rates of every class are positive and ordered as the work they mean") {
  for (const DeviceClass& device : device_classes()) {
    CAPTURE(device.name);
    const DeviceRates rates = device_rates(device.name);
    CHECK(rates.launch > Duration());
    CHECK(rates.reduce > Bandwidth());
    for (const Codec& codec : all_codecs()) {
      CAPTURE(to_string(codec));
      CHECK(rate_of(rates, codec.kind).encode > Bandwidth());
      CHECK(rate_of(rates, codec.kind).decode > Bandwidth());
      CHECK(rate_of(rates, codec.kind).encode < device.codec_memory);
    }
    CHECK(rate_of(rates, CodecKind::kFp16).encode > rate_of(rates, CodecKind::kInt8Block).encode);
    CHECK(rate_of(rates, CodecKind::kInt8Block).encode > rate_of(rates, CodecKind::kTopK).encode);
    // An addition moves more than decoding and adding half as many bytes.
    CHECK(rates.reduce < rate_of(rates, CodecKind::kFp16).decode);
  }
}

TEST_CASE("a class with faster memory has faster codecs") {
  CHECK(device_rates("H100").reduce > device_rates("A100").reduce);
  CHECK(device_rates("A100").reduce > device_rates("V100").reduce);
  CHECK(device_rates("V100").reduce > device_rates("cpu").reduce);
}

std::string likeliest(const std::string& name) {
  const DeviceClass* found = likeliest_device_class(name);
  return found == nullptr ? "" : found->name;
}

TEST_CASE("an unknown name is the class with the longest name in it") {
  const auto [name, expected] = GENERATE(table<std::string, std::string>({
      {"NVIDIA GB200 NVL72", "GB200"},
      {"nvidia_gb200", "GB200"},
      {"NVIDIA B200 SXM6 AC", "B200"},
      {"HGX H100-8", "H100"},
      {"dgxh100", "H100"},
      {"H200 NVL", "H200"},
      {"NVIDIA GH200 144G HBM3e", "GH200"},
      {"NVIDIA H20-141GB", "H20"},
      {"A100-SXM", "A100"},
      {"GRID A100X-40C", "A100"},
      {"NVIDIA A100 80GB PCIe", "A100-80G"},
      {"Tesla V100-PCIE-32GB", "V100"},
      {"NVIDIA L40", "L40S"},
      {"NVIDIA L4 (24 GB)", "L4"},
      {"NVIDIA A10", "A10G"},
      {"MI250", "MI250X"},
      {"AMD Instinct MI300X OAM", "MI300X"},
      {"GeForce RTX 4090 D", "RTX 4090"},
      {"rtx-pro-6000-bse", "RTX PRO 6000"},
      {"AWS Trainium2 Ultra", "Trainium2"},
      {"A1000", ""},
      {"RTX 4000", ""},
      {"XL4", ""},
      {"Gaudi 3", ""},
      {"abacus", ""},
      {"", ""},
      {"...", ""},
  }));
  CAPTURE(name);
  CHECK(likeliest(name) == expected);
}

TEST_CASE("a GPU is never a CPU core, and a host of which nothing is known is") {
  topology::Topology cluster("kinds");
  const auto add = [&](const char* name, topology::NodeKind kind, const char* device) {
    return cluster.add_rank(
        cluster.add_node({.name = name, .kind = kind, .host = "", .device_class = device}));
  };
  using topology::NodeKind;
  const Rank nameless = add("gpu0", NodeKind::kGpu, "");
  const Rank unknown = add("gpu1", NodeKind::kGpu, "Gaudi 3");
  const Rank likely = add("gpu2", NodeKind::kGpu, "NVIDIA GB200 NVL72");
  const Rank host = add("host0", NodeKind::kHost, "");
  const Rank unknown_host = add("host1", NodeKind::kHost, "abacus");
  const Rank described = add("gpu3", NodeKind::kGpu, "mine");
  topology::Node node = cluster.node(cluster.node_of(described));
  topology::DeviceFigures figures = default_gpu();
  figures.codec_memory = 120_GBps;
  figures.matrix_tflops = 2 * find_device_class("V100")->matrix_tflops;
  figures.memory = find_device_class("V100")->memory * 2;
  node.figures = std::make_shared<const topology::DeviceFigures>(figures);
  cluster.set_node_properties(cluster.node_of(described), node);

  CHECK(device_rates(cluster, nameless).reduce == device_rates("H100").reduce);
  CHECK(device_rates(cluster, unknown).reduce == device_rates("H100").reduce);
  CHECK(device_rates(cluster, likely).reduce == device_rates("GB200").reduce);
  CHECK(device_rates(cluster, host).reduce == device_rates("cpu").reduce);
  CHECK(device_rates(cluster, unknown_host).reduce == device_rates("cpu").reduce);
  CHECK(device_rates(cluster, described).reduce == 32_GBps);  // 0.8 * 120 GB/s * 4/12

  Workload workload;
  workload.device_class = "V100";
  workload.profiled_batch = 1;
  workload.forward = 100_us;
  const auto forward = [&](Rank rank) {
    return compute_times(workload, cluster.node(cluster.node_of(rank)), 1).forward;
  };
  CHECK(forward(described) == 50_us);
  CHECK(forward(nameless) == 100_us);  // as profiled
  CHECK(forward(unknown) == scaled(100_us, compute_scale("V100", "H100").value()));
  CHECK(forward(likely) == scaled(100_us, compute_scale("V100", "GB200").value()));
  CHECK_THROWS_AS(forward(unknown_host), ConfigError);
}

TEST_CASE("figures of the classes are those of their data sheets") {
  const auto is = [](const char* name, double tflops, Bandwidth memory) {
    const DeviceClass* found = find_device_class(name);
    return found != nullptr && found->name == name && found->matrix_tflops == tflops &&
           found->memory == memory && found->codec_memory == memory && found->launch == 1_us &&
           found->wake == 4_us && found->memory_size.has_value();
  };
  CHECK(is("A100", 156, 1'555_GBps));
  CHECK(is("A100-80G", 156, 2'039_GBps));
  CHECK(is("MI250X", 47.9, Bandwidth(1'638'400'000'000)));
  CHECK(is("GB200", 1250, 8'000_GBps));
  for (const char* name : {"V100-32G", "A800", "H20", "H800", "GH200", "B200", "B300", "GB300",
                           "L4", "L40S", "RTX PRO 6000", "MI210", "MI325X", "MI350X", "MI355X"}) {
    CAPTURE(name);
    CHECK(find_device_class(name) != nullptr);
  }
  const DeviceClass& cpu = *find_device_class("cpu");
  CHECK(cpu.codec_memory == Bandwidth(25'600'000'000));
  CHECK(cpu.launch == 500_ns);
  CHECK(cpu.wake == Duration());
}

}  // namespace
}  // namespace rackrail::plan::device_rates_test

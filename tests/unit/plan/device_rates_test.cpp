#include <catch2/catch.hpp>

#include "plan/cost_model.hpp"
#include "plan/device_class.hpp"

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

TEST_CASE("a class with faster memory has faster codecs; an unknown one is a CPU") {
  CHECK(device_rates("H100").reduce > device_rates("A100").reduce);
  CHECK(device_rates("A100").reduce > device_rates("V100").reduce);
  CHECK(device_rates("V100").reduce > device_rates("cpu").reduce);
  CHECK(device_rates("abacus").reduce == device_rates("cpu").reduce);
  CHECK(device_rates("").launch == device_rates("cpu").launch);
}

}  // namespace
}  // namespace rackrail::plan::device_rates_test

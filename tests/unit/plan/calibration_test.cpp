#include "plan/calibration.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "tests/support/paths.hpp"

namespace rackrail::plan::calibration_test {
namespace {

using nlohmann::json;

Calibration example() {
  Calibration calibration;
  calibration.cores = 2;
  calibration.core_bandwidth = Bandwidth(3'123'456'789);
  calibration.message_overhead = Duration(12'345'678);
  calibration.latency = Duration(9'876'543);
  for (std::size_t i = 1; i < calibration.rates.codecs.size(); ++i) {
    const auto k = static_cast<std::int64_t>(i);
    calibration.rates.codecs[i] = {Bandwidth(1'000'000'007 * k), Bandwidth(2'000'000'011 * k)};
  }
  calibration.rates.reduce = Bandwidth(5'000'000'021);
  calibration.rates.launch = Duration(1'234'567);
  calibration.transport = "ucx";
  calibration.load = 0.75;
  return calibration;
}

// The error that reading `content` gives.
ErrorContext error_of(const std::string& content) {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "machine.json";
  write_file_atomically(path, content);
  try {
    read_calibration(path);
  } catch (const ConfigError& error) {
    CHECK(error.context().file == path.string());
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.context();
  }
  FAIL("it was read: " << content);
  return {};
}

TEST_CASE("a calibration is read exactly as it was written") {
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "machine.json";
  const Calibration written = example();
  write_file_atomically(path, to_json(written));
  const Calibration read = read_calibration(path);
  CHECK(read.cores == written.cores);
  CHECK(read.core_bandwidth == written.core_bandwidth);
  CHECK(read.message_overhead == written.message_overhead);
  CHECK(read.latency == written.latency);
  for (std::size_t i = 1; i < all_codecs().size(); ++i) {
    CHECK(read.rates.codecs[i].encode == written.rates.codecs[i].encode);
    CHECK(read.rates.codecs[i].decode == written.rates.codecs[i].decode);
  }
  CHECK(read.rates.reduce == written.rates.reduce);
  CHECK(read.rates.launch == written.rates.launch);
  CHECK(read.transport == written.transport);
  CHECK(read.load == written.load);
  CHECK(to_json(read) == to_json(written));
}

TEST_CASE("every field is required, and its absence named") {
  const json whole = json::parse(to_json(example()));
  for (const auto& [name, value] : whole.items()) {
    json lacking = whole;
    lacking.erase(name);
    INFO(name);
    CHECK(error_of(lacking.dump()).where == name);
  }
  for (const auto& [codec, rates] : whole.at("codecs").items()) {
    for (const auto& [name, value] : rates.items()) {
      json lacking = whole;
      lacking["codecs"][codec].erase(name);
      INFO(codec << " " << name);
      CHECK(error_of(lacking.dump()).where == "codecs." + codec + "." + name);
    }
  }
}

TEST_CASE("codecs that are not tried unasked may be missing, as in older files") {
  json older = json::parse(to_json(example()));
  for (const char* name : {"bf16", "fp8", "randomk"}) {
    REQUIRE(older["codecs"].erase(name) == 1);
  }
  const test::TemporaryDirectory folder;
  const auto path = folder.path() / "machine.json";
  write_file_atomically(path, older.dump());
  const Calibration read = read_calibration(path);
  for (const Codec& codec : all_codecs()) {
    const auto i = static_cast<std::size_t>(codec.kind);
    CAPTURE(to_string(codec));
    const bool is_missing = !older["codecs"].contains(to_string(codec));
    const DeviceRates expected = is_missing ? device_rates("cpu") : example().rates;
    CHECK((!codec.is_lossy() || read.rates.codecs[i].encode == expected.codecs[i].encode));
    CHECK((!codec.is_lossy() || read.rates.codecs[i].decode == expected.codecs[i].decode));
  }
  for (const char* name : {"fp16", "int8", "topk"}) {
    json lacking = older;
    lacking["codecs"].erase(name);
    CHECK(error_of(lacking.dump()).where == std::string("codecs.") + name);
  }
}

TEST_CASE("values of another kind, without a unit, or impossible are refused") {
  const json whole = json::parse(to_json(example()));
  const auto [field, value] = GENERATE(table<std::string, json>({
      {"core_bandwidth", 3000000000},
      {"core_bandwidth", "3000000000"},
      {"core_bandwidth", "0 B/s"},
      {"latency", "9.8"},
      {"latency", "9.8 MB"},
      {"message_overhead", nullptr},
      {"message_overhead", "-3 us"},
      {"reduce", "0 GB/s"},
      {"cores", "2"},
      {"cores", 0},
      {"cores", -1},
      {"cores", 1.5},
      {"cores", 1e30},
      {"codecs", "none"},
      {"transport", 7},
      {"load", "high"},
  }));
  json wrong = whole;
  wrong[field] = value;
  INFO(field << " = " << value.dump());
  const ErrorContext context = error_of(wrong.dump());
  CHECK(context.where.starts_with(field));
  CHECK_FALSE(context.found.empty());
  CHECK_FALSE(context.expected.empty());
}

TEST_CASE("a file that is cut short or another one is refused") {
  const std::string whole = to_json(example());
  for (std::size_t size = 0; size + 2 < whole.size(); size += 17) {
    CHECK(error_of(whole.substr(0, size)).expected.find("calibrat") != std::string::npos);
  }
  CHECK_FALSE(error_of("[1, 2]").expected.empty());
  CHECK_FALSE(error_of("name: two-racks-40g\n").expected.empty());
}

TEST_CASE("a file that is not there is named") {
  CHECK_THROWS_AS(read_calibration("/nonexistent/machine.json"), ConfigError);
}

TEST_CASE("what was measured holds for ranks that are CPUs, and only for them") {
  topology::Topology topology("mixed");
  const NodeId hub = topology.add_node({.name = "switch", .kind = topology::NodeKind::kSwitch});
  for (const char* device : {"cpu", "", "A100"}) {
    const NodeId node = topology.add_node({.name = fmt::format("host-{}", device),
                                           .kind = topology::NodeKind::kHost,
                                           .device_class = device});
    topology.add_rank(node);
    topology.add_duplex_link({.from = node, .to = hub, .bandwidth = 1_Gbps});
  }
  const std::string digest = topology.digest();
  CHECK(device_rates(topology, Rank(0)).reduce == device_rates("cpu").reduce);

  const Calibration calibration = example();
  topology.set_measured_processor(measured_processor(calibration));
  const topology::Topology copy = topology;
  CHECK(copy.digest() == digest);
  for (const std::size_t rank : {0, 1}) {
    const DeviceRates rates = device_rates(copy, Rank(rank));
    CHECK(rates.reduce == calibration.rates.reduce);
    CHECK(rates.launch == calibration.rates.launch);
    for (std::size_t i = 1; i < all_codecs().size(); ++i) {
      CHECK(rates.codecs[i].encode == calibration.rates.codecs[i].encode);
      CHECK(rates.codecs[i].decode == calibration.rates.codecs[i].decode);
    }
  }
  CHECK(device_rates(copy, Rank(2)).reduce == device_rates("A100").reduce);
}

}  // namespace
}  // namespace rackrail::plan::calibration_test

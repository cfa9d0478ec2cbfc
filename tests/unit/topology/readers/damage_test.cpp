// Damaged files: each reader gives a topology or a ConfigError of one line, whatever it is fed.
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/random.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/skip.hpp"
#include "tests/unit/topology/graphs.hpp"
#include "topology/reader.hpp"

namespace rackrail::damage_test {

using namespace rackrail;
using namespace rackrail::topology;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kSeed = 20240611;

/// Whether the content was accepted; anything but a ConfigError of one line fails the test.
bool is_accepted(const Reader& reader, const fs::path& name, const std::string& content) {
  try {
    (void)reader.read(name, content, {});
    return true;
  } catch (const ConfigError& e) {
    const std::string message = e.what();
    CHECK(message.find('\n') == std::string::npos);
    CHECK_FALSE(message.empty());
    return false;
  } catch (const OverflowError&) {
    return false;  // read_cluster makes a ConfigError of it
  }
}

void feed_truncations(const Reader& reader, const fs::path& name, const std::string& content,
                      std::size_t step) {
  for (std::size_t size = 0; size <= content.size(); size += step) {
    is_accepted(reader, name, content.substr(0, size));
  }
}

void feed_mutations(const Reader& reader, const fs::path& name, const std::string& content,
                    std::uint64_t count) {
  CAPTURE(kSeed);
  using namespace std::string_literals;
  static const std::string kBytes = "\0\n:{}[]<>\"'&*-09 \xff\t,#"s;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::string damaged = content;
    for (std::uint64_t k = 0; k < 1 + i % 4; ++k) {
      const std::uint64_t bits = random_bits(kSeed + k, i);
      damaged[bits % damaged.size()] = kBytes[(bits >> 40U) % kBytes.size()];
    }
    is_accepted(reader, name, damaged);
  }
}

const Reader& reader_named(std::string_view format) {
  for (const std::unique_ptr<Reader>& reader : readers()) {
    if (reader->format() == format) return *reader;
  }
  throw std::runtime_error("no such reader");
}

}  // namespace

TEST_CASE("damaged cluster files never do more than fail") {
  for (const std::string name : {"two-racks-40g", "a100-8x8"}) {
    CAPTURE(name);
    const std::string content = read_file(configs_folder() / "clusters" / (name + ".yaml"));
    REQUIRE(is_accepted(reader_named("yaml"), "c.yaml", content));
    feed_truncations(reader_named("yaml"), "c.yaml", content, 7);
    feed_mutations(reader_named("yaml"), "c.yaml", content, 300);
  }
}

TEST_CASE("damaged flat files and edge lists never do more than fail") {
  const Topology t = read_cluster("two-racks-40g").topology;
  const std::string flat = to_flat_yaml(t);
  const std::string edges = to_edge_list(t);
  REQUIRE(is_accepted(reader_named("yaml"), "c.yaml", flat));
  REQUIRE(is_accepted(reader_named("edge-list"), "c.csv", edges));
  feed_truncations(reader_named("yaml"), "c.yaml", flat, 5);
  feed_mutations(reader_named("yaml"), "c.yaml", flat, 300);
  feed_truncations(reader_named("edge-list"), "c.csv", edges, 1);
  feed_mutations(reader_named("edge-list"), "c.csv", edges, 1000);
}

TEST_CASE("damaged NCCL files never do more than fail") {
  const fs::path folder = topology::test::shared_inputs() / "nccl-topology";
  if (!fs::is_directory(folder)) RACKRAIL_SKIP("no " + folder.string());
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    CAPTURE(entry.path());
    const std::string content = read_file(entry.path());
    feed_truncations(reader_named("nccl-xml"), "t.xml", content, 31);
    feed_mutations(reader_named("nccl-xml"), "t.xml", content, 200);
  }
}

TEST_CASE("damaged tables of GPUs never do more than fail") {
  const std::string matrix =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
      "GPU0\t X \tNV12\tSYS\tSYS\tPIX\tSYS\t0-31\t0\nGPU1\tNV12\t X \tSYS\tSYS\tPXB\tSYS\t0-31\t0\n"
      "GPU2\tSYS\tSYS\t X \tNODE\tSYS\tPIX\t32-63\t1\nGPU3\tSYS\tSYS\tNODE\t X "
      "\tSYS\tPHB\t32-63\t1\n"
      "NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\nmlx5_1\tSYS\tSYS\tPIX\tPHB\tSYS\t X \n"
      "Legend:\n  X = Self\nNIC Legend:\n  NIC0: mlx5_0\n";
  const std::string tables =
      "== Weight between two GPUs ==\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n"
      "== Hops between two GPUs ==\n GPU0 GPU1\nGPU0 0 1\nGPU1 1 0\n"
      "== Link Type between two GPUs ==\n GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n"
      "== Numa Nodes ==\nGPU[0] : (Topology) Numa Node: 0\nGPU[1] : (Topology) Numa Node: 1\n";
  for (const auto& [format, content] :
       {std::pair("nvidia-topo", matrix), std::pair("rocm-topo", tables)}) {
    CAPTURE(format);
    REQUIRE(is_accepted(reader_named(format), "topo.txt", content));
    feed_truncations(reader_named(format), "topo.txt", content, 1);
    feed_mutations(reader_named(format), "topo.txt", content, 2000);
  }
}

TEST_CASE("a damaged overlay never does more than fail") {
  const std::string xml =
      "<system><cpu><pci busid=\"1\" class=\"0x030200\"/><pci busid=\"2\" class=\"0x020000\"/>"
      "</cpu></system>";
  const std::string overlay =
      read_file(rackrail::test::source_dir() / "configs/overlays/ndv4-8-nodes.yaml");
  for (std::size_t size = 0; size <= overlay.size(); size += 13) {
    const topology::test::TextFile file("overlay.yaml", overlay.substr(0, size));
    ReadOptions options;
    options.overlay = file.path();
    try {
      (void)reader_named("nccl-xml").read("t.xml", xml, options);
    } catch (const ConfigError& e) {
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
    }
  }
}

TEST_CASE("every reader refuses what is random, with one line") {
  for (const std::unique_ptr<Reader>& reader : readers()) {
    CAPTURE(reader->format(), kSeed);
    for (std::uint64_t i = 0; i < 200; ++i) {
      std::string noise;
      for (std::uint64_t k = 0; k < i; ++k) noise += static_cast<char>(random_bits(i + kSeed, k));
      CHECK_FALSE(is_accepted(*reader, "noise", noise));
    }
  }
}

}  // namespace rackrail::damage_test

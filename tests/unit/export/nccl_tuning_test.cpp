#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/error.hpp"
#include "export/exporter.hpp"
#include "export/nccl/plugin/table.hpp"
#include "export/nccl/tuner_page.hpp"
#include "export/nccl/tuning.hpp"
#include "topology/reader.hpp"

namespace rackrail::exporting {

namespace {

topology::Topology boxes(int hosts, const std::string& device_class = "A100",
                         const std::string& nvswitch = "") {
  return topology::read_cluster_text(
             "boxes.yaml",
             "name: boxes\n"
             "node_types:\n"
             "  box:\n"
             "    gpus: 4\n"
             "    device_class: " +
                 device_class +
                 "\n"
                 "    nvlink: { bandwidth: 300 GB/s, latency: 300 ns" +
                 nvswitch +
                 " }\n"
                 "    pcie: { bandwidth: 31.5 GB/s, latency: 500 ns }\n"
                 "    nics: { count: 4, bandwidth: 200 Gbit/s, latency: 1 us }\n"
                 "racks: { hosts: " +
                 std::to_string(hosts) + " }\n")
      .topology;
}

}  // namespace

TEST_CASE("a choice other than NCCL's is one that the model says is faster by what is worth it",
          "[export]") {
  const bool has_sharp = GENERATE(false, true);
  const int hosts = has_sharp ? 4 : 2;
  const topology::Topology cluster =
      boxes(hosts, "H100", has_sharp ? ", multicasts: true, reduces: true" : "");
  const sim::nccl::Parameters parameters = sim::nccl::usual_parameters();
  const auto shapes = nccl::tune_all_reduces(cluster, parameters, {});
  CHECK(shapes.front().nodes == 1);
  CHECK(shapes.back().nodes == static_cast<std::size_t>(hosts));
  for (const nccl::ShapeTuning& shape : shapes) {
    REQUIRE(shape.sizes.size() == 24);
    const sim::nccl::Machine machine(cluster, shape.nodes, shape.gpus_per_node);
    for (const nccl::SizeTuning& size : shape.sizes) {
      const auto time_of = [&](const nccl::Setting& setting) {
        sim::nccl::Parameters with_chunk = parameters;
        if (setting.chunk > Bytes(0)) {
          with_chunk.nvls_tree_chunk = setting.chunk;
        }
        return sim::nccl::all_reduce(machine, size.size, {setting.algorithm, setting.protocol},
                                     with_chunk)
            .time;
      };
      const sim::nccl::Tuned usual = sim::nccl::tune(machine, size.size, {});
      CHECK(size.usual.algorithm == usual.algorithm);
      CHECK(size.usual.protocol == usual.protocol);
      CHECK(size.usual_time == time_of(size.usual));
      CHECK(size.time == time_of(size.chosen));
      if (size.is_overridden()) {
        CHECK(size.gain() >= nccl::kWorthOverriding);
        // NCCL before 2.30 does not ask for a chunk: the choice is worth it or NCCL's without one.
        nccl::Setting without = size.chosen;
        without.chunk = Bytes(0);
        CHECK((without == size.usual ||
               time_of(without) <= scaled(size.usual_time, 1 - nccl::kWorthOverriding)));
      } else {
        CHECK(size.time == size.usual_time);
      }
    }
  }
}

TEST_CASE("the table of a cluster is what its tuning says, by the plugin's parser", "[export]") {
  const topology::Topology cluster = boxes(2);
  ExportOptions options;
  double share = -1;
  options.progress = [&](double now) {
    CHECK(now >= share);
    share = now;
  };
  const auto files = exporter_of("nccl-tuner").write({cluster}, options);
  REQUIRE(files.size() == 1);
  CHECK(files.front().name == "rackrail-tuner.csv");
  CHECK(share > 0.9);
  const nccl_tuner::Table table = nccl_tuner::parse_table(files.front().content);
  REQUIRE(table.problem.empty());
  for (const nccl::ShapeTuning& shape : nccl::tune_all_reduces(cluster, options.nccl, {})) {
    for (const nccl::SizeTuning& size : shape.sizes) {
      const nccl_tuner::Question question{4, static_cast<std::size_t>(size.size.count()),
                                          shape.nodes, shape.ranks()};
      const auto rule = std::ranges::find_if(
          table.rules, [&](const nccl_tuner::Rule& one) { return matches(one, question); });
      REQUIRE((rule != table.rules.end()) == size.is_overridden());
      if (size.is_overridden()) {
        CHECK(name_of(rule->algorithm) == nccl::table_name(size.chosen.algorithm));
        CHECK(name_of(rule->protocol) == nccl::table_name(size.chosen.protocol));
      }
    }
  }
}

TEST_CASE("the page has a table for each number of hosts and the plugin's name", "[export]") {
  const topology::Topology cluster = boxes(3, "MI300X");
  const std::string page =
      nccl::tuner_page(cluster, nccl::tune_all_reduces(cluster, sim::nccl::usual_parameters(), {}));
  for (const char* part : {"### 1 x 4 GPUs", "### 2 x 4 GPUs", "### 3 x 4 GPUs", "8.00 GiB",
                           "librackrail-nccl-tuner.so", "rccl_tuner_gfx942.csv"}) {
    INFO(part);
    CHECK(page.find(part) != std::string::npos);
  }
}

TEST_CASE("what NCCL does not run on is refused by name", "[export]") {
  const auto found_of = [](const topology::Topology& cluster, const char* kind) -> std::string {
    try {
      exporter_of(kind).write({cluster}, {});
    } catch (const ConfigError& error) {
      return error.context().found;
    }
    return "nothing";
  };
  const topology::Topology hosts =
      topology::read_cluster_text("hosts.csv",
                                  "source,target,bandwidth,latency\nhost0,host1,1 GB/s,1 us\n")
          .topology;
  CHECK(found_of(hosts, "nccl-tuner") == "rank 0 ('host0') is no GPU");
  CHECK(found_of(boxes(2), "rccl-tuner") == "GPUs of class A100");
  CHECK_THROWS_AS(exporter_of("nccl"), ConfigError);
}

}  // namespace rackrail::exporting

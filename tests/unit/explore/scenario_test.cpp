#include "explore/scenario.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "explore/cells.hpp"
#include "tests/support/paths.hpp"
#include "topology/reader.hpp"

namespace rackrail::explore::scenario_test {
namespace {

constexpr const char* kHead = "cluster: two-racks-40g\nworkload: resnet-50\n";

class Files {
 public:
  Scenario read(const std::string& content) const {
    const auto path = folder_.path() / "scenario.yaml";
    write_file_atomically(path, content);
    return read_scenario(path);
  }
  void write(const std::string& name, const std::string& content) const {
    write_file_atomically(folder_.path() / name, content);
  }

 private:
  test::TemporaryDirectory folder_;
};

std::vector<std::vector<std::string>> values_of(const Cells& cells) {
  std::vector<std::vector<std::string>> all;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::vector<std::string> values;
    for (const auto& [path, value] : cells.at(i).varied) {
      values.push_back(value);
    }
    all.push_back(values);
  }
  return all;
}

TEST_CASE("a scenario says everything, or leaves it at its default") {
  const Files files;
  const Scenario plain = files.read(fmt::format("{}vary: {{plan.local_batch: [8]}}\n", kHead));
  CHECK(plain.name == "scenario");
  CHECK_FALSE(plain.trials.has_value());
  CHECK(plain.repetitions == 1);
  CHECK(plain.objective->name == "step_time_s");
  CHECK(plain.seed == 0);
  const Scenario full = files.read(
      fmt::format("{}name: n\nplan: {{codec: fp16}}\nvary: {{plan.local_batch: [8]}}\n"
                  "search: {{random: {{trials: 9}}}}\nrepetitions: 3\nobjective: throughput\n"
                  "seed: 5\n",
                  kHead));
  CHECK(full.name == "n");
  CHECK(full.plan.at("codec") == "fp16");
  CHECK(full.trials == 9);
  CHECK(full.repetitions == 3);
  CHECK(full.objective->more_is_better);
  CHECK(full.seed == 5);
}

TEST_CASE("what a scenario cannot say is refused with line, field and what could be there") {
  const Files files;
  const auto [text, where, found, expected] =
      GENERATE(table<std::string, std::string, std::string, std::string>({
          {"vary: {cluster.network.core.bandwdth: [1]}", "network.core.bandwdth", "no such field",
           "cluster.network.core.bandwidth"},
          {"vary: {cluster.network.kore.bandwidth: [1]}", "line 3", "no such field",
           "cluster.network.core.bandwidth"},
          {"vary: {cluster.network.core: [1]}", "line 3", "a map", "cluster.network.core."},
          {"vary: {workload.forwards: [1 s]}", "workload.forwards", "no such field",
           "workload.forward"},
          {"vary: {plan.batch: [1]}", "plan.batch", "no such option", "local_batch"},
          {"vary: {plan.local_batch: [1, many]}", "plan.local_batch", "'many'", "whole number"},
          {"vary: {plan.error_budget: [nan]}", "plan.error_budget", "'nan'", "a number"},
          {"vary: {plan.schedule: [rings]}", "plan.schedule", "rings", "ring"},
          {"vary: {network: [1]}", "network", "nothing known", "cluster.<field>"},
          {"vary: {}", "vary", "nothing", "at least one"},
          {"vary: {plan.local_batch: [1]}\nplan: {local_batch: 4}", "plan.local_batch", "here and",
           "one of the two"},
          {"vary: {plan.local_batch: [1]}\nplan: {codec: gzip}", "plan.codec", "gzip", "int8"},
          {"vary: {plan.local_batch: [1]}\nsearch: maze", "search", "maze", "grid"},
          {"vary: {plan.local_batch: [1]}\nsearch: {random: {}}", "search.random", "", "trials"},
          {"vary: {plan.local_batch: [1]}\nobjective: fun", "objective", "fun", "throughput"},
          {"vary: {plan.local_batch: [1]}\nrepetitions: 0", "repetitions", "0", "from 1"},
          {"vary: {plan.local_batch: [1]}\nsteps: 3", "line 4", "steps", "vary"},
          {"name: x", "", "", "vary"},
      }));
  INFO(text);
  try {
    files.read(kHead + text + "\n");
    FAIL("it was read");
  } catch (const ConfigError& e) {
    const std::string message = e.what();
    INFO(message);
    CHECK(e.context().file.find("scenario.yaml") != std::string::npos);
    for (const std::string& part : {where, found, expected}) {
      CHECK(message.find(part) != std::string::npos);
    }
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("a field that the cluster could have but has not can be varied") {
  const Files files;
  const Scenario scenario =
      files.read(fmt::format("{}vary: {{cluster.network.core.cables: [1, 2]}}\n", kHead));
  const Cells cells(scenario);
  REQUIRE(cells.size() == 2);
  const auto uplink = [&](std::size_t i) {
    const Cell cell = cells.at(i);
    const auto cluster = topology::read_cluster_text(cell.cluster.file, cell.cluster.text).topology;
    for (std::size_t l = 0; l < cluster.link_count(); ++l) {
      if (cluster.link(LinkId(l)).tier == "rack-uplink") {
        return cluster.link(LinkId(l)).bandwidth;
      }
    }
    return Bandwidth();
  };
  CHECK(uplink(0) == 40_Gbps);
  CHECK(uplink(1) == 80_Gbps);
}

TEST_CASE("clusters of other formats and files beside the scenario can be varied") {
  const Files files;
  files.write("pair.csv", "source,target,bandwidth,latency\nhost0,host1,10 Gbit/s,2 us\n");
  files.write("model.csv", "tensor,elements,ready_gap_us\na,1000,5\nb,2000,7\n");
  const Scenario scenario = files.read(
      "cluster: pair.csv\nworkload: model.csv\n"
      "vary: {\"cluster.links[0].bandwidth\": [3 GB/s], workload.forward: [9 ms]}\n");
  const Cell cell = Cells(scenario).at(0);
  const auto cluster = topology::read_cluster_text(cell.cluster.file, cell.cluster.text).topology;
  CHECK(cluster.rank_count() == 2);
  CHECK(cluster.link(LinkId(0)).bandwidth == 3_GBps);
  const auto workload = plan::read_workload_text(cell.workload.text, cell.workload.file);
  CHECK(workload.forward == 9_ms);
  CHECK(workload.elements() == 3000);
}

TEST_CASE("a grid has every combination once, the last field changing fastest") {
  const Files files;
  const Scenario scenario = files.read(
      fmt::format("{}vary:\n  plan.codec: [none, fp16]\n  plan.local_batch: [1, 2, 3]\n", kHead));
  CHECK(values_of(Cells(scenario)) == std::vector<std::vector<std::string>>{{"none", "1"},
                                                                            {"none", "2"},
                                                                            {"none", "3"},
                                                                            {"fp16", "1"},
                                                                            {"fp16", "2"},
                                                                            {"fp16", "3"}});
  const Files more;
  CHECK_THROWS_AS(Cells(more.read(fmt::format(
                      "{}vary:\n  plan.local_batch: {{from: 1, to: 5000, steps: 5000}}\n"
                      "  plan.error_budget: {{from: 0, to: 1, steps: 5000}}\n",
                      kHead))),
                  ConfigError);
}

TEST_CASE("random cells are different ones, reproducible, and as many as there can be") {
  const Files files;
  const std::string text =
      fmt::format("{}vary:\n  plan.codec: [none, fp16]\n  plan.local_batch: [1, 2, 3]\n", kHead);
  const auto cells_of = [&](int trials, int seed) {
    const Scenario scenario = files.read(
        text + fmt::format("search: {{random: {{trials: {}}}}}\nseed: {}\n", trials, seed));
    return values_of(Cells(scenario));
  };
  const auto four = cells_of(4, 1);
  CHECK(four.size() == 4);
  CHECK(std::set(four.begin(), four.end()).size() == 4);
  CHECK(cells_of(4, 1) == four);
  CHECK(cells_of(4, 2) != four);
  // 20·50 draws of six combinations: one is missing once in 10⁷⁸.
  CHECK(cells_of(50, 1).size() == 6);
}

TEST_CASE("the digest is that of all a result depends on, and of nothing else") {
  const Files files;
  const auto digest = [&](const std::string& text) {
    const Scenario scenario = files.read(kHead + text);
    return Cells(scenario).at(0).digest();
  };
  const std::string vary = "vary: {plan.local_batch: [4]}\n";
  const std::string base = digest(vary);
  CHECK(digest("name: other\n" + vary) == base);
  CHECK(digest("objective: gap\n" + vary) == base);
  CHECK(digest("plan: {local_batch: 4}\nvary: {plan.codec: [none]}\n") ==
        digest("plan: {codec: none}\nvary: {plan.local_batch: [4]}\n"));
  std::set<std::string> all{base};
  for (const std::string& other :
       {std::string("vary: {plan.local_batch: [8]}\n"), "seed: 1\n" + vary,
        "repetitions: 2\n" + vary, "plan: {codec: none}\n" + vary,
        std::string("vary: {plan.local_batch: [4], cluster.racks.hosts: [3]}\n"),
        std::string("vary: {plan.local_batch: [4], workload.forward: [3 ms]}\n")}) {
    INFO(other);
    CHECK(all.insert(digest(other)).second);
  }
}

TEST_CASE("a result depends on the files that its faults name") {
  const test::TemporaryDirectory folder;
  Cell cell;
  cell.faults =
      Source{folder.path() / "faults.yaml", "links: [{ link: host0→tor, capacity: uplink.csv }]\n"};
  const std::string absent = cell.digest();
  write_file_atomically(folder.path() / "uplink.csv", "0 s,1 Gbit/s\n");
  const std::string slow = cell.digest();
  CHECK(slow != absent);
  CHECK(cell.digest() == slow);
  write_file_atomically(folder.path() / "uplink.csv", "0 s,2 Gbit/s\n");
  CHECK(cell.digest() != slow);
}

TEST_CASE("the shipped scenarios can be read") {
  std::size_t count = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_dir() / "configs" / "scenarios")) {
    if (entry.path().extension() == ".yaml") {
      INFO(entry.path().string());
      const Scenario scenario = read_scenario(entry.path());
      CHECK(Cells(scenario).size() > 1);
      ++count;
    }
  }
  CHECK(count >= 2);
}

}  // namespace
}  // namespace rackrail::explore::scenario_test

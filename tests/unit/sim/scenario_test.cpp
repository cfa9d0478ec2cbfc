#include "sim/scenario.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"

namespace rackrail::sim::scenario_test {
namespace {

using topology::NodeKind;
using topology::Topology;

// Two hosts on a switch; links 0 to 3: a→tor, tor→a, b→tor, tor→b.
Topology cluster() {
  Topology topology("cluster");
  const NodeId tor = topology.add_node({.name = "tor", .kind = NodeKind::kTor});
  for (const char* name : {"a", "b"}) {
    const NodeId host = topology.add_node({.name = name, .kind = NodeKind::kHost, .host = name});
    topology.add_rank(host);
    topology.add_duplex_link({.from = host, .to = tor, .bandwidth = 10_Gbps, .tier = "nic"});
  }
  return topology;
}

SimulationOptions parse(const std::string& text) {
  return parse_scenario("s.yaml", text, cluster()).options;
}

TEST_CASE("several connections need hashed routes") {
  CHECK(parse("multipath: ecmp\n").connections == 1);
  CHECK(parse("multipath: ecmp\nconnections: 4\n").connections == 4);
  CHECK_THROWS_WITH(parse("connections: 4\n"), Catch::Contains("multipath: ecmp"));
  CHECK_THROWS_WITH(parse("multipath: spray\nconnections: 2\n"), Catch::Contains("line 2"));
  CHECK_THROWS_AS(parse("multipath: ecmp\nconnections: 0\n"), ConfigError);
}

TEST_CASE("a link of a cluster that has none is an error like others") {
  Topology alone("alone");
  alone.add_rank(alone.add_node({.name = "a", .kind = NodeKind::kHost, .host = "a"}));
  CHECK_THROWS_WITH(parse_scenario("s.yaml", "links: [{ link: a→b, cut: true }]\n", alone),
                    Catch::Contains("found 'a→b', expected no 'links': the cluster has none"));
}

TEST_CASE("a scenario with everything") {
  const SimulationOptions options = parse(R"(
name: everything
steps: 20
staleness: 2
local_steps: 4
network: packet
seed: 7
loading: { batch: 20 ms, prefetch: 3 }
slow_devices:
  - { ranks: [1], factor: 1.5, first_step: 10, last_step: 12 }
  - { sigma: 0.25 }
links:
  - { link: a→tor, from: 1 s, until: 2 s, bandwidth: 1 Gbit/s }
  - { tier: nic, from: 3 s, cut: true }
background:
  - { from: 0, to: 1, message: 1 MB, every: 10 ms, start: 1 s, rate: 2 Gbit/s }
)");
  CHECK(options.steps == 20);
  CHECK(options.staleness == 2);
  CHECK(options.local_steps == 4);
  CHECK(options.network == NetworkLevel::kPacket);
  REQUIRE(options.loading.has_value());
  CHECK(options.loading->batch == 20_ms);
  CHECK(options.loading->prefetch == 3);
  const Disturbances& disturbances = options.disturbances;
  CHECK(disturbances.seed == 7);
  REQUIRE(disturbances.slow_devices.size() == 2);
  CHECK(disturbances.slow_devices[0].ranks == std::vector{Rank(1)});
  CHECK(disturbances.slow_devices[0].factor == 1.5);
  CHECK(disturbances.slow_devices[0].first_step == 10);
  CHECK(disturbances.slow_devices[0].last_step == 12);
  CHECK(disturbances.slow_devices[1].ranks.empty());
  CHECK(disturbances.slow_devices[1].sigma == 0.25);
  REQUIRE(disturbances.capacity.size() == 2 + 4);
  CHECK(disturbances.capacity[0].link == LinkId(0));
  CHECK(disturbances.capacity[0].at == 1000_ms);
  CHECK(disturbances.capacity[0].bandwidth == 1_Gbps);
  CHECK(disturbances.capacity[1].at == 2000_ms);
  CHECK(disturbances.capacity[1].bandwidth == 10_Gbps);
  CHECK(disturbances.capacity[5].bandwidth == Bandwidth(0));
  REQUIRE(disturbances.background.size() == 1);
  CHECK(disturbances.background[0].src == Rank(0));
  CHECK(disturbances.background[0].dst == Rank(1));
  CHECK(disturbances.background[0].message == Bytes(1'000'000));
  CHECK(disturbances.background[0].every == 10_ms);
  CHECK(disturbances.background[0].start == 1000_ms);
  CHECK(disturbances.background[0].cap == 2_Gbps);
}

TEST_CASE("jobs of one plan file have different names") {
  const Scenario scenario = parse_scenario("s.yaml", R"(
jobs:
  - { plan: other.json }
  - { plan: other.json }
  - { plan: mine.json, name: other 2 }
  - { plan: other.json }
)",
                                           cluster());
  std::vector<std::string> names;
  for (const JobPlace& job : scenario.jobs) {
    names.push_back(job.name);
  }
  CHECK(names == std::vector<std::string>{"other", "other 2", "other 2 2", "other 3"});
}

TEST_CASE("an empty scenario changes nothing") {
  const SimulationOptions options = parse("{}");
  CHECK(options.disturbances.empty());
  CHECK(options.steps == 1);
  CHECK_FALSE(options.loading.has_value());
}

TEST_CASE("a flapping link goes down and up until its end") {
  const auto changes =
      parse("links: [{ link: a→tor, flapping: { every: 100 ms, for: 30 ms }, until: 220 ms }]")
          .disturbances.capacity;
  REQUIRE(changes.size() == 6);
  CHECK(changes[2].at == 100_ms);
  CHECK(changes[2].bandwidth == Bandwidth(0));
  CHECK(changes[3].at == 130_ms);
  CHECK(changes[3].bandwidth == 10_Gbps);
  CHECK(changes[5].at == 220_ms);
}

TEST_CASE("of entries for a link at the same time the slowest counts") {
  const auto changes = parse(R"(
links:
  - { link: a→tor, from: 5 ms, until: 20 ms, bandwidth: 5 Gbit/s }
  - { link: a→tor, from: 10 ms, until: 12 ms, cut: true }
  - { link: a→tor, from: 11 ms, until: 30 ms, bandwidth: 8 Gbit/s }
  - { tier: nic, from: 40 ms, bandwidth: 20 Gbit/s }
)")
                           .disturbances.capacity;
  std::vector<std::pair<Duration, Bandwidth>> of_first;
  for (const CapacityChange& change : changes) {
    if (change.link == LinkId(0)) {
      of_first.emplace_back(change.at, change.bandwidth);
    }
  }
  CHECK(of_first == std::vector<std::pair<Duration, Bandwidth>>{{5_ms, 5_Gbps},
                                                                {10_ms, Bandwidth(0)},
                                                                {12_ms, 5_Gbps},
                                                                {20_ms, 8_Gbps},
                                                                {30_ms, 10_Gbps},
                                                                {40_ms, 20_Gbps}});
  CHECK(changes.size() == 6 + 3);  // and the other links of the tier
}

TEST_CASE("a name means all parallel links, and one with its number means that one") {
  topology::Topology parallel = cluster();
  const topology::Link first = parallel.link(LinkId(0));
  const LinkId second = parallel.add_link(first);
  const auto cut = [&](const std::string& name) {
    std::vector<LinkId> links;
    for (const CapacityChange& change :
         parse_scenario("s.yaml", "links: [{ link: " + name + ", cut: true }]", parallel)
             .options.disturbances.capacity) {
      links.push_back(change.link);
    }
    return links;
  };
  CHECK(cut("a->tor") == std::vector<LinkId>{LinkId(0), second});
  CHECK(cut("a→tor#1") == std::vector<LinkId>{LinkId(0)});
  CHECK(cut("'a->tor#2'") == std::vector<LinkId>{second});
  CHECK_THROWS_WITH(cut("a→tor#3"), Catch::Contains("a→tor#1"));
}

TEST_CASE("capacity over time from a file beside the scenario") {
  const auto folder = std::filesystem::temp_directory_path() / "rackrail-scenario-test";
  const std::string scenario = (folder / "s.yaml").string();
  write_file_atomically(folder / "uplink.csv",
                        "time,bandwidth\n0 s,8 Gbit/s\n# a pause\n1500 ms,0\n2 s,1 GB/s\n");
  const std::string text = "links: [{ link: tor→b, capacity: uplink.csv }]";
  const auto changes = parse_scenario(scenario, text, cluster()).options.disturbances.capacity;
  REQUIRE(changes.size() == 3);
  CHECK(changes[0].bandwidth == 8_Gbps);
  CHECK(changes[1].at == 1500_ms);
  CHECK(changes[1].bandwidth == Bandwidth(0));
  CHECK(changes[2].bandwidth == 1_GBps);
  CHECK(changes[2].link == LinkId(3));

  CHECK(files_of_scenario(scenario, text) ==
        std::vector<std::filesystem::path>{folder / "uplink.csv"});
  CHECK(files_of_scenario(scenario, "jobs: [{ plan: nowhere.json }]").empty());

  // As a spreadsheet writes it.
  write_file_atomically(folder / "uplink.csv", "time, bandwidth\r\n0 s, 8 Gbit/s\r\n");
  CHECK(parse_scenario(scenario, text, cluster()).options.disturbances.capacity.size() == 1);
  write_file_atomically(folder / "uplink.csv", "\xEF\xBB\xBFtime,bandwidth\n0 s,8 Gbit/s\n");
  CHECK(parse_scenario(scenario, text, cluster()).options.disturbances.capacity.size() == 1);
  const std::string beside = "links: [{ link: tor→b, capacity: uplink.csv, until: 2 s }]";
  CHECK_THROWS_WITH(parse_scenario(scenario, beside, cluster()),
                    Catch::Contains("times in the file alone"));
  write_file_atomically(folder / "uplink.csv", "0 s,8 Gbit/s\n1 s;9\n");
  CHECK_THROWS_WITH(parse_scenario(scenario, text, cluster()), Catch::Contains("line 2"));
  write_file_atomically(folder / "uplink.csv", "1 s,8 Gbit/s\n0 s,9 Gbit/s\n");
  CHECK_THROWS_WITH(parse_scenario(scenario, text, cluster()), Catch::Contains("not before"));
  write_file_atomically(folder / "uplink.csv", "time,bandwidth\n# nothing\n");
  CHECK_THROWS_WITH(parse_scenario(scenario, text, cluster()), Catch::Contains("no row"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("what a scenario cannot mean is refused with its place") {
  const auto [text, said] = GENERATE(
      std::pair{"linsk: []", "linsk"}, std::pair{"steps: 0", "steps"},
      std::pair{"network: atoms", "flow or packet"},
      std::pair{"slow_devices: [{ ranks: [2] }]", "slow_devices"},
      std::pair{"slow_devices: [{ ranks: [], factor: 2 }]", "no rank"},
      std::pair{"slow_devices: [{ first_step: 5, last_step: 4 }]", "last_step"},
      std::pair{"links: [{ link: a→b, cut: true }]", "such as a→tor"},
      std::pair{"links: [{ tier: uplink, cut: true }]", "a tier of the cluster"},
      std::pair{"links: [{ link: a→tor }]", "one of bandwidth, cut, flapping, capacity"},
      std::pair{"links: [{ link: a→tor, tier: host, cut: true }]", "both link and tier"},
      std::pair{"links: [{ link: a→tor, cut: true, bandwidth: 1 Gbit/s }]", "one of bandwidth"},
      std::pair{"links: [{ link: a→tor, cut: true, from: 2 s, until: 1 s }]", "after 2"},
      std::pair{"links: [{ link: a→tor, flapping: { every: 1 s, for: 1 ms } }]", "until"},
      std::pair{"links: [{ link: a→tor, flapping: { every: 1 ms, for: 2 ms }, until: 1 s }]",
                "less than every"},
      std::pair{"links: [{ link: a→tor, flapping: { every: 2 ns, for: 1 ns }, until: 1 s }]",
                "too many changes"},
      std::pair{"links: [{ link: a→tor, capacity: nowhere.csv }]", "nowhere.csv"},
      std::pair{"background: [{ from: 0, to: 0, message: 1 MB }]", "sends to itself"},
      std::pair{"background: [{ from: 0, to: 1 }]", "message"},
      std::pair{"loading: { prefetch: 2 }", "batch"},
      std::pair{"asynchronous: true\nstaleness: 1", "asynchronous"},
      std::pair{"duration: 1 h", "'outages' beside it"},
      std::pair{"checkpoint_every: 5", "'outages' beside it"});
  CAPTURE(text);
  CHECK_THROWS_AS(parse(text), ConfigError);
  CHECK_THROWS_WITH(parse(text), Catch::Contains(said));
}

}  // namespace
}  // namespace rackrail::sim::scenario_test

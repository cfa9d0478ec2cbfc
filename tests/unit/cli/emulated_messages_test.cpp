// Messages over links of an emulated network: over which, between whom, and what is predicted.
#include "cli/emulated_messages.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "cli/session.hpp"
#include "cli/temporary_folder.hpp"
#include "cli/validation_record.hpp"
#include "plan/verifier.hpp"
#include "runtime/emulate/network_plan.hpp"
#include "tests/support/clusters.hpp"

namespace rackrail::cli::emulated_messages_test {
namespace {

constexpr Duration kLinkLatency = 5_us;

/// As it is emulated: GB/s become MB/s.
topology::Topology emulated(const topology::Topology& cluster) {
  constexpr double kScale = 0.001;
  constexpr unsigned kCores = 8;
  return runtime::emulate::emulated_topology(
      cluster, runtime::emulate::plan_network(cluster, kScale, kCores),
      {.latency = kLinkLatency, .inside = Bandwidth(1'000'000'000)});
}

using Ends = std::pair<std::string, std::string>;
Ends ends_of(const topology::Topology& network, const LinkWay& way) {
  return {network.node(network.node_of(way.from)).name, network.node(network.node_of(way.to)).name};
}

std::vector<std::string> links_of(const std::vector<LinkWay>& ways) {
  std::vector<std::string> links;
  for (const LinkWay& way : ways) {
    links.push_back(way.link);
  }
  return links;
}

TEST_CASE("one link of each kind is tried, by ranks for which it is the slowest on the way") {
  const auto network = emulated(test::racks({{10, 10}, {10, 10}}, {5, 5}));
  const std::vector<LinkWay> ways = link_ways(network);
  // In the order of the cluster's links.
  REQUIRE(links_of(ways) ==
          std::vector<std::string>{"rack0-tor - core", "rack0-host0 - rack0-tor"});
  CHECK(ends_of(network, ways[0]) == Ends{"rack0-host0", "rack1-host0"});
  CHECK(ends_of(network, ways[1]) == Ends{"rack0-host0", "rack0-host1"});
  for (const LinkWay& way : ways) {
    CHECK(way.is_slowest);
    REQUIRE(way.there.size() == way.back.size());
    for (std::size_t i = 0; i < way.there.size(); ++i) {
      const topology::Link& there = network.link(way.there[i]);
      const topology::Link& back = network.link(way.back[way.back.size() - 1 - i]);
      CHECK(there.from == back.to);
      CHECK(there.to == back.from);
    }
  }
}

TEST_CASE("links of other rates are of another kind") {
  const auto network = emulated(test::racks({{10, 10, 4}, {10, 10}, {10, 10}}, {3, 5, 5}));
  const std::vector<LinkWay> ways = link_ways(network);
  CHECK(links_of(ways).size() == 4);
  CHECK(std::ranges::all_of(ways, &LinkWay::is_slowest));
}

TEST_CASE("a link without a way back is refused by its name") {
  topology::Topology network("one way");
  for (const char* name : {"a", "b", "c"}) {
    network.add_rank(network.add_node({.name = name, .kind = topology::NodeKind::kHost}));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    network.add_link({.from = NodeId(i),
                      .to = NodeId((i + 1) % 3),
                      .bandwidth = Bandwidth(1'000'000),
                      .latency = kLinkLatency});
  }
  CHECK_THROWS_WITH(link_ways(network), Catch::Contains("a→b") && Catch::Contains("no link back"));
}

TEST_CASE("a link that no two ranks can fill is tried behind slower ones, and that is said") {
  const auto network = emulated(test::racks({{10, 10}, {10, 10}}, {40, 40}));
  const std::vector<LinkWay> ways = link_ways(network);
  REQUIRE(ways.size() == 2);
  CHECK(ways[0].link == "rack0-tor - core");
  CHECK_FALSE(ways[0].is_slowest);
  CHECK(ways[1].is_slowest);
}

TEST_CASE("ranks of one machine send nothing over links") {
  const auto network = emulated(test::boxes(1, 1));
  CHECK(link_ways(network).empty());
  CHECK(plan_messages(network, {}, std::vector{1_KiB}).empty());
}

TEST_CASE("messages between machines of several ranks cross their links once") {
  const auto network = emulated(test::boxes(2, 1));
  const std::vector<LinkWay> ways = link_ways(network);
  REQUIRE(ways.size() == 1);
  CHECK(network.node(network.node_of(ways[0].from)).host !=
        network.node(network.node_of(ways[0].to)).host);
}

TEST_CASE(
    "a message takes the links' latencies, its bytes at the slowest one's rate, and half an "
    "addition") {
  const auto network = emulated(test::racks({{10, 10}, {10, 10}}, {5, 5}));
  sim::SimulationOptions simulation;
  simulation.device_rates.emplace().reduce = Bandwidth(1'000'000'000);
  const std::vector<Bytes> sizes = {1_KiB, 16_MiB};
  const std::vector<MessagePlan> plans = plan_messages(network, simulation, sizes);
  REQUIRE(plans.size() == 2);
  const std::vector<std::pair<double, int>> rates_and_links = {{5e6, 4}, {10e6, 2}};
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const auto& [rate, links] = rates_and_links[i];
    const MessagePlan& messages = plans[i];
    CHECK(messages.ranks.size() == 2);
    CHECK(plan::verify(messages.plan, nullptr, nullptr).problems == std::vector<std::string>{});
    REQUIRE(messages.cases.size() == sizes.size());
    REQUIRE(messages.plan.buckets.size() == sizes.size());
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      CAPTURE(i, s);
      CHECK(messages.cases[s].size == sizes[s]);
      CHECK(messages.plan.buckets[s].elements * 4 == sizes[s].count());
    }
    // Bursts let a part of the small one pass at once, and hardly count in the large one.
    const double latency = links * kLinkLatency.seconds();
    const auto bytes = static_cast<double>(sizes[1].count());
    CHECK(messages.cases[1].predicted.seconds() ==
          Approx(latency + bytes / rate + bytes / 1e9 / 2).epsilon(0.01));
    const double small = static_cast<double>(sizes[0].count());
    CHECK(messages.cases[0].predicted.seconds() > latency);
    CHECK(messages.cases[0].predicted.seconds() <= latency + small / rate + small / 1e9);
  }
}

TEST_CASE("no sizes are no messages, over whatever links") {
  CHECK(plan_messages(emulated(test::two_racks()), {}, {}).empty());
}

TEST_CASE("the record has messages beside all-reduces, and counts their errors") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.file("record.json");
  Session session;
  session.json = true;  // nothing is printed meanwhile
  ValidationRecord record(session, file);
  EmulatedMessage message{.link = "tor0 - core",
                          .from = "host0",
                          .to = "host2",
                          .is_slowest = true,
                          .size = 64_KiB,
                          .predicted = 3_ms,
                          .measured = 2_ms};
  MessagePlan messages{.plan = {}, .ranks = {}, .cases = {message, message}};
  record.begin({}, {}, {messages}, {}, 1);
  CHECK_FALSE(record.errors());
  record.add(message);
  REQUIRE(record.errors());
  CHECK(record.errors()->worst == Approx(0.5));
  const nlohmann::json saved = nlohmann::json::parse(read_file(file));
  message.size = 32_KiB;  // shown, but not judged
  message.measured = 1_ms;
  record.add(message);
  CHECK(record.errors()->worst == Approx(0.5));
  CHECK(nlohmann::json::parse(read_file(file))["messages"].size() == 2);
  CHECK(saved["planned_messages"] == 2);
  REQUIRE(saved["messages"].size() == 1);
  const nlohmann::json& row = saved["messages"][0];
  CHECK(row["link"] == "tor0 - core");
  CHECK(row["from"] == "host0");
  CHECK(row["to"] == "host2");
  CHECK(row["is_slowest"] == true);
  CHECK(row["bytes"] == 65536);
  CHECK(row["predicted_s"].get<double>() == Approx(0.003));
  CHECK(row["measured_s"].get<double>() == Approx(0.002));
  CHECK(row["relative_error"].get<double>() == Approx(0.5));
}

}  // namespace
}  // namespace rackrail::cli::emulated_messages_test

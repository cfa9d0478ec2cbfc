#include "runtime/emulate/commands.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "topology/reader.hpp"

namespace rackrail::runtime::emulate::commands_test {
namespace {

NetworkPlan pair_plan() {
  return plan_network(
      topology::read_cluster_text(
          "pair.csv",
          "source,target,bandwidth,latency,kind\n"
          "host0,tor,1 Gbit/s,1 us,host-link\nhost1,tor,400 Mbit/s,1 us,host-link\n",
          {})
          .topology,
      1, 2);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_CASE("emulate commands: queues and bursts stay where they were found to be right") {
  CHECK(queue_limit(1000_Mbps) == Bytes(750'000));
  CHECK(queue_limit(800_Mbps) == Bytes(600'000));
  CHECK(queue_limit(500_Mbps) == Bytes(500'000));
  CHECK(queue_limit(1_Mbps) == Bytes(500'000));
  CHECK(queue_limit(40_Gbps) == Bytes(750'000));
  CHECK(send_buffer(8_Mbps) == 128_KiB);
  CHECK(send_buffer(100_Mbps) == Bytes(400'000));
  CHECK(send_buffer(250_Mbps) == Bytes(1'000'000));
  CHECK(send_buffer(500_Mbps) == 128_KiB);
  CHECK(send_buffer(40_Gbps) == Bytes(5'000'000));
  CHECK(burst_size(1_Mbps) == 64_KiB);
  CHECK(burst_size(4_Gbps) == Bytes(250'000));
}

TEST_CASE("emulate commands: tc takes the rate in bytes per second") {
  CHECK(tc_rate(1_Gbps) == "125000000bps");
}

TEST_CASE("emulate commands: every link is a pair, and so is every host's way to the leader") {
  const NetworkPlan plan = pair_plan();
  const auto lines = lines_of(link_commands(
      plan, [](std::size_t i) { return fmt::format("/ns/{}", i); }, "/ns/management"));
  CHECK(
      lines ==
      std::vector<std::string>{
          "link add name rail0 netns /ns/0 mtu 9000 type veth peer name port0 netns /ns/2 mtu 9000",
          "link add name rail0 netns /ns/1 mtu 9000 type veth peer name port1 netns /ns/2 mtu 9000",
          "link add name mgmt0 netns /ns/0 mtu 9000 type veth peer name host0 netns "
          "/ns/management mtu 9000",
          "link add name mgmt0 netns /ns/1 mtu 9000 type veth peer name host1 netns "
          "/ns/management mtu 9000"});
}

TEST_CASE("emulate commands: both ends of a link are shaped, the management network is not") {
  const NetworkPlan plan = pair_plan();
  std::string all;
  for (std::size_t i = 0; i < plan.stations.size(); ++i) {
    all += shaping_commands(plan, i);
  }
  CHECK(all.find("mgmt") == std::string::npos);
  std::size_t roots = 0;
  std::size_t classes = 0;
  std::size_t queues = 0;  // first in, first out, and shallow
  for (const std::string& line : lines_of(all)) {
    roots += line.ends_with("root handle 1: htb default 1") ? 1 : 0;
    classes += line.starts_with("class add") ? 1 : 0;
    const bool has_queue = line.ends_with("parent 1:1 handle 10: bfifo limit 500000") ||
                           line.ends_with("parent 1:1 handle 10: bfifo limit 750000");
    queues += has_queue ? 1 : 0;
  }
  CHECK(roots == 2 * plan.links.size());
  CHECK(classes == 2 * plan.links.size());
  CHECK(queues == 2 * plan.links.size());
  CHECK(shaping_commands(plan, 1).find("rate 50000000bps ceil 50000000bps") != std::string::npos);
}

TEST_CASE("emulate commands: hosts have two addresses, switches a bridge with one") {
  const NetworkPlan plan = pair_plan();
  CHECK(station_commands(plan, 0) ==
        "link set dev lo up\n"
        "address add 10.78.0.2/16 dev mgmt0\nlink set dev mgmt0 up\n"
        "address add 10.77.0.2/16 dev rail0\nlink set dev rail0 up\n"
        "route change 10.77.0.0/16 dev rail0 proto kernel scope link src 10.77.0.2 rto_min 60ms\n");
  const std::string tor = station_commands(plan, 2);
  CHECK(tor.find("type bridge stp_state 0") != std::string::npos);
  CHECK(tor.find("address add 10.77.0.4/16 dev bridge0\n") != std::string::npos);
  CHECK(tor.find("link set dev port1 master bridge0 up\n") != std::string::npos);
}

}  // namespace
}  // namespace rackrail::runtime::emulate::commands_test

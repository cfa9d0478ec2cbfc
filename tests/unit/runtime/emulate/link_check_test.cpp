#include "runtime/emulate/link_check.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/support/skip.hpp"
#include "topology/reader.hpp"

namespace rackrail::runtime::emulate::link_check_test {
namespace {

NetworkPlan star(const std::vector<std::string>& rates) {
  std::string rows = "source,target,bandwidth,latency,kind\n";
  for (std::size_t i = 0; i < rates.size(); ++i) {
    rows += fmt::format("host{},tor,{},1 us,host-link\n", i, rates[i]);
  }
  return plan_network(topology::read_cluster_text("star.csv", rows, {}).topology, 1, 100);
}

TEST_CASE("emulate check: groups are within their bounds and have every link once") {
  const NetworkPlan plan =
      star({"100 Mbit/s", "300 Mbit/s", "900 Mbit/s", "50 Mbit/s", "50 Mbit/s", "50 Mbit/s"});
  const std::vector<std::size_t> links{0, 1, 2, 3, 4, 5};
  for (const std::size_t most : {1, 2, 3, 100}) {
    for (const Bandwidth together : {100_Mbps, 400_Mbps, 10_Gbps}) {
      CAPTURE(most, together.bytes_per_second());
      std::vector<std::size_t> seen;
      for (const auto& group : measurement_groups(plan, links, together, most)) {
        CHECK(!group.empty());
        CHECK(group.size() <= most);
        Bandwidth sum;
        for (const std::size_t i : group) {
          sum = sum + plan.links[i].rate_ab;
          seen.push_back(i);
        }
        CHECK((sum <= together || group.size() == 1));
      }
      CHECK(seen == links);
    }
  }
  CHECK(measurement_groups(plan, links, 10_Gbps, 100).size() == 1);
  CHECK(measurement_groups(plan, {1, 4}, 10_Gbps, 100) ==
        std::vector<std::vector<std::size_t>>{{1, 4}});
}

TEST_CASE("emulate check: three per cent is held, more is not, on either side") {
  LinkMeasurement one{.link = 0, .expected = Bandwidth(1000), .measured = Bandwidth()};
  for (const std::int64_t near : {971, 1000, 1029}) {
    one.measured = Bandwidth(near);
    CHECK(one.is_held());
  }
  for (const std::int64_t off : {0, 969, 1031, 2000}) {
    one.measured = Bandwidth(off);
    CHECK_FALSE(one.is_held());
  }
}

TEST_CASE("emulate check: a link's measured rate is the one it was given, not its neighbour's") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const EmulatedNetwork network(star({"40 Mbit/s", "160 Mbit/s"}));
  const auto measured = check_links(network, {.cores = 2});
  REQUIRE(measured.size() == 4);
  for (const LinkMeasurement& one : measured) {
    CAPTURE(one.link, one.is_reverse, one.expected.bytes_per_second());
    // Rates this low are held on a busy machine, too; a link without a limit carries gigabits.
    CHECK(one.measured / one.expected == Approx(1).margin(0.1));
    // 8948 of 9014 bytes are payload.
    const double rate = one.link == 0 ? 5e6 : 20e6;
    CHECK(static_cast<double>(one.expected.bytes_per_second()) == Approx(rate * 8948 / 9014));
  }
}

TEST_CASE("emulate check: a link that is off stays off, however often it is measured", "[slow]") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const EmulatedNetwork network(star({"40 Mbit/s", "40 Mbit/s"}));
  const ShapedLink& slow = network.plan().links[1];
  {
    const InNamespace inside(network.station(slow.a));
    const std::string halved = fmt::format(
        "tc class change dev {} parent 1: classid 1:1 htb rate 20mbit ceil 20mbit burst 64kb",
        slow.port_a);
    REQUIRE(std::system(halved.c_str()) == 0);
  }
  const auto measured = check_links(network, {.cores = 2});
  REQUIRE(measured.size() == 4);
  for (const LinkMeasurement& one : measured) {
    CAPTURE(one.link, one.is_reverse);
    const double share = one.link == 1 && !one.is_reverse ? 0.5 : 1;
    CHECK(one.measured / one.expected == Approx(share).margin(0.1));
    CHECK((share == 1 || !one.is_held()));
  }
}

TEST_CASE("emulate check: can be cancelled") {
  if (const std::string reason = namespaces_unavailable(); !reason.empty()) {
    RACKRAIL_SKIP(reason);
  }
  const EmulatedNetwork network(star({"40 Mbit/s", "40 Mbit/s"}));
  CHECK(check_links(network, {.cores = 1, .is_cancelled = [] { return true; }}).empty());
}

}  // namespace
}  // namespace rackrail::runtime::emulate::link_check_test

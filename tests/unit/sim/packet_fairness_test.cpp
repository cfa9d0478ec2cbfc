// The packet level where machines differ: shares of links by DCQCN, and windows by trimming.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "sim/packet_network.hpp"

namespace rackrail::sim::packet_fairness_test {
namespace {

using topology::Topology;

constexpr Bandwidth kNarrow(8'000'000'000);

/// Hosts with links of these rates, whose routes all end with one link of kNarrow.
struct Funnel {
  Topology topology{"funnel"};
  std::vector<std::vector<LinkId>> routes;
};

Funnel make_funnel(const std::vector<Bandwidth>& rates, Duration latency) {
  Funnel funnel;
  const NodeId hub = funnel.topology.add_node({.name = "hub"});
  const NodeId sink = funnel.topology.add_node({.name = "sink"});
  const LinkId last =
      funnel.topology.add_link({.from = hub, .to = sink, .bandwidth = kNarrow, .latency = latency});
  for (const Bandwidth rate : rates) {
    const NodeId host =
        funnel.topology.add_node({.name = fmt::format("host{}", funnel.routes.size())});
    funnel.routes.push_back(
        {funnel.topology.add_link({.from = host, .to = hub, .bandwidth = rate, .latency = latency}),
         last});
  }
  return funnel;
}

/// Seconds until each route has brought so many bytes.
std::vector<double> ends(const Funnel& funnel, std::int64_t bytes, const PacketOptions& options) {
  PacketNetwork network(funnel.topology, options);
  for (std::size_t f = 0; f < funnel.routes.size(); ++f) {
    network.start(0, bytes, funnel.routes[f], 0, static_cast<FlowTag>(f));
  }
  std::vector<double> at(funnel.routes.size());
  std::vector<FlowEvent> events;
  for (Time now = network.next_event(0); now >= 0; now = network.next_event(now)) {
    events.clear();
    network.take_events(now, events);
    for (const FlowEvent& event : events) {
      if (event.is_delivered) {
        at[event.tag] = static_cast<double>(now) * 1e-12;
      }
    }
  }
  return at;
}

TEST_CASE("senders share a link alike, however much faster some are than others") {
  const std::vector<Bandwidth> rates =
      GENERATE(std::vector{10_GBps, 40_GBps}, std::vector{10_GBps, 100_GBps},
               std::vector{10_GBps, 100_GBps, 10_GBps, 10_GBps});
  constexpr std::int64_t kBytes = 64 << 20;
  const Funnel funnel = make_funnel(rates, 700_ns);
  const std::vector<double> at = ends(funnel, kBytes, {});
  // Max–min: all end together, when the shared link has carried everything.
  const double together = static_cast<double>(kBytes) * static_cast<double>(rates.size()) / 8e9;
  CAPTURE(rates.size(), together);
  CHECK(*std::max_element(at.begin(), at.end()) < 1.01 * together);
  CHECK(*std::min_element(at.begin(), at.end()) > 0.9 * together);
}

TEST_CASE("with trimming, the usual window fills any way, and a smaller one is all that is sent") {
  const Duration latency = GENERATE(500_ns, 5_us, 50_us);
  constexpr std::int64_t kBytes = 64 << 20;
  const Funnel funnel = make_funnel({20_GBps}, latency);
  PacketOptions options;
  options.overload = Overload::kTrim;
  const double whole = ends(funnel, kBytes, options).front();
  CAPTURE(latency.picoseconds());
  CHECK(whole < 1.02 * (static_cast<double>(kBytes) / 8e9 + 2 * latency.seconds()));

  // A window of w packets goes out once per round trip, of four latencies and two packet times.
  constexpr std::int64_t kWindow = 4;
  options.trim.window = kWindow;
  constexpr double kPacket = 4096;
  const double round_trip = 4 * latency.seconds() + kPacket / 8e9 + kPacket / 20e9;
  const double round_trips = static_cast<double>(kBytes) / (kWindow * kPacket);
  const double held_back =
      round_trips * std::max(round_trip, static_cast<double>(kWindow) * kPacket / 8e9);
  CHECK(ends(funnel, kBytes, options).front() == Approx(held_back).epsilon(0.02));
}

}  // namespace
}  // namespace rackrail::sim::packet_fairness_test

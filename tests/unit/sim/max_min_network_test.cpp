#include "sim/max_min_network.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace rackrail::sim::max_min_network_test {
namespace {

using topology::Topology;

constexpr Bandwidth kRate(1'000'000'000);

struct Net {
  Topology topology{"net"};
  std::vector<LinkId> links;
};

// Links that share nothing but what flows put on them: the solver looks at capacities alone.
Net make_links(const std::vector<Bandwidth>& rates, Duration latency = Duration()) {
  Net net;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const NodeId a = net.topology.add_node({.name = fmt::format("a{}", i)});
    const NodeId b = net.topology.add_node({.name = fmt::format("b{}", i)});
    net.links.push_back(
        net.topology.add_link({.from = a, .to = b, .bandwidth = rates[i], .latency = latency}));
  }
  return net;
}

struct BurstyLink {
  Bandwidth rate;
  Bytes burst;
};

Net make_bursty_links(const std::vector<BurstyLink>& links) {
  Net net;
  for (std::size_t i = 0; i < links.size(); ++i) {
    const NodeId a = net.topology.add_node({.name = fmt::format("a{}", i)});
    const NodeId b = net.topology.add_node({.name = fmt::format("b{}", i)});
    net.links.push_back(net.topology.add_link(
        {.from = a, .to = b, .bandwidth = links[i].rate, .burst = links[i].burst}));
  }
  return net;
}

// Progressive filling as in the textbook, one saturated link at a time: the independent reference.
std::vector<double> reference_rates(const std::vector<double>& capacities,
                                    const std::vector<std::vector<LinkId>>& routes) {
  std::vector<double> left = capacities;
  std::vector<double> rates(routes.size(), -1);
  while (true) {
    double level = std::numeric_limits<double>::infinity();
    std::size_t tightest = 0;
    for (std::size_t l = 0; l < left.size(); ++l) {
      std::size_t users = 0;
      for (std::size_t f = 0; f < routes.size(); ++f) {
        users += rates[f] < 0 && std::count(routes[f].begin(), routes[f].end(), LinkId(l)) > 0;
      }
      if (users > 0 && left[l] / static_cast<double>(users) < level) {
        level = left[l] / static_cast<double>(users);
        tightest = l;
      }
    }
    if (std::isinf(level)) {
      return rates;
    }
    for (std::size_t f = 0; f < routes.size(); ++f) {
      if (rates[f] < 0 && std::count(routes[f].begin(), routes[f].end(), LinkId(tightest)) > 0) {
        rates[f] = level;
        for (const LinkId l : routes[f]) {
          left[l.index()] -= level;
        }
      }
    }
  }
}

TEST_CASE("rates equal an independent progressive filling on random networks") {
  const unsigned seed = GENERATE(range(1U, 41U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  std::vector<Bandwidth> rates;
  std::vector<double> capacities;
  const std::size_t link_count = 1 + random() % 12;
  for (std::size_t i = 0; i < link_count; ++i) {
    rates.emplace_back(1'000'000 * (1 + static_cast<std::int64_t>(random() % 1000)));
    capacities.push_back(static_cast<double>(rates.back().bytes_per_second()));
  }
  Net net = make_links(rates);
  MaxMinNetwork network(net.topology);
  std::vector<std::vector<LinkId>> routes;
  for (std::size_t f = 0; f < 1 + random() % 30; ++f) {
    std::vector<LinkId> route;
    for (const LinkId l : net.links) {
      if (random() % 3 == 0) {
        route.push_back(l);
      }
    }
    if (!route.empty()) {
      routes.push_back(route);
    }
  }
  for (std::size_t f = 0; f < routes.size(); ++f) {
    network.start(0, 1'000'000'000, routes[f], 0, f);
  }
  network.next_event(0);
  const std::vector<double> expected = reference_rates(capacities, routes);
  for (std::size_t f = 0; f < routes.size(); ++f) {
    CHECK(network.rate_of(f) == Approx(expected[f]).epsilon(1e-6));
  }
}

/// Tags of the flows whose senders let go at `now`.
std::vector<FlowTag> ended(MaxMinNetwork& network, Time now) {
  std::vector<FlowEvent> events;
  network.take_events(now, events);
  std::vector<FlowTag> tags;
  for (const FlowEvent& event : events) {
    if (!event.is_delivered) {
      tags.push_back(event.tag);
    }
  }
  return tags;
}

TEST_CASE("two flows share a link, and the second has it alone when the first ends") {
  Net net = make_links({Bandwidth(1'000'000'000)});
  MaxMinNetwork network(net.topology);
  network.start(0, 1000, net.links, 0, 1);
  network.start(0, 3000, net.links, 0, 2);
  // 1 GB/s: 1000 B at half of it take 2 us; the other then has 2000 B left at the full rate.
  CHECK(network.next_event(0) == 2'000'000);
  CHECK(ended(network, 2'000'000) == std::vector<FlowTag>{1});
  CHECK(network.next_event(2'000'000) == 4'000'000);
}

TEST_CASE("with a tolerance, flows end together that would end within that share of their time") {
  Net net = make_links({Bandwidth(1'000'000'000)});
  MaxMinNetwork network(net.topology, 0.01);
  network.start(0, 1000, net.links, 0, 1);
  network.start(0, 1009, net.links, 0, 2);  // at the same rate, 0.9 % longer
  network.start(0, 1015, net.links, 0, 3);  // 1.5 % longer
  CHECK(network.next_event(0) == 3'000'000);
  CHECK(ended(network, 2'999'999) == std::vector<FlowTag>{});  // not by themselves
  CHECK(ended(network, 3'000'000) == std::vector<FlowTag>{1, 2});
  // 15 B are left of the third, which has the link alone after 1 % of the mean time of flows that
  // have shared links: of two at 3 us each, which count 1/16, 3 · (1 − (15/16)²) us.
  const Time solved = 3'000'000 + static_cast<Time>(0.01 * 3e6 * (1 - 15.0 / 16 * 15 / 16));
  CHECK(network.next_event(3'000'000) == solved);
  // Until then it goes on at a third of the rate.
  const auto left = 15 - static_cast<double>(solved - 3'000'000) * 1e-3 / 3;
  CHECK(network.next_event(solved) == solved + static_cast<Time>(std::ceil(left * 1e3)));
}

TEST_CASE("a flow that starts late takes its share from then on") {
  Net net = make_links({Bandwidth(1'000'000'000)});
  MaxMinNetwork network(net.topology);
  network.start(0, 2000, net.links, 0, 1);
  CHECK(network.next_event(0) == 2'000'000);
  network.start(1'000'000, 500, net.links, 0, 2);
  // 1000 B are left; 500 B at half the rate take 1 us, then 500 B remain for the first.
  CHECK(network.next_event(1'000'000) == 2'000'000);
  CHECK(ended(network, 2'000'000) == std::vector<FlowTag>{2});
  CHECK(network.next_event(2'000'000) == 2'500'000);
}

TEST_CASE("the last byte is delivered after the latency of all links") {
  Net net = make_links({Bandwidth(1'000'000'000), Bandwidth(2'000'000'000)}, 3_us);
  MaxMinNetwork network(net.topology);
  network.start(0, 1000, net.links, 0, 5);
  std::vector<FlowEvent> events;
  REQUIRE(network.next_event(0) == 1'000'000);
  network.take_events(1'000'000, events);
  REQUIRE(network.next_event(1'000'000) == 7'000'000);
  network.take_events(7'000'000, events);
  CHECK(events == std::vector<FlowEvent>{{5, false}, {5, true}});
  CHECK(network.next_event(7'000'000) == -1);
}

TEST_CASE("a flow that was alone shares as soon as another one comes, and not before") {
  Net net = make_links({Bandwidth(1'000'000'000), Bandwidth(1'000'000'000)});
  MaxMinNetwork network(net.topology);
  const std::vector<LinkId> first = {net.links[0]};
  network.start(0, 4000, net.links, 0, 1);
  REQUIRE(network.next_event(0) == 4'000'000);
  network.start(1'000'000, 500, first, 0, 2);
  // 3000 B are left; both run at half the rate until the 500 B are through, 1 us later.
  REQUIRE(network.next_event(1'000'000) == 2'000'000);
  CHECK(ended(network, 2'000'000) == std::vector<FlowTag>{2});
  CHECK(network.next_event(2'000'000) == 4'500'000);
  // A third one that shares nothing with them changes nothing.
  const std::vector<LinkId> second = {net.links[1]};
  CHECK(ended(network, 4'500'000) == std::vector<FlowTag>{1});
  network.start(4'500'000, 1000, second, 0, 3);
  CHECK(network.next_event(4'500'000) == 5'500'000);
}

TEST_CASE("a rate cap leaves the rest to others") {
  Net net = make_links({Bandwidth(1'000'000'000)});
  MaxMinNetwork network(net.topology);
  network.start(0, 1'000'000, net.links, 250e6, 1);
  network.start(0, 1'000'000, net.links, 0, 2);
  network.next_event(0);
  CHECK(network.rate_of(1) == Approx(250e6));
  CHECK(network.rate_of(2) == Approx(750e6));
}

TEST_CASE("flows end in the order of their starts when they end together, and empty ones at once") {
  Net net = make_links({Bandwidth(1'000'000'000), Bandwidth(1'000'000'000)});
  MaxMinNetwork network(net.topology);
  const std::vector<LinkId> first = {net.links[0]};
  const std::vector<LinkId> second = {net.links[1]};
  network.start(0, 1000, second, 0, 7);
  network.start(0, 1000, first, 0, 3);
  network.start(0, 0, first, 0, 9);
  CHECK(network.next_event(0) == 0);
  CHECK(ended(network, 0) == std::vector<FlowTag>{9});
  CHECK(network.next_event(0) == 1'000'000);
  CHECK(ended(network, 1'000'000) == std::vector<FlowTag>{7, 3});
  CHECK(network.next_event(1'000'000) == -1);
}

/// When the senders of all flows have let go, by tag; nothing else starts.
std::vector<Time> ends(MaxMinNetwork& network, std::size_t flows, Time now = 0) {
  std::vector<Time> times(flows);
  for (Time next = network.next_event(now); next >= 0; next = network.next_event(next)) {
    for (const FlowTag tag : ended(network, next)) {
      times[tag] = next;
    }
  }
  return times;
}

TEST_CASE("a burst passes at once, and the rest at the rate of the link") {
  for (const std::int64_t bytes : {1'500, 3'000, 1'000'000}) {
    Net net = make_bursty_links({{kRate, Bytes(1'000)}});
    MaxMinNetwork network(net.topology);
    network.start(0, bytes, net.links, 0, 0);
    CHECK(ends(network, 1) == std::vector<Time>{(bytes - 1'000) * 1'000});
  }
  Net net = make_bursty_links({{kRate, Bytes(1'000)}});
  MaxMinNetwork network(net.topology);
  network.start(0, 900, net.links, 0, 0);
  CHECK(ends(network, 1)[0] <= 900);
}

TEST_CASE("what a link did not carry it lets pass at once later, up to its burst") {
  struct Case {
    Time gap;
    Time saved;
  };
  const auto [gap, saved] = GENERATE(Case{0, 0}, Case{400'000, 400'000}, Case{1'000'000, 1'000'000},
                                     Case{50'000'000, 1'000'000});
  Net net = make_bursty_links({{kRate, Bytes(1'000)}});
  MaxMinNetwork network(net.topology);
  network.start(0, 2'000, net.links, 0, 0);
  REQUIRE(ends(network, 1) == std::vector<Time>{1'000'000});
  const Time start = 1'000'000 + gap;
  network.start(start, 3'000, net.links, 0, 1);
  CHECK(ends(network, 2, start)[1] == start + 3'000'000 - saved);
}

TEST_CASE("a link whose flows are slower than its rate saves the rest of it") {
  Net net = make_bursty_links({{kRate, Bytes(1'000)}});
  MaxMinNetwork network(net.topology);
  network.start(0, 2'000, net.links, 0, 0);
  REQUIRE(ends(network, 1) == std::vector<Time>{1'000'000});
  network.start(1'000'000, 1'000, net.links, 0.25e9, 1);  // 4 us, in which the bucket fills
  CHECK(ends(network, 2, 1'000'000)[1] == 5'000'000);
  network.start(5'000'000, 2'000, net.links, 0, 2);
  CHECK(ends(network, 3, 5'000'000)[2] == 6'000'000);
}

TEST_CASE("over several links bytes pass as soon as each of them has let them pass") {
  struct Case {
    std::vector<BurstyLink> links;
    std::int64_t bytes;
  };
  const Case c =
      GENERATE(Case{{{Bandwidth(2'000'000'000), Bytes(500)}, {kRate, Bytes(1'000)}}, 4'000},
               Case{{{kRate, Bytes(1'000)}, {Bandwidth(2'000'000'000), Bytes(500)}}, 1'200},
               Case{{{Bandwidth(4'000'000'000), Bytes()}, {kRate, Bytes(1'500)}}, 4'000},
               Case{{{kRate, Bytes(700)}, {kRate, Bytes(700)}, {kRate, Bytes(2'000)}}, 10'000});
  Net net = make_bursty_links(c.links);
  MaxMinNetwork network(net.topology);
  network.start(0, c.bytes, net.links, 0, 0);
  Time latest = 0;
  for (const BurstyLink& link : c.links) {
    latest = std::max(latest, (Bytes(c.bytes) - link.burst).count() * kPicosecondsPerSecond /
                                  link.rate.bytes_per_second());
  }
  const Time end = ends(network, 1)[0];
  CHECK(end >= latest - 1'000);  // an open link is closed to a picosecond, which is a byte
  CHECK(end <= latest + 2'000);  // 2,000 bytes at a byte per picosecond
}

TEST_CASE("flows that meet share a burst") {
  Net net = make_bursty_links({{kRate, Bytes(1'000)}});
  MaxMinNetwork network(net.topology, GENERATE(0, 0.01));
  network.start(0, 1'500, net.links, 0, 0);
  network.start(0, 1'500, net.links, 0, 1);
  const std::vector<Time> times = ends(network, 2);
  CHECK(times[0] == times[1]);
  CHECK(static_cast<double>(times[0]) == Approx(2e6).epsilon(0.01));
}

TEST_CASE("a link that becomes slower keeps its burst, and lets nothing pass while it is down") {
  Net net = make_bursty_links({{kRate, Bytes(1'000)}});
  MaxMinNetwork network(net.topology);
  network.set_capacity(0, net.links[0], Bandwidth(0));
  network.start(0, 3'000, net.links, 0, 0);
  CHECK(network.next_event(0) == -1);
  CHECK(network.held_flows().size() == 1);
  network.set_capacity(5'000'000, net.links[0], Bandwidth(500'000'000));
  CHECK(ends(network, 1, 5'000'000) == std::vector<Time>{5'000'000 + 4'000'000});
}

TEST_CASE("no link carries more than its rate and its burst in any time") {
  const unsigned seed = GENERATE(range(1U, 21U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto draw = [&](unsigned most) { return static_cast<std::int64_t>(random() % most); };
  std::vector<BurstyLink> links;
  for (int i = 0; i < 6; ++i) {
    links.push_back({Bandwidth(100'000'000 * (1 + draw(10))), Bytes(i < 2 ? 0 : draw(20'000))});
  }
  Net net = make_bursty_links(links);
  MaxMinNetwork network(net.topology, seed % 4 == 0 ? 0.01 : 0);
  std::vector<RatePiece> pieces;
  network.record_rates(pieces);
  std::vector<std::vector<LinkId>> routes(60);
  Time now = 0;
  std::vector<FlowEvent> events;
  for (std::size_t f = 0; f < routes.size(); ++f) {
    for (const LinkId link : net.links) {
      if (random() % 3 == 0) {
        routes[f].push_back(link);
      }
    }
    network.start(now, 1 + draw(30'000), routes[f], random() % 4 == 0 ? 150e6 : 0, f);
    const Time then = now + draw(3) * draw(20'000'000);
    for (Time next = network.next_event(now); next >= 0 && next <= then;
         next = network.next_event(next)) {
      network.take_events(next, events);
    }
    now = then;
  }
  ends(network, routes.size(), now);
  CHECK(network.next_event(now) == -1);
  std::vector<Time> times;
  for (const RatePiece& piece : pieces) {
    times.insert(times.end(), {piece.begin, piece.end});
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  for (std::size_t l = 0; l < links.size(); ++l) {
    // Bytes until each time, by which any two tell what passed between them.
    std::vector<double> passed(times.size());
    for (const RatePiece& piece : pieces) {
      const auto& route = routes[piece.tag];
      if (std::find(route.begin(), route.end(), net.links[l]) == route.end()) {
        continue;
      }
      for (std::size_t i = 0; i < times.size(); ++i) {
        const double share = static_cast<double>(times[i] - piece.begin) /
                             static_cast<double>(std::max<Time>(1, piece.end - piece.begin));
        passed[i] += piece.bytes * std::clamp(share, 0.0, 1.0);
      }
    }
    const double rate = static_cast<double>(links[l].rate.bytes_per_second()) / 1e12;
    double least = 0;  // of what had passed, less what the rate allows since the beginning
    double most = 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const double ahead = passed[i] - rate * static_cast<double>(times[i]);
      least = std::min(least, ahead);
      most = std::max(most, ahead - least);
    }
    CAPTURE(l, links[l].burst.count());
    CHECK(most <= static_cast<double>(links[l].burst.count()) + 2);
  }
}

}  // namespace
}  // namespace rackrail::sim::max_min_network_test

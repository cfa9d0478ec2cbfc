// rackrail's flow model against SimGrid's: the same flows on the same links, set so that both share
// max–min fairly, must end at the same times.
//
// SimGrid's CM02 is max–min fair when nothing of TCP is modelled: no factors on bandwidth and
// latency, no window (TCP-gamma), no traffic of acknowledgements, and no latency, by which it would
// weigh the flows. Its tolerances are far coarser than ours unless they are set.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <simgrid/s4u.hpp>
#include <string>

#include "tests/property/sim/delivery_times.hpp"
#include "tests/property/sim/random_flows.hpp"

namespace rackrail::sim::test::simgrid_test {
namespace {

namespace s4u = simgrid::s4u;

constexpr std::uint64_t kSeed = 20261123;
constexpr std::size_t kGraphs = 1000;
constexpr std::size_t kTogether = 10;
constexpr std::size_t kHosts = 15;  // 15 · 14 pairs: a route of its own for each flow

/// A zone with the links of one set, and hosts between which its flows go, each on its route.
class Zone {
 public:
  Zone(const s4u::NetZone* root, const RandomFlows& set, std::size_t number) : set_(set) {
    REQUIRE(set.flows.size() <= kHosts * (kHosts - 1));
    const std::string name = "set" + std::to_string(number);
    s4u::NetZone* zone = s4u::create_full_zone(name);
    zone->set_parent(root);
    for (std::size_t h = 0; h < kHosts; ++h) {
      hosts_.push_back(zone->create_host(name + "host" + std::to_string(h), 1e9)->seal());
    }
    std::vector<s4u::Link*> links;
    for (std::size_t l = 0; l < set.capacities.size(); ++l) {
      const std::string link = name + "link" + std::to_string(l);
      links.push_back(zone->create_link(link, set.capacities[l])->set_latency(0)->seal());
    }
    for (std::size_t f = 0; f < set.flows.size(); ++f) {
      std::vector<s4u::LinkInRoute> route;
      for (const LinkId link : set.flows[f].links) {
        route.emplace_back(links[link.index()]);
      }
      // Comm::set_rate() has no effect on sendto (3.32); a link of its own is the same as a cap.
      if (set.flows[f].cap) {
        const std::string cap = name + "cap" + std::to_string(f);
        route.emplace_back(zone->create_link(cap, *set.flows[f].cap)->set_latency(0)->seal());
      }
      const bool symmetrical = false;
      zone->add_route(from(f)->get_netpoint(), to(f)->get_netpoint(), nullptr, nullptr, route,
                      symmetrical);
    }
    zone->seal();
    times_.resize(set.flows.size(), -1);
  }

  /// One actor per flow, from its start to its end.
  void start(std::vector<s4u::ActorPtr>& actors) {
    const double begin = s4u::Engine::get_clock();
    for (std::size_t f = 0; f < set_.flows.size(); ++f) {
      actors.push_back(s4u::Actor::create("flow", from(f), [this, begin, f] {
        const RandomFlow& flow = set_.flows[f];
        s4u::this_actor::sleep_until(begin + static_cast<double>(flow.start) * 1e-12);
        s4u::Comm::sendto(from(f), to(f), static_cast<std::uint64_t>(flow.bytes));
        times_[f] = s4u::Engine::get_clock() - begin;
      }));
    }
  }

  /// Seconds from start() to the end of each flow.
  const std::vector<double>& times() const { return times_; }
  s4u::Host* some_host() const { return hosts_[0]; }

 private:
  s4u::Host* from(std::size_t flow) const { return hosts_[flow / (kHosts - 1)]; }
  s4u::Host* to(std::size_t flow) const {
    const std::size_t other = flow % (kHosts - 1);
    return hosts_[other + (other >= flow / (kHosts - 1) ? 1 : 0)];
  }

  const RandomFlows& set_;
  std::vector<s4u::Host*> hosts_;
  std::vector<double> times_;
};

}  // namespace

TEST_CASE("flows of a random set end when SimGrid's CM02 model says") {
  std::vector<RandomFlows> sets;
  for (std::size_t i = 0; i < kGraphs; ++i) {
    sets.push_back(random_flows(kSeed + i));
  }
  // An engine cannot be had twice in one process, so all sets run in one, each in its zone.
  std::string name = "simgrid";
  std::string quiet = "--log=root.thresh:warning";
  std::array<char*, 3> arguments{name.data(), quiet.data(), nullptr};
  int argument_count = 2;
  s4u::Engine engine(&argument_count, arguments.data());
  for (const char* setting :
       {"network/model:CM02", "network/bandwidth-factor:1", "network/latency-factor:1",
        "network/weight-S:0", "network/TCP-gamma:0", "network/crosstraffic:0",
        "maxmin/precision:1e-13", "surf/precision:1e-12", "contexts/stack-size:32",
        "contexts/guard-size:0"}) {
    s4u::Engine::set_config(setting);
  }
  s4u::NetZone* root = s4u::create_full_zone("root");
  std::vector<Zone> zones;
  zones.reserve(sets.size());
  for (std::size_t i = 0; i < sets.size(); ++i) {
    zones.emplace_back(root, sets[i], i);
  }
  root->seal();
  // Ten at a time: all at once take SimGrid ten times as long.
  s4u::Actor::create("driver", zones[0].some_host(), [&] {
    for (std::size_t begin = 0; begin < zones.size(); begin += kTogether) {
      std::vector<s4u::ActorPtr> actors;
      for (std::size_t i = begin; i < std::min(zones.size(), begin + kTogether); ++i) {
        zones[i].start(actors);
      }
      for (const s4u::ActorPtr& actor : actors) {
        actor->join();
      }
    }
  });
  engine.run();

  std::size_t compared = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    CAPTURE(kSeed + i, sets[i].kind, sets[i].capacities.size(), sets[i].flows.size());
    const std::vector<std::int64_t> times = delivery_times(sets[i]);
    for (std::size_t f = 0; f < times.size(); ++f) {
      CAPTURE(f);
      REQUIRE(static_cast<double>(times[f]) * 1e-12 ==
              Approx(zones[i].times()[f]).epsilon(1e-6).margin(0));
      ++compared;
    }
  }
  CHECK(compared > 50'000);
}

}  // namespace rackrail::sim::test::simgrid_test

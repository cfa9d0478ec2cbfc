// The network model alone: flows that start and end, per second of processor time.
#include <benchmark/benchmark.h>

#include <random>
#include <span>
#include <vector>

#include "bench/sim/fabric.hpp"
#include "sim/max_min_network.hpp"

namespace rackrail::bench {
namespace {

/// Every host sends to another one; when a flow ends, its host starts the next. Nothing is in step.
void churn(benchmark::State& state) {
  const auto hosts = static_cast<std::size_t>(state.range(0));
  const Fabric fabric(hosts);
  std::uint64_t flows = 0;
  for (auto _ : state) {
    std::mt19937_64 random(7);
    std::vector<std::vector<LinkId>> routes(hosts);
    sim::MaxMinNetwork network(fabric.topology);
    const auto launch = [&](sim::Time now, std::size_t host) {
      const std::size_t other = random() % (hosts - 1);
      routes[host] = fabric.route(host, other + (other >= host ? 1 : 0), random() % 32);
      network.start(now, 1000 + static_cast<std::int64_t>(random() % 4'000'000), routes[host], 0,
                    static_cast<sim::FlowTag>(host));
    };
    for (std::size_t host = 0; host < hosts; ++host) {
      launch(0, host);
    }
    const std::size_t wanted = 16 * hosts;
    sim::Time now = 0;
    std::vector<sim::FlowEvent> events;
    for (std::size_t done = 0; done < wanted;) {
      now = network.next_event(now);
      events.clear();
      network.take_events(now, events);
      for (const sim::FlowEvent& event : events) {
        if (event.is_delivered) {
          ++done;
          launch(now, event.tag);
        }
      }
    }
    flows += wanted;
  }
  state.counters["flows/s"] =
      benchmark::Counter(static_cast<double>(flows), benchmark::Counter::kIsRate);
}
BENCHMARK(churn)->Arg(1024)->Arg(4096)->Unit(benchmark::kMillisecond);

/// All flows start at once and share: every host sends 64 MB, spread over all others.
void all_to_all(benchmark::State& state) {
  const auto hosts = static_cast<std::size_t>(state.range(0));
  const Fabric fabric(hosts);
  std::vector<LinkId> links;
  links.reserve(4 * hosts * hosts);
  std::vector<std::uint32_t> ends;  // of each flow's links
  ends.reserve(hosts * hosts);
  for (std::size_t from = 0; from < hosts; ++from) {
    for (std::size_t to = 0; to < hosts; ++to) {
      if (from != to) {
        const std::vector<LinkId> route = fabric.route(from, to, to);
        links.insert(links.end(), route.begin(), route.end());
        ends.push_back(static_cast<std::uint32_t>(links.size()));
      }
    }
  }
  const std::int64_t bytes = 64'000'000 / static_cast<std::int64_t>(hosts);
  std::uint64_t flows = 0;
  sim::Time end = 0;
  for (auto _ : state) {
    sim::MaxMinNetwork network(fabric.topology);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      network.start(0, bytes, std::span(links).subspan(begin, ends[i] - begin), 0,
                    static_cast<sim::FlowTag>(i));
      begin = ends[i];
    }
    std::vector<sim::FlowEvent> events;
    for (sim::Time now = 0; (now = network.next_event(now)) >= 0; end = now) {
      events.clear();
      network.take_events(now, events);
    }
    flows += network.flows_started();
  }
  state.counters["flows/s"] =
      benchmark::Counter(static_cast<double>(flows), benchmark::Counter::kIsRate);
  state.counters["simulated ms"] = static_cast<double>(end) * 1e-9;
}
BENCHMARK(all_to_all)->Arg(256)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rackrail::bench

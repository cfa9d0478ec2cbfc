#include "tests/property/sim/delivery_times.hpp"

#include <algorithm>
#include <numeric>

#include "sim/max_min_network.hpp"

namespace rackrail::sim::test {

std::vector<std::int64_t> delivery_times(const RandomFlows& set) {
  const topology::Topology topology = as_topology(set);
  MaxMinNetwork network(topology);
  std::vector<std::size_t> by_start(set.flows.size());
  std::iota(by_start.begin(), by_start.end(), 0);
  std::stable_sort(by_start.begin(), by_start.end(), [&](std::size_t a, std::size_t b) {
    return set.flows[a].start < set.flows[b].start;
  });
  std::vector<std::int64_t> times(set.flows.size(), -1);
  std::vector<FlowEvent> events;
  std::size_t started = 0;
  Time now = 0;
  while (true) {
    const Time event = network.next_event(now);
    const bool is_start =
        started < by_start.size() && (event < 0 || set.flows[by_start[started]].start <= event);
    if (!is_start && event < 0) {
      return times;
    }
    now = is_start ? set.flows[by_start[started]].start : event;
    if (is_start) {
      const RandomFlow& flow = set.flows[by_start[started]];
      network.start(now, flow.bytes, flow.links, flow.cap.value_or(0),
                    static_cast<FlowTag>(by_start[started++]));
      continue;
    }
    events.clear();
    network.take_events(now, events);
    for (const FlowEvent& e : events) {
      if (e.is_delivered) {
        times[e.tag] = now;
      }
    }
  }
}

}  // namespace rackrail::sim::test

#include <memory>
#include <span>
#include <vector>

#include "bench/peers/peers.hpp"
#include "bench/sim/fabric.hpp"
#include "plan/cost_model.hpp"
#include "plan/regular_schedule.hpp"
#include "sim/max_min_network.hpp"
#include "sim/simulator.hpp"

namespace rackrail::bench {

namespace {

std::vector<LinkId> route(const Fabric& fabric, std::size_t from, std::size_t to) {
  constexpr std::size_t n = Fabric::kHostsPerLeaf;
  return fabric.route(from, to, to + n - from % n);
}

/// Through the interpreter of transfers, as a planned collective is simulated; every flow, without
/// the folding of what is symmetric.
Outcome ring(const Fabric& fabric, std::size_t ranks, double setup_began) {
  std::vector<Rank> order;
  for (std::size_t r = 0; r < ranks; ++r) {
    order.emplace_back(r);
  }
  const auto schedule = plan::make_ring_schedule(std::move(order));
  plan::DeviceRates rates{};
  rates.reduce = Bandwidth(1'000'000'000'000'000'000);
  const std::int64_t elements = kRingBytes / 4;
  Outcome outcome{.setup_cpu_seconds = cpu_seconds() - setup_began};
  const sim::CollectiveResult result =
      sim::simulate_collective(*schedule, elements, elements, fabric.topology,
                               {.device_rates = rates, .use_symmetry = false});
  outcome.flows = result.flows;
  outcome.simulated_seconds = result.time.seconds();
  return outcome;
}

/// Takes events until there are none, and returns the last one's time in seconds.
template <typename OnDelivery>
double drain(sim::MaxMinNetwork& network, OnDelivery on_delivery) {
  std::vector<sim::FlowEvent> events;
  sim::Time end = 0;
  for (sim::Time now = 0; (now = network.next_event(now)) >= 0; end = now) {
    events.clear();
    network.take_events(now, events);
    for (const sim::FlowEvent& event : events) {
      if (event.is_delivered) {
        on_delivery(now, event.tag);
      }
    }
  }
  return static_cast<double>(end) * 1e-12;
}

Outcome all_to_all(const Fabric& fabric, std::size_t ranks, double setup_began) {
  sim::MaxMinNetwork network(fabric.topology);
  Outcome outcome{.setup_cpu_seconds = cpu_seconds() - setup_began};
  std::vector<std::vector<LinkId>> routes;
  routes.reserve(ranks * (ranks - 1));
  const std::int64_t bytes = kAllToAllBytes / static_cast<std::int64_t>(ranks);
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      if (from != to) {
        routes.push_back(route(fabric, from, to));
        network.start(0, bytes, routes.back(), 0, static_cast<sim::FlowTag>(routes.size()));
      }
    }
  }
  outcome.simulated_seconds = drain(network, [](sim::Time, sim::FlowTag) {});
  outcome.flows = network.flows_started();
  return outcome;
}

Outcome churn(const Fabric& fabric, std::size_t ranks, double setup_began) {
  sim::MaxMinNetwork network(fabric.topology);
  Outcome outcome{.setup_cpu_seconds = cpu_seconds() - setup_began};
  std::vector<std::vector<LinkId>> routes(ranks);
  std::vector<std::size_t> sent(ranks);
  const auto send = [&](sim::Time now, std::size_t from) {
    if (sent[from] < kChurnMessages) {
      const Message message = churn_message(ranks, from, sent[from]++);
      routes[from] = route(fabric, from, message.to);
      network.start(now, message.bytes, routes[from], 0, static_cast<sim::FlowTag>(from));
    }
  };
  for (std::size_t from = 0; from < ranks; ++from) {
    send(0, from);
  }
  outcome.simulated_seconds = drain(network, send);
  outcome.flows = network.flows_started();
  return outcome;
}

}  // namespace

Outcome run_rackrail(const Case& what) {
  const double began = cpu_seconds();
  const Fabric fabric(what.ranks, Duration());
  switch (what.pattern) {
    case Pattern::kRing:
      return ring(fabric, what.ranks, began);
    case Pattern::kAllToAll:
      return all_to_all(fabric, what.ranks, began);
    case Pattern::kChurn:
      break;
  }
  return churn(fabric, what.ranks, began);
}

}  // namespace rackrail::bench

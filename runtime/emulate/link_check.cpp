#include "runtime/emulate/link_check.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>

#include "runtime/emulate/commands.hpp"
#include "runtime/emulate/stream.hpp"

namespace rackrail::runtime::emulate {
namespace {

std::chrono::nanoseconds nanoseconds(Duration time) {
  return std::chrono::nanoseconds(time.picoseconds() / 1000);
}

LinkMeasurement expectation(const NetworkPlan& plan, std::size_t index, bool is_reverse) {
  const ShapedLink& link = plan.links[index];
  const Bandwidth rate = is_reverse ? link.rate_ba : link.rate_ab;
  return {.link = index,
          .is_reverse = is_reverse,
          .expected = scaled(rate, kPayloadShare),
          .measured = Bandwidth()};
}

/// One direction of the links of a group, all at the same time.
void measure(const EmulatedNetwork& network, const LinkCheckOptions& options,
             const std::vector<std::size_t>& group, bool is_reverse,
             std::vector<LinkMeasurement>& results) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (const std::size_t index : group) {
    const ShapedLink& link = network.plan().links[index];
    const std::size_t from = is_reverse ? link.b : link.a;
    const std::size_t to = is_reverse ? link.a : link.b;
    streams.push_back(std::make_unique<Stream>(network.station(from), network.station(to),
                                               is_reverse ? link.address_a : link.address_b));
  }
  const std::size_t first_result = results.size();
  for (const std::size_t index : group) {
    results.push_back(expectation(network.plan(), index, is_reverse));
  }
  const Stream::Clock::time_point begin = Stream::Clock::now() + nanoseconds(options.warm_up);
  const Stream::Clock::time_point end = begin + nanoseconds(options.duration);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    threads.emplace_back([&, i] { streams[i]->send_until(end); });
    threads.emplace_back(
        [&, i] { results[first_result + i].measured = streams[i]->measure_until(begin, end); });
  }
}

/// One measurement of these links in both directions, in no order; fewer where it was cancelled.
std::vector<LinkMeasurement> measure_both_ways(const EmulatedNetwork& network,
                                               const LinkCheckOptions& options,
                                               const std::vector<std::size_t>& links,
                                               Bandwidth together, std::size_t most) {
  std::vector<LinkMeasurement> results;
  for (const auto& group : measurement_groups(network.plan(), links, together, most)) {
    for (const bool is_reverse : {false, true}) {
      if (options.is_cancelled()) {
        return results;
      }
      measure(network, options, group, is_reverse, results);
    }
  }
  return results;
}

using Direction = std::pair<std::size_t, bool>;

std::vector<std::size_t> links_not_held(const std::map<Direction, LinkMeasurement>& nearest) {
  std::vector<std::size_t> links;
  for (const auto& [direction, measurement] : nearest) {
    if (!measurement.is_held() && (links.empty() || links.back() != direction.first)) {
      links.push_back(direction.first);
    }
  }
  return links;
}

}  // namespace

std::vector<std::vector<std::size_t>> measurement_groups(const NetworkPlan& plan,
                                                         const std::vector<std::size_t>& links,
                                                         Bandwidth together, std::size_t most) {
  std::vector<std::vector<std::size_t>> groups;
  Bandwidth sum;
  for (const std::size_t i : links) {
    const Bandwidth rate = std::max(plan.links[i].rate_ab, plan.links[i].rate_ba);
    if (groups.empty() || groups.back().size() >= most || sum + rate > together) {
      groups.emplace_back();
      sum = Bandwidth();
    }
    groups.back().push_back(i);
    sum = sum + rate;
  }
  return groups;
}

std::vector<LinkMeasurement> check_links(const EmulatedNetwork& network,
                                         const LinkCheckOptions& options) {
  // A stream takes two threads; half of what the hosts may send in all leaves cores to them.
  constexpr std::size_t kStreamsPerCore = 4;
  Bandwidth together = scaled(kRatePerCore * std::int64_t{options.cores}, 0.5);
  std::size_t most = kStreamsPerCore * options.cores;
  std::vector<std::size_t> links(network.plan().links.size());
  std::iota(links.begin(), links.end(), std::size_t{0});
  std::map<Direction, LinkMeasurement> nearest;
  for (unsigned attempt = 0; attempt < kAttempts && !links.empty(); ++attempt) {
    for (const LinkMeasurement& one : measure_both_ways(network, options, links, together, most)) {
      const auto [known, is_new] = nearest.try_emplace({one.link, one.is_reverse}, one);
      if (!is_new && std::abs(one.error()) < std::abs(known->second.error())) {
        known->second = one;
      }
    }
    links = options.is_cancelled() ? std::vector<std::size_t>() : links_not_held(nearest);
    together = scaled(together, 0.5);
    most = std::max<std::size_t>(1, most / 2);
  }
  std::vector<LinkMeasurement> results;
  results.reserve(nearest.size());
  for (const auto& [direction, measurement] : nearest) {
    results.push_back(measurement);
  }
  return results;
}

}  // namespace rackrail::runtime::emulate

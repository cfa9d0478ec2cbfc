#include "runtime/emulate/link_check.hpp"

#include <algorithm>
#include <memory>
#include <thread>

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
                                               network.plan().stations[to].address));
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

}  // namespace

std::vector<std::vector<std::size_t>> measurement_groups(const NetworkPlan& plan,
                                                         Bandwidth together, std::size_t most) {
  std::vector<std::vector<std::size_t>> groups;
  Bandwidth sum;
  for (std::size_t i = 0; i < plan.links.size(); ++i) {
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
  const Bandwidth together = scaled(kRatePerCore * std::int64_t{options.cores}, 0.5);
  std::vector<LinkMeasurement> results;
  for (const auto& group :
       measurement_groups(network.plan(), together, kStreamsPerCore * options.cores)) {
    for (const bool is_reverse : {false, true}) {
      if (options.is_cancelled()) {
        return results;
      }
      measure(network, options, group, is_reverse, results);
    }
  }
  std::stable_sort(results.begin(), results.end(),
                   [](const LinkMeasurement& a, const LinkMeasurement& b) {
                     return std::pair(a.link, a.is_reverse) < std::pair(b.link, b.is_reverse);
                   });
  return results;
}

}  // namespace rackrail::runtime::emulate

#include "sim/burst_bound.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "plan/alpha_beta.hpp"
#include "topology/queries.hpp"

namespace rackrail::sim {
namespace {

constexpr double kManyBursts = 8;
// Of collectives or steps in a row that links hold to one time, those of fewer messages are better:
// so many messages add half of what any number does, which is a share of that time.
constexpr double kMessagesOfHalf = 40;
constexpr double kMostOfMessages = 0.02;

struct LinkTime {
  Duration busy;
  Duration burst;  ///< none: zero
};

std::int64_t messages_of(const plan::TransferGraph& graph, std::int64_t elements,
                         std::int64_t slice_elements) {
  std::int64_t messages = 0;
  for (const plan::Transfer& transfer : graph.transfers()) {
    const std::int64_t size = graph.range(transfer, elements).size();
    messages += (size + slice_elements - 1) / slice_elements;
  }
  return messages;
}

/// Whether there is one message at a time, each of which waits for the one before.
bool is_one_at_a_time(const plan::TransferGraph& graph, std::int64_t messages) {
  if (messages > static_cast<std::int64_t>(graph.transfers().size())) {
    return false;  // in slices
  }
  for (std::uint32_t t = 1; t < graph.transfers().size(); ++t) {
    if (std::ranges::count(graph.dependencies(TransferId(t)), TransferId(t - 1)) == 0) {
      return false;
    }
  }
  return true;
}

/// Ordered pairs of ranks of which one sends to the other.
class Connections {
 public:
  explicit Connections(std::size_t ranks) : ranks_(ranks), has_(ranks * ranks) {}

  void add(const plan::TransferGraph& graph) {
    for (const plan::Transfer& transfer : graph.transfers()) {
      has_[transfer.src.index() * ranks_ + transfer.dst.index()] = true;
    }
  }
  /// BurstBound::connections.
  double cost() const {
    const auto pairs = static_cast<double>(ranks_ * (ranks_ - 1));
    return pairs > 0
               ? kMostOfConnections * static_cast<double>(std::ranges::count(has_, true)) / pairs
               : 0;
  }

 private:
  std::size_t ranks_;
  std::vector<bool> has_;
};

BurstBound bound_by(Duration least, std::span<const LinkTime> links, std::int64_t messages,
                    double connections) {
  LinkTime busiest;
  for (const LinkTime& link : links) {
    if (link.burst > Duration() && link.busy > busiest.busy) {
      busiest = link;
    }
  }
  if (busiest.busy >= scaled(busiest.burst, kManyBursts)) {
    return {least, true, connections};
  }
  const auto count = static_cast<double>(messages);
  const double share = kMostOfMessages * count / (count + kMessagesOfHalf);
  return {least + scaled(least, share), false, connections};
}

}  // namespace

bool has_burst_bounds(const topology::Topology& topology, const SimulationOptions& options) {
  return topology::longest_burst_time(topology) > Duration() &&
         options.multipath == Multipath::kPinned && options.disturbances.empty();
}

BurstBound burst_bound(const plan::TransferGraph& graph, std::int64_t elements,
                       std::int64_t slice_elements, const topology::Topology& topology) {
  const std::vector<plan::LinkLoad> loads = plan::link_loads(graph, topology);
  std::vector<LinkTime> links;
  for (const plan::LinkLoad& load : loads) {
    links.push_back({load.at_least(elements), load.burst});
  }
  Connections connections(topology.rank_count());
  connections.add(graph);
  const std::int64_t messages = messages_of(graph, elements, slice_elements);
  BurstBound bound = bound_by(plan::alpha_beta(graph, topology, loads).at_least(elements), links,
                              messages, connections.cost());
  bound.are_many = bound.are_many && !is_one_at_a_time(graph, messages);
  return bound;
}

BurstBound burst_bound(const plan::Plan& plan, const topology::Topology& topology) {
  std::vector<LinkTime> links(topology.link_count());
  std::int64_t messages = 0;
  Connections connections(topology.rank_count());
  for (const plan::Bucket& bucket : plan.buckets) {
    const plan::TransferGraph& graph = plan.schedules.at(bucket.schedule);
    for (const plan::LinkLoad& load : plan::link_loads(graph, topology)) {
      links[load.link.index()].busy += load.at_least(bucket.elements);
      links[load.link.index()].burst = load.burst;
    }
    messages += messages_of(graph, bucket.elements, bucket.slice_elements);
    connections.add(graph);
  }
  const Duration least =
      links.empty() ? Duration() : std::ranges::max(links, {}, &LinkTime::busy).busy;
  return bound_by(least, links, messages, connections.cost());
}

topology::Topology without_bursts(const topology::Topology& topology) {
  topology::Topology plain = topology;
  plain.remove_bursts();
  return plain;
}

}  // namespace rackrail::sim

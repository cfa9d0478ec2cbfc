#include "plan/alpha_beta.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "plan/in_network.hpp"
#include "topology/queries.hpp"

namespace rackrail::plan {

namespace {

constexpr double kBytesPerElement = 4;

std::vector<std::int64_t> cumulative(std::span<const std::uint32_t> weights) {
  std::vector<std::int64_t> sum(weights.size() + 1, 0);
  std::partial_sum(weights.begin(), weights.end(), sum.begin() + 1);
  return sum;
}

}  // namespace

std::vector<double> bytes_per_element(const TransferGraph& graph) {
  constexpr std::int64_t kMany = std::int64_t{1} << 20U;
  std::vector<double> bytes;
  for (const Codec& codec : graph.codecs()) {
    bytes.push_back(codec.is_lossy() ? static_cast<double>(encoded_size(codec, kMany).count()) /
                                           static_cast<double>(kMany)
                                     : kBytesPerElement);
  }
  return bytes;
}

Duration LinkLoad::at_least(std::int64_t elements) const {
  const auto load = Duration::from_seconds(seconds_per_element * static_cast<double>(elements));
  return load > rounding ? load - rounding : Duration();
}

Duration LinkLoad::alone_at_least(std::int64_t elements) const {
  return std::max(Duration(), at_least(elements) - burst);
}

Duration AlphaBeta::at_least(std::int64_t elements) const {
  const Duration beta = LinkLoad{LinkId(), seconds_per_element, rounding, burst}.at_least(elements);
  return elements >= fewest_elements ? std::max(alpha, beta) : beta;
}

Duration AlphaBeta::alone_at_least(std::int64_t elements) const {
  const Duration beta =
      LinkLoad{LinkId(), seconds_per_element, rounding, burst}.alone_at_least(elements);
  return elements >= fewest_elements ? std::max(alpha, beta) : beta;
}

std::vector<LinkLoad> link_loads(const TransferGraph& graph, const topology::Topology& topology) {
  const auto weights = graph.chunk_weights();
  const std::vector<std::int64_t> sum = cumulative(weights);
  const auto all = static_cast<double>(sum.back());
  const std::vector<double> bytes = bytes_per_element(graph);
  struct Load {
    double bytes = 0;  // per element of the buffer
    double transfers = 0;
  };
  std::vector<Load> by_link(topology.link_count());
  const InNetwork in_network(graph, topology);
  for (std::size_t i = 0; i < graph.transfers().size(); ++i) {
    const Transfer& transfer = graph.transfers()[i];
    const std::int64_t weight =
        sum[transfer.chunk_begin + transfer.chunk_count] - sum[transfer.chunk_begin];
    if (weight == 0) {
      continue;  // it is not sent
    }
    for (const LinkId link : in_network.links(TransferId(i))) {
      by_link[link.index()].bytes += static_cast<double>(weight) / all * bytes[transfer.codec];
      ++by_link[link.index()].transfers;
    }
  }
  std::vector<LinkLoad> loads;
  for (std::size_t i = 0; i < by_link.size(); ++i) {
    const topology::Link& link = topology.link(LinkId(i));
    const auto rate = static_cast<double>(link.bandwidth.bytes_per_second());
    if (by_link[i].transfers > 0) {
      // Boundaries are rounded to elements, and times to picoseconds.
      loads.push_back({LinkId(i), by_link[i].bytes / rate,
                       Duration::from_seconds(by_link[i].transfers * kBytesPerElement / rate) +
                           Duration(static_cast<std::int64_t>(by_link[i].transfers)),
                       topology::burst_time(link)});
    }
  }
  return loads;
}

AlphaBeta alpha_beta(const TransferGraph& graph, const topology::Topology& topology) {
  return alpha_beta(graph, topology, link_loads(graph, topology));
}

AlphaBeta alpha_beta(const TransferGraph& graph, const topology::Topology& topology,
                     std::span<const LinkLoad> loads) {
  const auto weights = graph.chunk_weights();
  const std::vector<std::int64_t> sum = cumulative(weights);
  std::vector<Duration> latency;
  for (const topology::Route& route : graph.routes()) {
    latency.push_back(topology::route_latency(topology, route));
  }

  AlphaBeta model;
  model.fewest_elements = sum.back();
  std::vector<Duration> start(graph.transfers().size());
  std::vector<Duration> end(start.size());
  for (std::size_t i = 0; i < end.size(); ++i) {
    const Transfer& transfer = graph.transfers()[i];
    const std::int64_t weight =
        sum[transfer.chunk_begin + transfer.chunk_count] - sum[transfer.chunk_begin];
    if (weight == 0) {
      continue;  // it is not sent
    }
    for (const TransferId dependency : graph.dependencies(TransferId(i))) {
      // What starts at the same rank need only have been read.
      const bool arrives = graph.transfer(dependency).dst == transfer.src;
      start[i] = std::max(start[i], (arrives ? end : start)[dependency.index()]);
    }
    end[i] = start[i] + latency[transfer.route.index()];
    model.alpha = std::max(model.alpha, end[i]);
  }
  for (const LinkLoad& load : loads) {
    if (load.seconds_per_element > model.seconds_per_element) {
      model.seconds_per_element = load.seconds_per_element;
      model.rounding = load.rounding;
      model.burst = load.burst;
    }
  }
  return model;
}

}  // namespace rackrail::plan

#include "plan/alpha_beta.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "plan/in_network.hpp"
#include "topology/queries.hpp"

namespace rackrail::plan {

namespace {

constexpr double kBytesPerElement = 4;

/// Encoded bytes of one element among many; no range takes fewer per element.
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

}  // namespace

Duration AlphaBeta::at_least(std::int64_t elements) const {
  const auto load = Duration::from_seconds(seconds_per_element * static_cast<double>(elements));
  const Duration beta = load > rounding ? load - rounding : Duration();
  return elements >= fewest_elements ? std::max(alpha, beta) : beta;
}

AlphaBeta alpha_beta(const TransferGraph& graph, const topology::Topology& topology) {
  const auto weights = graph.chunk_weights();
  const auto all = std::accumulate(weights.begin(), weights.end(), std::int64_t{0});
  const std::vector<double> bytes = bytes_per_element(graph);
  std::vector<std::int64_t> sum(weights.size() + 1, 0);
  std::partial_sum(weights.begin(), weights.end(), sum.begin() + 1);
  std::vector<Duration> latency;
  for (const topology::Route& route : graph.routes()) {
    latency.push_back(topology::route_latency(topology, route));
  }

  AlphaBeta model;
  model.fewest_elements = all;
  std::vector<Duration> start(graph.transfers().size());
  std::vector<Duration> end(start.size());
  struct Load {
    double bytes = 0;  // per element of the buffer
    double transfers = 0;
  };
  std::vector<Load> loads(topology.link_count());
  const InNetwork in_network(graph, topology);
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
    for (const LinkId link : in_network.links(TransferId(i))) {
      loads[link.index()].bytes +=
          static_cast<double>(weight) / static_cast<double>(all) * bytes[transfer.codec];
      ++loads[link.index()].transfers;
    }
  }
  for (std::size_t i = 0; i < loads.size(); ++i) {
    const auto rate = static_cast<double>(topology.link(LinkId(i)).bandwidth.bytes_per_second());
    if (loads[i].bytes / rate > model.seconds_per_element) {
      model.seconds_per_element = loads[i].bytes / rate;
      // Boundaries are rounded to elements, and times to picoseconds.
      model.rounding = Duration::from_seconds(loads[i].transfers * kBytesPerElement / rate) +
                       Duration(static_cast<std::int64_t>(loads[i].transfers));
    }
  }
  return model;
}

}  // namespace rackrail::plan

#include "sim/nccl/view.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace rackrail::sim::nccl {

namespace {

constexpr double kWide = 1e14;  // bytes/s of links that stand for no real one
constexpr int kSlicesPerStep = 2;

Bandwidth rate(double bytes_per_second) {
  return Bandwidth(static_cast<std::int64_t>(std::clamp(bytes_per_second, 1.0, kWide)));
}

}  // namespace

double port_payload_Bps(double nominal_Bps, std::size_t gpus, Algorithm algorithm,
                        Protocol protocol, const Parameters& parameters) {
  double payload = nominal_Bps * parameters.link_efficiency * payload_share(protocol);
  if (algorithm == Algorithm::kNvls || algorithm == Algorithm::kNvlsTree) {
    const auto n = static_cast<double>(gpus);
    payload *= parameters.sharp_efficiency * 2 * (n - 1) / (n + 1);
  }
  return payload;
}

topology::Topology make_view(const Machine& machine, std::span<const HostPair> pairs,
                             Algorithm algorithm, Protocol protocol, const Parameters& parameters) {
  using topology::NodeKind;
  topology::Topology view("NCCL's view of " + machine.cluster().name());
  const double overhead_s = protocol == Protocol::kSimple ? parameters.slice_overhead_s : 0;
  const Duration overhead = Duration::from_seconds(overhead_s);
  // NCCL's figure for a step has the slices' overheads in it.
  const auto latency = [&](HopKind kind) {
    const double table = hop_latency_s(algorithm, protocol, kind) *
                         (kind == HopKind::kNetwork ? parameters.network_latency : 1);
    return Duration::from_seconds(std::max(0.0, table - kSlicesPerStep * overhead_s));
  };
  const auto one_way = [&](NodeId from, NodeId to, Bandwidth bandwidth, Duration wait) {
    view.add_link({.from = from,
                   .to = to,
                   .bandwidth = bandwidth,
                   .latency = wait,
                   .kind = topology::LinkKind::kOther,
                   .tier = {},
                   .overhead = overhead,
                   .cpu_share = 0});
  };
  struct Ends {
    NodeId egress;
    NodeId ingress;
  };
  std::vector<Ends> ends;
  for (std::size_t h = 0; h < machine.hosts().size(); ++h) {
    const Host& host = machine.hosts()[h];
    const auto vertex = [&](const char* what, NodeKind kind) {
      topology::Node node;
      node.name = fmt::format("host{}.{}", h, what);
      node.kind = kind;
      node.host = fmt::format("host{}", h);
      return view.add_node(std::move(node));
    };
    const NodeId hub = vertex("hub", NodeKind::kNvSwitch);
    const NodeId out = vertex("out", NodeKind::kNic);
    const NodeId egress = vertex("egress", NodeKind::kNic);
    const NodeId in = vertex("in", NodeKind::kNic);
    const NodeId ingress = vertex("ingress", NodeKind::kNic);
    if (!pairs.empty()) {
      const Bandwidth nic =
          rate(machine.nic_Bps(h) * parameters.network_efficiency * payload_share(protocol));
      one_way(out, egress, nic, Duration());
      one_way(ingress, in, nic, Duration());
    }
    ends.push_back({egress, ingress});
    for (std::size_t g = 0; g < host.ranks.size(); ++g) {
      topology::Node node;
      node.name = fmt::format("host{}.gpu{}", h, g);
      node.kind = NodeKind::kGpu;
      node.host = fmt::format("host{}", h);
      const NodeId gpu = view.add_node(std::move(node));
      view.add_rank(gpu);
      const Bandwidth port = rate(
          port_payload_Bps(host.port_Bps[g], host.ranks.size(), algorithm, protocol, parameters));
      one_way(gpu, hub, port, latency(host.hop));
      one_way(hub, gpu, port, Duration());
      one_way(gpu, out, rate(kWide), Duration());
      one_way(in, gpu, rate(kWide), Duration());
    }
  }
  const std::vector<double> shares = fabric_rates(machine, pairs);
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    one_way(ends[pairs[p].first].egress, ends[pairs[p].second].ingress,
            rate(shares[p] * parameters.network_efficiency * payload_share(protocol)),
            latency(HopKind::kNetwork));
  }
  return view;
}

}  // namespace rackrail::sim::nccl

#include "planner/tuning/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/parse_units.hpp"
#include "planner/tuning/codecs_to_try.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

double smallest_ratio(bool is_protected, const std::vector<plan::Codec>& allowed) {
  double ratio = 1;
  for (const plan::Codec& codec : allowed) {
    const bool fits = codec.survives_many_hops() || !is_protected;
    if (fits) {
      // Of a large buffer: tensors share their last block and entry with others in the bucket.
      ratio = std::min(ratio, bytes_per_element(codec) / 4);
    }
  }
  return ratio;
}

}  // namespace

topology::AllReduceBound network_bound(const topology::Topology& topology) {
  bool switches_compute = false;
  for (std::size_t v = 0; v < topology.node_count(); ++v) {
    const topology::Node& node = topology.node(NodeId(v));
    switches_compute = switches_compute || node.multicasts || node.reduces;
  }
  return topology::joint_allreduce_bound(topology, switches_compute);
}

std::vector<LastPass> last_passes(const topology::Topology& topology,
                                  const plan::Workload& workload, const plan::BatchPlan& batch) {
  std::vector<LastPass> passes;
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const topology::Node& node = topology.node(topology.node_of(Rank(r)));
    const std::int64_t local = batch.local_batch.at(r);
    if (seen.emplace(node.device_class, local).second) {
      plan::ComputeTimes times = plan::compute_times(workload, node, local);
      const Duration before =
          (batch.accumulation - 1) * (times.forward + times.backward) + times.forward;
      passes.push_back({before, std::move(times)});
    }
  }
  return passes;
}

LowerBound lower_bound(const topology::Topology& topology, const plan::Workload& workload,
                       const plan::BatchPlan& batch, const std::vector<plan::Codec>& allowed,
                       const std::vector<bool>& is_protected) {
  LowerBound bound{Duration(),
                   "compute: forward, backward and optimiser of the slowest rank take this long"};
  std::vector<double> rest(workload.tensors.size() + 1, 0);  // wire bytes of tensors i, i+1, …
  for (std::size_t i = workload.tensors.size(); i-- > 0;) {
    const plan::GradientTensor& tensor = workload.tensors[i];
    rest[i] = rest[i + 1] + static_cast<double>(tensor.bytes().count()) *
                                smallest_ratio(is_protected[i], allowed);
  }
  const auto network = network_bound(topology);
  const auto rate = static_cast<double>(network.algbw.bytes_per_second());
  const Duration at_once = topology::longest_burst_time(topology);
  const auto raise = [&](Duration time, Duration from, double bytes) {
    if (time > bound.time) {
      bound = {
          time,
          fmt::format("network: {} into the backward pass, {} of encoded gradients are still to be "
                      "reduced; the limit is the {}",
                      to_string(from), to_string(Bytes(static_cast<std::int64_t>(bytes))),
                      network.reason)};
    }
  };
  if (rate > 0 && at_once > Duration()) {
    // Of many steps in a row each fills the buckets that it empties.
    raise(Duration::from_seconds(rest.front() / rate), Duration(), rest.front());
  }
  const Duration latency = topology::latency_bound(topology);
  for (const auto& [passes, times] : last_passes(topology, workload, batch)) {
    bound.time = std::max(bound.time, passes + times.backward + times.optimizer);
    for (std::size_t i = 0; i < workload.tensors.size() && rate > 0; ++i) {
      const Duration moving = Duration::from_seconds(rest[i] / rate);
      raise(passes + times.ready[i] + moving - at_once + times.optimizer, times.ready[i], rest[i]);
    }
    const Duration last = times.ready.empty() ? Duration() : *std::ranges::max_element(times.ready);
    if (topology.rank_count() > 1 && passes + last + latency + times.optimizer > bound.time) {
      bound = {passes + last + latency + times.optimizer,
               "latency: the last gradient, " + to_string(last) +
                   " into the backward pass, has to reach the farthest rank, " +
                   to_string(latency) + " away"};
    }
  }
  return bound;
}

}  // namespace rackrail::planner

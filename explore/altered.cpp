#include "explore/altered.hpp"

namespace rackrail::explore {

topology::Topology with_links(const topology::Topology& topology,
                              const std::function<void(LinkId, topology::Link&)>& change) {
  topology::Topology result(topology.name());
  result.set_measured_processor(topology.measured_processor());
  for (std::size_t i = 0; i < topology.node_count(); ++i) {
    result.add_node(topology.node(NodeId(i)));
  }
  for (std::size_t i = 0; i < topology.rank_count(); ++i) {
    result.add_rank(topology.node_of(Rank(i)));
  }
  for (std::size_t i = 0; i < topology.link_count(); ++i) {
    topology::Link link = topology.link(LinkId(i));
    change(LinkId(i), link);
    result.add_link(link);
  }
  for (std::size_t i = 0; i < topology.rank_count(); ++i) {
    if (const auto processor = topology.processor_of(Rank(i))) {
      result.set_processor(Rank(i), *processor);
    }
  }
  return result;
}

topology::Topology with_ranks(topology::Topology topology,
                              const std::function<void(topology::Node&)>& change) {
  for (std::size_t r = 0; r < topology.rank_count(); ++r) {
    const NodeId id = topology.node_of(Rank(r));
    topology::Node node = topology.node(id);
    change(node);
    topology.set_node_properties(id, node);
  }
  return topology;
}

plan::Workload with_speed(const plan::Workload& workload, double factor) {
  plan::Workload result = workload;
  result.forward = scaled(result.forward, 1 / factor);
  result.backward_tail = scaled(result.backward_tail, 1 / factor);
  result.optimizer = scaled(result.optimizer, 1 / factor);
  for (plan::GradientTensor& tensor : result.tensors) {
    tensor.ready_gap = scaled(tensor.ready_gap, 1 / factor);
  }
  return result;
}

}  // namespace rackrail::explore

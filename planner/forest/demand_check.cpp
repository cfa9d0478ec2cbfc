#include "planner/forest/demand_check.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::planner {

namespace {

std::uint64_t key(Vertex from, Vertex to) { return (static_cast<std::uint64_t>(from) << 32U) | to; }

}  // namespace

DemandCheck::DemandCheck(const LogicalNetwork& network, std::vector<Vertex> terminals)
    : flow_(network.vertex_count()),
      source_(flow_.add_vertex()),
      demand_(network.tree_count()),
      terminals_(std::move(terminals)) {
  for (Vertex from = 0; from < network.vertex_count(); ++from) {
    for (const auto& [to, units] : network.out_of(from)) {
      arcs_.emplace(key(from, to), flow_.add_arc(from, to, units));
    }
  }
  for (const Vertex v : network.terminals()) {
    flow_.add_arc(source_, v, network.roots(v));
  }
}

void DemandCheck::change(Vertex from, Vertex to, std::int64_t units) {
  const auto it = arcs_.find(key(from, to));
  if (it == arcs_.end()) {
    arcs_.emplace(key(from, to), flow_.add_arc(from, to, units));
  } else {
    flow_.set_capacity(it->second, flow_.capacity(it->second) + units);
  }
}

std::int64_t DemandCheck::deficit(std::int64_t enough) {
  std::int64_t worst = 0;
  for (auto v = terminals_.begin(); v != terminals_.end() && worst < enough; ++v) {
    flow_.reset();
    const std::int64_t missing = demand_ - flow_.augment(source_, *v, demand_);
    if (missing > worst) {
      worst = missing;
      std::rotate(terminals_.begin(), v, v + 1);
    }
  }
  return worst;
}

}  // namespace rackrail::planner

#include "planner/packing/demand_check.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::planner {

namespace {

// Of more terminals none are remembered: with 1,024 that saved no time.
constexpr std::size_t kMostRemembered = 128;
// A flow that so many arcs have no room for any more is looked for anew.
constexpr std::ptrdiff_t kMostLedElsewhere = 3;

std::uint64_t key(Vertex from, Vertex to) { return (static_cast<std::uint64_t>(from) << 32U) | to; }

}  // namespace

DemandCheck::DemandCheck(const LogicalNetwork& network, std::vector<Vertex> terminals)
    : flow_(network.vertex_count()),
      source_(flow_.add_vertex()),
      demand_(network.tree_count()),
      known_(network.vertex_count()),
      terminals_(std::move(terminals)) {
  for (Vertex from = 0; from < network.vertex_count(); ++from) {
    for (const auto& [to, units] : network.out_of(from)) {
      add(from, to, units);
    }
  }
  for (const Vertex v : network.terminals()) {
    all_arcs_.push_back(flow_.add_arc(source_, v, network.roots(v)));
  }
}

void DemandCheck::change(Vertex from, Vertex to, std::int64_t units) {
  const auto it = arcs_.find(key(from, to));
  if (it == arcs_.end()) {
    add(from, to, units);
  } else {
    flow_.set_capacity(it->second, flow_.capacity(it->second) + units);
  }
}

void DemandCheck::add(Vertex from, Vertex to, std::int64_t units) {
  all_arcs_.push_back(flow_.add_arc(from, to, units));
  arcs_.emplace(key(from, to), all_arcs_.back());
}

std::int64_t DemandCheck::missing(Vertex terminal) {
  std::vector<ArcFlow>& known = known_[terminal];
  const auto without_room = std::ranges::count_if(
      known, [&](const ArcFlow& through) { return through.units > flow_.capacity(through.arc); });
  if (!known.empty() && without_room == 0) {
    return 0;
  }
  if (!known.empty() && without_room <= kMostLedElsewhere && fits_elsewhere(known)) {
    known = flows();
    return 0;
  }
  flow_.reset();
  const std::int64_t units = demand_ - flow_.augment(source_, terminal, demand_);
  if (units == 0 && terminals_.size() <= kMostRemembered) {
    known = flows();
  }
  return units;
}

/// Whether what arcs have no room for any more can flow from their beginning to their end by
/// others.
bool DemandCheck::fits_elsewhere(const std::vector<ArcFlow>& known) {
  flow_.reset();
  std::vector<ArcFlow> without_room;
  for (const auto& [arc, units] : known) {
    const std::int64_t room = std::min(units, flow_.capacity(arc));
    flow_.send(arc, room);
    if (room < units) {
      without_room.push_back({arc, units - room});
    }
  }
  return std::ranges::all_of(without_room, [&](const ArcFlow& rest) {
    return flow_.augment(flow_.from(rest.arc), flow_.to(rest.arc), rest.units) == rest.units;
  });
}

std::vector<DemandCheck::ArcFlow> DemandCheck::flows() const {
  std::vector<ArcFlow> all;
  for (const auto arc : all_arcs_) {
    if (const std::int64_t units = flow_.flow(arc); units > 0) {
      all.push_back({arc, units});
    }
  }
  return all;
}

std::int64_t DemandCheck::deficit(std::int64_t enough) {
  std::int64_t worst = 0;
  for (auto v = terminals_.begin(); v != terminals_.end() && worst < enough; ++v) {
    if (const std::int64_t units = missing(*v); units > worst) {
      worst = units;
      std::rotate(terminals_.begin(), v, v + 1);
    }
  }
  return worst;
}

}  // namespace rackrail::planner

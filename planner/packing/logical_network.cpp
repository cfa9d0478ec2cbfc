#include "planner/packing/logical_network.hpp"

#include <algorithm>
#include <utility>

namespace rackrail::planner {

LogicalNetwork::LogicalNetwork(std::vector<std::int64_t> roots, std::vector<bool> is_terminal)
    : roots_(std::move(roots)),
      is_terminal_(std::move(is_terminal)),
      out_(roots_.size()),
      in_(roots_.size()) {
  for (Vertex v = 0; v < roots_.size(); ++v) {
    tree_count_ += roots_[v];
    if (!is_switch(v)) {
      terminals_.push_back(v);
    }
  }
}

std::int64_t LogicalNetwork::capacity(Vertex from, Vertex to) const {
  const auto it = out_[from].find(to);
  return it == out_[from].end() ? 0 : it->second;
}

std::span<const Strand> LogicalNetwork::strands(Vertex from, Vertex to) const {
  const auto it = strands_.find(key(from, to));
  return it == strands_.end() ? std::span<const Strand>() : it->second;
}

void LogicalNetwork::add_link(Vertex from, Vertex to, std::int64_t units, LinkId link) {
  routes_.push_back({link});
  add(from, to, {units, static_cast<std::uint32_t>(routes_.size() - 1)});
}

void LogicalNetwork::add(Vertex from, Vertex to, Strand strand) {
  out_[from][to] += strand.units;
  in_[to][from] += strand.units;
  auto& strands = strands_[key(from, to)];
  const auto same = std::find_if(strands.begin(), strands.end(),
                                 [&](const Strand& s) { return s.route == strand.route; });
  if (same != strands.end()) {
    same->units += strand.units;
  } else {
    strands.push_back(strand);
  }
}

std::uint32_t LogicalNetwork::joined(std::uint32_t first, std::uint32_t second) {
  const auto [it, added] =
      joined_.emplace(key(first, second), static_cast<std::uint32_t>(routes_.size()));
  if (added) {
    topology::Route route = routes_[first];
    route.insert(route.end(), routes_[second].begin(), routes_[second].end());
    routes_.push_back(std::move(route));
  }
  return it->second;
}

std::vector<Strand> LogicalNetwork::take(Vertex from, Vertex to, std::int64_t units) {
  const auto out = out_[from].find(to);
  const auto in = in_[to].find(from);
  if ((out->second -= units) == 0) {
    out_[from].erase(out);
    in_[to].erase(in);
  } else {
    in->second -= units;
  }
  const auto held = strands_.find(key(from, to));
  std::vector<Strand> taken;
  while (units > 0) {
    Strand& last = held->second.back();
    const std::int64_t amount = std::min(units, last.units);
    units -= amount;
    taken.push_back({amount, last.route});
    if ((last.units -= amount) == 0) {
      held->second.pop_back();
    }
  }
  if (held->second.empty()) {
    strands_.erase(held);
  }
  return taken;
}

void LogicalNetwork::split(Vertex from, Vertex via, Vertex to, std::int64_t units) {
  std::vector<Strand> first = take(from, via, units);
  std::vector<Strand> second = take(via, to, units);
  while (!first.empty()) {
    Strand& a = first.back();
    Strand& b = second.back();
    const std::int64_t amount = std::min(a.units, b.units);
    add(from, to, {amount, joined(a.route, b.route)});
    if ((a.units -= amount) == 0) {
      first.pop_back();
    }
    if ((b.units -= amount) == 0) {
      second.pop_back();
    }
  }
}

void LogicalNetwork::isolate(Vertex v) {
  for (const auto& [other, units] : out_[v]) {
    in_[other].erase(v);
    strands_.erase(key(v, other));
  }
  for (const auto& [other, units] : in_[v]) {
    out_[other].erase(v);
    strands_.erase(key(other, v));
  }
  out_[v].clear();
  in_[v].clear();
}

}  // namespace rackrail::planner

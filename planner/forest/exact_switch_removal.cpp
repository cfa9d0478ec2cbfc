#include <algorithm>

#include "planner/forest/demand_check.hpp"
#include "planner/forest/switch_removal.hpp"

namespace rackrail::planner {

namespace {

class ExactRemoval {
 public:
  explicit ExactRemoval(LogicalNetwork& network)
      : network_(network), check_(network, network.terminals()) {}

  void remove(Vertex via) {
    std::vector<Vertex> inputs;
    for (const auto& [from, units] : network_.into(via)) {
      inputs.push_back(from);
    }
    for (const Vertex from : inputs) {
      std::vector<Vertex> outputs;
      for (const auto& [to, units] : network_.out_of(via)) {
        if (to != from) {
          outputs.push_back(to);
        }
      }
      for (const Vertex to : outputs) {
        split_as_much_as_possible(from, via, to);
      }
    }
    for (const auto& [from, units] : network_.into(via)) {
      check_.change(from, via, -units);
    }
    for (const auto& [to, units] : network_.out_of(via)) {
      check_.change(via, to, -units);
    }
    network_.isolate(via);
  }

  bool is_met() { return check_.is_met(); }

 private:
  void split_as_much_as_possible(Vertex from, Vertex via, Vertex to) {
    const std::int64_t most = std::min(network_.capacity(from, via), network_.capacity(via, to));
    if (most == 0) {
      return;
    }
    change(from, via, to, most);
    const std::int64_t too_many = std::min(most, check_.deficit(most));
    change(from, via, to, -too_many);
    if (most > too_many) {
      network_.split(from, via, to, most - too_many);
    }
  }

  void change(Vertex from, Vertex via, Vertex to, std::int64_t units) {
    if (units != 0) {
      check_.change(from, via, -units);
      check_.change(via, to, -units);
      check_.change(from, to, units);
    }
  }

  LogicalNetwork& network_;
  DemandCheck check_;
};

}  // namespace

bool remove_switches_exactly(LogicalNetwork& network) {
  std::vector<Vertex> switches;
  for (Vertex v = 0; v < network.vertex_count(); ++v) {
    if (network.is_switch(v)) {
      switches.push_back(v);
    }
  }
  // Few ways through a switch first: those tables are small, and some have no choice at all.
  std::stable_sort(switches.begin(), switches.end(), [&](Vertex a, Vertex b) {
    return network.into(a).size() < network.into(b).size();
  });
  ExactRemoval removal(network);
  for (const Vertex via : switches) {
    removal.remove(via);
  }
  return removal.is_met();
}

}  // namespace rackrail::planner

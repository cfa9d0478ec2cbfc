#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "planner/forest/demand_check.hpp"
#include "planner/forest/switch_removal.hpp"

namespace rackrail::planner {

namespace {

class ExactRemoval {
 public:
  explicit ExactRemoval(LogicalNetwork& network)
      : network_(network), check_(network, network.terminals()) {}

  void remove(Vertex via, Ways ways) {
    if (ways == Ways::kMany) {
      split_shares(via);
    }
    const std::vector<Arc> inputs(network_.into(via).begin(), network_.into(via).end());
    for (const auto& [from, in] : inputs) {
      const std::vector<Arc> outputs(network_.out_of(via).begin(), network_.out_of(via).end());
      for (const auto& [to, out] : outputs) {
        if (to != from) {
          split_at_most(from, via, to, in);
        }
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
  using Arc = std::pair<Vertex, std::int64_t>;

  /// To each pair in proportion to what it has at both ends; what is not whole is left, in turns
  /// that begin elsewhere for every input.
  void split_shares(Vertex via) {
    const std::vector<Arc> inputs(network_.into(via).begin(), network_.into(via).end());
    const std::vector<Arc> outputs(network_.out_of(via).begin(), network_.out_of(via).end());
    std::int64_t all = 0;
    for (const auto& [to, units] : outputs) {
      all += units;
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto [from, in] = inputs[i];
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const auto [to, out] = outputs[(i + o) % outputs.size()];
        if (to != from) {
          split_at_most(from, via, to, std::max<std::int64_t>(1, in * out / all));
        }
      }
    }
  }

  void split_at_most(Vertex from, Vertex via, Vertex to, std::int64_t limit) {
    const std::int64_t most =
        std::min({limit, network_.capacity(from, via), network_.capacity(via, to)});
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

bool remove_switches_exactly(LogicalNetwork& network, Ways ways) {
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
    removal.remove(via, ways);
  }
  return removal.is_met();
}

}  // namespace rackrail::planner

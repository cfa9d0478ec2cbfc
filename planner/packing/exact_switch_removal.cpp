#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/packing/demand_check.hpp"
#include "planner/packing/switch_removal.hpp"

namespace rackrail::planner {

namespace {

class ExactRemoval {
 public:
  explicit ExactRemoval(LogicalNetwork& network)
      : network_(network), check_(network, network.terminals()) {}

  void remove(Vertex via, Ways ways) {
    if (ways == Ways::kMany) {
      split_all(via, shares_of(via));
    }
    const std::vector<Arc> inputs(network_.into(via).begin(), network_.into(via).end());
    for (const auto& [from, in] : inputs) {
      std::vector<Way> all;
      for (const auto& [to, out] : network_.out_of(via)) {
        all.push_back({from, to, in});
      }
      split_all(via, all);
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
  /// Through a switch, of at most so many units.
  struct Way {
    Vertex from = 0;
    Vertex to = 0;
    std::int64_t units = 0;
  };

  /// Of each pair in proportion to what it has at both ends; what is not whole is left, in turns
  /// that begin elsewhere for every input.
  std::vector<Way> shares_of(Vertex via) const {
    const std::vector<Arc> inputs(network_.into(via).begin(), network_.into(via).end());
    const std::vector<Arc> outputs(network_.out_of(via).begin(), network_.out_of(via).end());
    std::int64_t all = 0;
    for (const auto& [to, units] : outputs) {
      all += units;
    }
    std::vector<Way> ways;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto [from, in] = inputs[i];
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const auto [to, out] = outputs[(i + o) % outputs.size()];
        ways.push_back({from, to, std::max<std::int64_t>(1, in * out / all)});
      }
    }
    return ways;
  }

  /// What arcs have for them, one after the other.
  std::vector<Way> possible(Vertex via, std::span<const Way> ways) const {
    std::unordered_map<Vertex, std::int64_t> into;
    std::unordered_map<Vertex, std::int64_t> out_of;
    std::vector<Way> found;
    for (const auto& [from, to, limit] : ways) {
      std::int64_t& in = into.try_emplace(from, network_.capacity(from, via)).first->second;
      std::int64_t& out = out_of.try_emplace(to, network_.capacity(via, to)).first->second;
      const std::int64_t units = std::min({limit, in, out});
      if (to != from && units > 0) {
        found.push_back({from, to, units});
        in -= units;
        out -= units;
      }
    }
    return found;
  }

  /// As much of each, in turn, as leaves every terminal enough. They are looked at together: where
  /// that is so of all of them, it is of each, and it often is.
  void split_all(Vertex via, std::span<const Way> ways) {
    const std::vector<Way> together = possible(via, ways);
    if (together.empty()) {
      return;
    }
    if (ways.size() == 1) {
      split_at_most(together.front(), via);
      return;
    }
    for (const auto& [from, to, units] : together) {
      change(from, via, to, units);
    }
    if (check_.is_met()) {
      for (const auto& [from, to, units] : together) {
        network_.split(from, via, to, units);
      }
      return;
    }
    for (const auto& [from, to, units] : together) {
      change(from, via, to, -units);
    }
    split_all(via, ways.first(ways.size() / 2));
    split_all(via, ways.subspan(ways.size() / 2));
  }

  void split_at_most(const Way& way, Vertex via) {
    const auto& [from, to, most] = way;
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

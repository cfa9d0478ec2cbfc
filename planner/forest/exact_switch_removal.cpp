#include <algorithm>
#include <cstdint>
#include <span>
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
      split_all(via, ways_through(via, Shares::kInProportion));
    }
    split_all(via, ways_through(via, Shares::kMost));
    // What was given back on one way is left for another.
    for (const auto& [from, to, units] : ways_through(via, Shares::kAny)) {
      split_at_most(from, via, to, units);
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
  struct Way {
    Vertex from = 0;
    Vertex to = 0;
    std::int64_t units = 0;
  };

  enum class Shares : std::uint8_t {
    kInProportion,  ///< to what both ends have; what is not whole is left
    kMost,          ///< what those before leave
    kAny,           ///< of the input, whatever others have
  };

  /// Of each input to each output; of those in proportion each input begins at another output.
  std::vector<Way> ways_through(Vertex via, Shares shares) const {
    const std::vector<Arc> inputs(network_.into(via).begin(), network_.into(via).end());
    const std::vector<Arc> outputs(network_.out_of(via).begin(), network_.out_of(via).end());
    std::int64_t all = 0;
    std::vector<std::int64_t> left;  // by output
    for (const auto& [to, units] : outputs) {
      all += units;
      left.push_back(units);
    }
    std::vector<Way> ways;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto [from, in] = inputs[i];
      std::int64_t left_in = in;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        const std::size_t output = shares == Shares::kInProportion ? (i + o) % outputs.size() : o;
        const auto [to, out] = outputs[output];
        std::int64_t units = in;
        if (shares != Shares::kAny) {
          units = std::min(left_in, left[output]);
        }
        if (shares == Shares::kInProportion) {
          units = std::min(units, std::max<std::int64_t>(1, in * out / all));
        }
        if (to != from && units > 0) {
          ways.push_back({from, to, units});
          left_in -= units;
          left[output] -= units;
        }
      }
    }
    return ways;
  }

  /// One after the other, but looked at together: where all of them leave every terminal enough, so
  /// does each, and that is often so.
  void split_all(Vertex via, std::span<const Way> ways) {
    if (ways.size() <= 1) {
      for (const auto& [from, to, units] : ways) {
        split_at_most(from, via, to, units);
      }
      return;
    }
    for (const auto& [from, to, units] : ways) {
      change(from, via, to, units);
    }
    if (check_.is_met()) {
      for (const auto& [from, to, units] : ways) {
        network_.split(from, via, to, units);
      }
      return;
    }
    for (const auto& [from, to, units] : ways) {
      change(from, via, to, -units);
    }
    split_all(via, ways.first(ways.size() / 2));
    split_all(via, ways.subspan(ways.size() / 2));
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

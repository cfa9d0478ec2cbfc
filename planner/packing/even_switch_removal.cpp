#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "planner/packing/demand_check.hpp"
#include "planner/packing/spread.hpp"
#include "planner/packing/switch_removal.hpp"
#include "topology/tiers.hpp"

namespace rackrail::planner {

namespace {

// Terminals looked at when a guess is checked.
constexpr std::size_t kSample = 12;

/// One cell of one switch's table.
struct Way {
  Vertex from;
  Vertex via;
  Vertex to;
  std::int64_t units;
};

enum class Pattern : std::uint8_t {
  kDown,  ///< one end at least lies below the switch: nothing passes it that need not
  kOtherHost,
  kAny,
  /// Through spines to other racks only: where rails have a leaf each in a rack, what goes from one
  /// of these to the next spends links that other racks need.
  kOtherRack,
};

// In turn: over which pairs, and whether over hosts first.
constexpr std::pair<Pattern, bool> kGuesses[] = {
    {Pattern::kDown, true}, {Pattern::kDown, false},     {Pattern::kOtherHost, true},
    {Pattern::kAny, false}, {Pattern::kOtherRack, true}, {Pattern::kOtherRack, false}};

class EvenRemoval {
 public:
  EvenRemoval(LogicalNetwork& network, const topology::Topology& topology)
      : network_(network), topology_(topology), check_(network, sample()) {
    order_ = spreading_order();
    level_ = levels();
    part_ = topology::network_parts(topology, false);
  }

  bool run() {
    drop_processors();
    narrow_uplinks();
    for (const auto& [layer, switches] : layers()) {
      if (!remove(switches)) {
        return false;
      }
    }
    return true;
  }

 private:
  const topology::Node& node(Vertex v) const { return topology_.node(NodeId(v)); }

  /// Some terminals of every sort: a sort has the same capacities in and out.
  std::vector<Vertex> sample() const {
    std::map<std::vector<std::int64_t>, std::vector<Vertex>> sorts;
    for (const Vertex v : network_.terminals()) {
      std::vector<std::int64_t> sort;
      for (const auto& [from, units] : network_.into(v)) {
        sort.push_back(units);
      }
      std::sort(sort.begin(), sort.end());
      sorts[std::move(sort)].push_back(v);
    }
    std::vector<Vertex> some;
    const std::size_t of_each = std::max<std::size_t>(2, kSample / sorts.size());
    for (const auto& [sort, members] : sorts) {
      const std::size_t step = std::max<std::size_t>(1, members.size() / of_each);
      for (std::size_t i = 0; i < members.size(); i += step) {
        some.push_back(members[i]);
      }
    }
    return some;
  }

  /// Consecutive vertices are in different racks and hosts: single units, given out in this order,
  /// reach as many of them as possible.
  std::vector<std::size_t> spreading_order() const {
    std::map<std::string, std::map<std::string, std::size_t>> seen;  // hosts of a rack
    std::map<std::string, std::size_t> seen_in_host;
    std::vector<std::tuple<std::size_t, std::size_t, Vertex>> keys;
    for (Vertex v = 0; v < network_.vertex_count(); ++v) {
      auto& hosts = seen[node(v).rack];
      const std::size_t host = hosts.emplace(node(v).host, hosts.size()).first->second;
      const std::size_t inside = network_.is_switch(v) ? 0 : seen_in_host[node(v).host]++;
      keys.emplace_back(inside, host, v);
    }
    std::sort(keys.begin(), keys.end());
    std::vector<std::size_t> order(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      order[std::get<2>(keys[i])] = i;
    }
    return order;
  }

  std::vector<Vertex> in_order(const LogicalNetwork::Arcs& arcs) const {
    std::vector<Vertex> ends;
    for (const auto& [end, units] : arcs) {
      ends.push_back(end);
    }
    std::sort(ends.begin(), ends.end(), [&](Vertex a, Vertex b) { return order_[a] < order_[b]; });
    return ends;
  }

  /// The ways over processors are slow, and rarely needed.
  void drop_processors() {
    std::vector<Vertex> processors;
    for (Vertex v = 0; v < network_.vertex_count(); ++v) {
      if (network_.is_switch(v) && node(v).kind == topology::NodeKind::kCpu) {
        processors.push_back(v);
        for_each_arc(v, [&](Vertex from, Vertex to, std::int64_t units) {
          check_.change(from, to, -units);
        });
      }
    }
    const bool are_needed = !check_.is_met();
    for (const Vertex v : processors) {
      if (are_needed) {
        for_each_arc(
            v, [&](Vertex from, Vertex to, std::int64_t units) { check_.change(from, to, units); });
      } else {
        network_.isolate(v);
      }
    }
  }

  /// Arcs of v, without those that a lower switch of the same kind has visited as its own.
  template <typename Visit>
  void for_each_arc(Vertex v, Visit visit) const {
    const auto is_other_ones = [&](Vertex end) {
      return end < v && network_.is_switch(end) && node(end).kind == node(v).kind;
    };
    for (const auto& [from, units] : network_.into(v)) {
      if (!is_other_ones(from)) visit(from, v, units);
    }
    for (const auto& [to, units] : network_.out_of(v)) {
      if (!is_other_ones(to)) visit(v, to, units);
    }
  }

  /// Links between switches of the network are cut down to what is needed, those of one width
  /// alike, so that trees go up no more often than they must.
  void narrow_uplinks() {
    std::map<std::tuple<topology::NodeKind, topology::NodeKind, std::int64_t>,
             std::vector<std::pair<Vertex, Vertex>>>
        widths;
    for (Vertex from = 0; from < network_.vertex_count(); ++from) {
      for (const auto& [to, units] : network_.out_of(from)) {
        if (node(from).host.empty() && node(to).host.empty() && network_.is_switch(from) &&
            network_.is_switch(to)) {
          const auto [low, high] = std::minmax(node(from).kind, node(to).kind);
          widths[{low, high, units}].emplace_back(from, to);
        }
      }
    }
    for (const auto& [width, links] : widths) {
      std::int64_t enough = std::get<2>(width);
      std::int64_t now = enough;
      const auto set = [&](std::int64_t units) {
        for (const auto& [from, to] : links) {
          check_.change(from, to, units - now);
        }
        now = units;
      };
      for (std::int64_t too_few = -1; enough - too_few > 1;) {
        const std::int64_t middle = too_few + (enough - too_few) / 2;
        set(middle);
        (check_.is_met() ? enough : too_few) = middle;
      }
      set(enough);
      for (const auto& [from, to] : links) {
        if (std::get<2>(width) > enough) {
          network_.take(from, to, std::get<2>(width) - enough);
        }
      }
    }
  }

  /// Links to the nearest terminal.
  std::vector<int> levels() const {
    constexpr int kFar = std::numeric_limits<int>::max();
    std::vector<int> level(network_.vertex_count(), kFar);
    std::vector<Vertex> queue = network_.terminals();
    for (const Vertex v : queue) {
      level[v] = 0;
    }
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (const auto& [to, units] : network_.out_of(queue[i])) {
        if (level[to] == kFar) {
          level[to] = level[queue[i]] + 1;
          queue.push_back(to);
        }
      }
    }
    return level;
  }

  /// Switches that are removed together: inside hosts before the network, far from terminals first.
  std::map<std::tuple<bool, int, topology::NodeKind>, std::vector<Vertex>> layers() const {
    std::map<std::tuple<bool, int, topology::NodeKind>, std::vector<Vertex>> layers;
    for (Vertex v = 0; v < network_.vertex_count(); ++v) {
      if (network_.is_switch(v)) {
        layers[{node(v).host.empty(), -level_[v], node(v).kind}].push_back(v);
      }
    }
    return layers;
  }

  bool remove(const std::vector<Vertex>& switches) {
    for (const auto& [pattern, is_grouped] : kGuesses) {
      // Switches next to each other: the table of the next one depends on that of the last one.
      LogicalNetwork before = network_;
      for (const Vertex via : switches) {
        for (const Way& way : table(via, pattern, is_grouped)) {
          network_.split(way.from, way.via, way.to, way.units);
          check_.change(way.from, way.via, -way.units);
          check_.change(way.via, way.to, -way.units);
          check_.change(way.from, way.to, way.units);
        }
        drop(via);
      }
      if (check_.is_met()) {
        return true;
      }
      network_ = std::move(before);
      check_ = DemandCheck(network_, sample());
    }
    return false;
  }

  void drop(Vertex via) {
    for (const auto& [from, units] : network_.into(via)) {
      check_.change(from, via, -units);
    }
    for (const auto& [to, units] : network_.out_of(via)) {
      check_.change(via, to, -units);
    }
    network_.isolate(via);
  }

  /// Whether a switch's arc leads down: no vertex on the way is as far from terminals as the
  /// switch.
  bool is_local(Vertex via, Vertex from, Vertex to) const {
    const topology::Route& route = network_.routes()[network_.strands(from, to)[0].route];
    return std::all_of(route.begin(), route.end(), [&](LinkId id) {
      const topology::Link& link = topology_.link(id);
      const auto is_below = [&](NodeId end) {
        return end.value() == via || level_[end.index()] < level_[via];
      };
      return is_below(link.from) && is_below(link.to);
    });
  }

  std::vector<Way> table(Vertex via, Pattern pattern, bool is_grouped) const {
    const std::vector<Vertex> inputs = in_order(network_.into(via));
    const std::vector<Vertex> outputs = in_order(network_.out_of(via));
    std::vector<std::int64_t> rows;
    std::vector<std::int64_t> columns;
    std::vector<bool> is_local_input;
    std::vector<bool> is_local_output;
    for (const Vertex from : inputs) {
      rows.push_back(network_.capacity(from, via));
      is_local_input.push_back(is_local(via, from, via));
    }
    for (const Vertex to : outputs) {
      columns.push_back(network_.capacity(via, to));
      is_local_output.push_back(is_local(via, via, to));
    }
    const bool has_local = std::count(is_local_input.begin(), is_local_input.end(), true) > 0;
    const bool is_in_host = !node(via).host.empty();
    const auto is_allowed = [&](std::size_t row, std::size_t column) {
      const Vertex from = inputs[row];
      const Vertex to = outputs[column];
      if (from == to) {
        return false;
      }
      if (pattern == Pattern::kAny) {
        return true;
      }
      if (!is_in_host && !node(from).host.empty() && node(from).host == node(to).host) {
        return false;
      }
      if (pattern == Pattern::kOtherHost) {
        return true;
      }
      if (pattern == Pattern::kOtherRack) {
        return part_[from] != part_[to] || part_[from] == part_[via];
      }
      return !has_local || is_local_input[row] || is_local_output[column];
    };
    std::vector<Way> ways;
    for (const Share& share : is_grouped ? spread_by_groups(rows, columns, hosts_of(inputs),
                                                            hosts_of(outputs), is_allowed)
                                         : spread_evenly(rows, columns, is_allowed)) {
      ways.push_back({inputs[share.row], via, outputs[share.column], share.units});
    }
    return ways;
  }

  /// Numbers of the hosts, in the order in which they come; a vertex outside hosts has its own.
  std::vector<std::size_t> hosts_of(const std::vector<Vertex>& ends) const {
    std::map<std::string, std::size_t> numbers;
    std::vector<std::size_t> hosts;
    for (const Vertex v : ends) {
      const std::string& host = node(v).host;
      hosts.push_back(
          numbers.emplace(host.empty() ? node(v).name : host + '\n', numbers.size()).first->second);
    }
    return hosts;
  }

  LogicalNetwork& network_;
  const topology::Topology& topology_;
  DemandCheck check_;
  std::vector<std::size_t> order_;
  std::vector<int> level_;
  std::vector<std::uint32_t> part_;  ///< racks, as what is left connected without spines
};

}  // namespace

bool remove_switches_evenly(LogicalNetwork& network, const topology::Topology& topology) {
  return EvenRemoval(network, topology).run();
}

}  // namespace rackrail::planner

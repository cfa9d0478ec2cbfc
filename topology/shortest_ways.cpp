#include "topology/shortest_ways.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <queue>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.hpp"

namespace rackrail::topology {
namespace {

WayCost operator+(WayCost a, const WayCost& b) {
  a.is_reached = a.is_reached && b.is_reached;
  a.ranks += b.ranks;
  a.entered += b.entered;
  a.links += b.links;
  a.latency += b.latency;
  return a;
}

static_assert(std::is_trivially_copyable_v<WayLabel>);

/// A label for every vertex, all bits zero (not reached) until written to; costs no time where
/// nothing is written: calloc() clears what it had before, pages of the system's are clear.
class Labels {
 public:
  explicit Labels(std::size_t vertices)
      : labels_(static_cast<WayLabel*>(take(vertices * sizeof(WayLabel))),
                Release{vertices * sizeof(WayLabel)}) {}
  WayLabel& operator[](NodeId node) { return labels_.get()[node.index()]; }
  const WayLabel& operator[](NodeId node) const { return labels_.get()[node.index()]; }

 private:
  static constexpr std::size_t kPages = std::size_t{256} << 10U;  // from so many bytes on

  static void* take(std::size_t bytes) {
    void* memory = nullptr;
    if (bytes < kPages) {
      memory = std::calloc(bytes, 1);
    } else {
      memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      memory = memory == MAP_FAILED ? nullptr : memory;
    }
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    return memory;
  }
  struct Release {
    std::size_t bytes;
    void operator()(WayLabel* labels) const {
      if (bytes < kPages) {
        std::free(labels);
      } else {
        munmap(labels, bytes);
      }
    }
  };
  std::unique_ptr<WayLabel, Release> labels_;
};

constexpr std::uint32_t kNoMachine = 0;
// For more than so many destinations it pays to look at everything on the way once.
constexpr int kFewDestinations = 8;
constexpr std::size_t kMostKept = std::size_t{256} << 20U;  // bytes

using WayEntry = std::pair<WayCost, NodeId>;
struct LaterWay {
  bool operator()(const WayEntry& a, const WayEntry& b) const {
    return b.first < a.first || (a.first == b.first && b.second < a.second);
  }
};

/// The last links of all ways to a vertex: through its machine, entered over one of `entries`.
struct Approach {
  std::vector<LinkId> entries;
  std::vector<WayCost> rest;  ///< by entry: of it and what follows
  WayCost least;              ///< of `rest`
};

/// Labels of the vertices of one machine.
using MachineLabels = std::unordered_map<NodeId, WayLabel>;

}  // namespace

struct WayExploration {
  explicit WayExploration(std::size_t vertices) : labels(vertices) {}
  Labels labels;
  std::priority_queue<WayEntry, std::vector<WayEntry>, LaterWay> queue;
  int far_destinations = 0;  ///< asked for so far
};

struct ShortestWays::Impl {
  Impl(const Topology& t, Distance by) : topology(t), distance(by) {
    // A machine that is a single vertex has no inside.
    std::unordered_map<std::string_view, std::uint32_t> machines;
    std::vector<std::uint32_t> vertices = {0};
    machine.resize(t.node_count(), kNoMachine);
    for (std::size_t i = 0; i < t.node_count(); ++i) {
      const std::string& host = t.node(NodeId(i)).host;
      if (!host.empty()) {
        machine[i] = machines.try_emplace(host, vertices.size()).first->second;
        vertices.resize(std::max<std::size_t>(vertices.size(), machine[i] + 1));
        ++vertices[machine[i]];
      }
    }
    for (std::uint32_t& number : machine) {
      number = vertices[number] > 1 ? number : kNoMachine;
    }
  }

  /// WayCost of passing through `v`, which is reached at the cost of `at`, on the way from `root`.
  WayCost through(const WayCost& at, NodeId v, NodeId root) const {
    WayCost cost = at;
    cost.ranks += v != root && topology.rank_of(v) ? 1 : 0;
    return cost;
  }
  WayCost extended(WayCost cost, const Link& link) const {
    if (distance == Distance::kMessage) {
      cost.latency += link.latency + kRoutedMessage / link.bandwidth;
    } else if (distance == Distance::kLatency || is_inside_machine(link)) {
      cost.latency += link.latency;
    } else if (machine[link.to.index()] != kNoMachine) {
      ++cost.entered;  // so that what stays inside does not go out, where cables cost no time
    }
    ++cost.links;
    return cost;
  }
  bool is_inside_machine(const Link& link) const {
    return machine[link.from.index()] != kNoMachine &&
           machine[link.from.index()] == machine[link.to.index()];
  }

  /// The only link out of a rank's vertex, where there is only one and it leads to a switch.
  std::optional<LinkId> only_way_out(NodeId start) const {
    std::optional<LinkId> only;
    for (const LinkId id : topology.links_out_of(start)) {
      if (topology.link(id).kind != LinkKind::kShared) {
        if (only) return std::nullopt;
        only = id;
      }
    }
    return only && !topology.rank_of(topology.link(*only).to) ? only : std::nullopt;
  }

  std::shared_ptr<WayExploration> exploration(NodeId root) {
    if (explorations.size() * topology.node_count() * sizeof(WayLabel) > kMostKept) {
      explorations.clear();
    }
    std::shared_ptr<WayExploration>& found = explorations[root];
    if (found == nullptr) {
      found = std::make_shared<WayExploration>(topology.node_count());
      found->labels[root] = {WayCost{.is_reached = true},
                             Bandwidth(std::numeric_limits<std::int64_t>::max())};
      found->queue.push({found->labels[root].cost, root});
    }
    return found;
  }

  /// Whether the next vertex can be on a way that costs no more than `best`, where the last links
  /// of it cost at least `rest`. (One that is followed by nothing but these need not be expanded.)
  static bool goes_on(const WayExploration& found, const WayCost& rest, const WayCost& best) {
    return !found.queue.empty() && found.queue.top().first + rest < best;
  }

  /// Takes the next vertex from the queue.
  void expand(WayExploration& found, NodeId root) const {
    const auto [cost, v] = found.queue.top();
    found.queue.pop();
    if (!(cost == found.labels[v].cost)) {
      return;  // a cheaper way was found since
    }
    const WayCost left = through(cost, v, root);
    for (const LinkId id : topology.links_out_of(v)) {
      const Link& link = topology.link(id);
      if (link.kind != LinkKind::kShared &&  // a resource, not a way
          relax(found.labels[link.to], left, found.labels[v].width, link)) {
        found.queue.push({found.labels[link.to].cost, link.to});
      }
    }
  }

  /// The exploration knows all shortest ways to `end` afterwards.
  void reach(WayExploration& found, NodeId root, NodeId end) const {
    std::optional<WayCost> least_link;
    for (const LinkId id : topology.links_into(end)) {
      const Link& link = topology.link(id);
      if (link.kind != LinkKind::kShared) {
        const WayCost cost = extended(WayCost{.is_reached = true}, link);
        least_link = std::min(least_link.value_or(cost), cost);
      }
    }
    const auto best = [&] {
      WayCost least = found.labels[end].cost;
      for (const LinkId id : topology.links_into(end)) {
        const Link& link = topology.link(id);
        const WayCost& cost = found.labels[link.from].cost;
        if (cost.is_reached && link.kind != LinkKind::kShared) {
          least = std::min(least, extended(through(cost, link.from, root), link));
        }
      }
      return least;
    };
    const WayCost rest = least_link.value_or(WayCost{.is_reached = true});
    for (WayCost known = best(); goes_on(found, rest, known); known = best()) {
      expand(found, root);
    }
    for (const LinkId id : topology.links_into(end)) {
      const Link& link = topology.link(id);
      const WayLabel from = found.labels[link.from];
      if (from.cost.is_reached && link.kind != LinkKind::kShared &&
          relax(found.labels[end], through(from.cost, link.from, root), from.width, link)) {
        found.queue.push({found.labels[end].cost, end});
      }
    }
  }

  /// Whether `link` gives a cheaper way to what `known` is the label of.
  bool relax(WayLabel& known, const WayCost& left, Bandwidth width, const Link& link) const {
    const WayCost next = extended(left, link);
    const Bandwidth narrowest = std::min(width, link.bandwidth);
    if (next < known.cost) {
      known = {next, narrowest};
      return true;
    }
    if (next == known.cost) {
      known.width = std::max(known.width, narrowest);
    }
    return false;
  }

  /// How a vertex is reached from outside its machine, by Dijkstra backwards from it.
  const Approach& approach(NodeId end) {
    const auto [it, is_new] = approaches.try_emplace(end);
    Approach& found = it->second;
    if (!is_new) {
      return found;
    }
    std::unordered_map<NodeId, WayCost> to_end = {{end, WayCost{.is_reached = true}}};
    std::priority_queue<WayEntry, std::vector<WayEntry>, LaterWay> queue;
    queue.push({to_end[end], end});
    while (!queue.empty()) {
      const auto [cost, v] = queue.top();
      queue.pop();
      if (!(cost == to_end[v])) {
        continue;
      }
      const WayCost from_v = through(cost, v, end);
      for (const LinkId id : topology.links_into(v)) {
        const Link& link = topology.link(id);
        if (link.kind == LinkKind::kShared) {
          continue;
        }
        const WayCost next = extended(from_v, link);
        if (machine[link.from.index()] != machine[end.index()]) {
          found.entries.push_back(id);
          found.rest.push_back(next);
        } else if (WayCost& known = to_end[link.from]; next < known || !known.is_reached) {
          known = next;
          queue.push({next, link.from});
        }
      }
    }
    if (!found.rest.empty()) {
      found.least = *std::min_element(found.rest.begin(), found.rest.end());
    }
    return found;
  }

  /// Ways from `root` to `end` in another machine: labels of that machine's vertices, as far as
  /// they are on ways to `end`; those of all others are in the exploration of `root`.
  MachineLabels arrive(WayExploration& found, NodeId root, NodeId end) {
    const Approach& last = approach(end);
    const auto best = [&] {
      WayCost least;
      for (std::size_t i = 0; i < last.entries.size(); ++i) {
        const NodeId from = topology.link(last.entries[i]).from;
        const WayCost& cost = found.labels[from].cost;
        if (cost.is_reached) {
          least = std::min(least, through(cost, from, root) + last.rest[i]);
        }
      }
      return least;
    };
    for (WayCost known = best(); goes_on(found, last.least, known); known = best()) {
      expand(found, root);
    }
    MachineLabels inside;
    std::priority_queue<WayEntry, std::vector<WayEntry>, LaterWay> queue;
    const auto reach = [&](const WayCost& left, Bandwidth width, const Link& link) {
      WayLabel& label = inside[link.to];
      if (relax(label, left, width, link)) {
        queue.push({label.cost, link.to});
      }
    };
    for (const LinkId entry : last.entries) {
      const Link& link = topology.link(entry);
      const WayLabel& from = found.labels[link.from];
      if (from.cost.is_reached) {
        reach(through(from.cost, link.from, root), from.width, link);
      }
    }
    while (!queue.empty()) {
      const auto [cost, v] = queue.top();
      queue.pop();
      const WayLabel label = inside[v];
      for (const LinkId id : topology.links_out_of(v)) {
        const Link& link = topology.link(id);
        if (cost == label.cost && link.kind != LinkKind::kShared &&
            machine[link.to.index()] == machine[end.index()]) {
          reach(through(cost, v, root), label.width, link);
        }
      }
    }
    return inside;
  }

  const Topology& topology;
  const Distance distance;
  std::unordered_map<NodeId, std::shared_ptr<WayExploration>> explorations;  // by root
  std::unordered_map<NodeId, Approach> approaches;                           // by destination
  std::vector<std::uint32_t> machine;  // by vertex, kNoMachine where none
};

ShortestWays::ShortestWays(const Topology& topology, Distance distance)
    : impl_(std::make_unique<Impl>(topology, distance)) {}
ShortestWays::~ShortestWays() = default;

std::optional<PairWays> ShortestWays::find(Rank src, Rank dst) {
  const Topology& topology = impl_->topology;
  const NodeId start = topology.node_of(src);
  PairWays ways;
  ways.search_ = this;
  ways.end = topology.node_of(dst);
  if (start == ways.end) {
    return std::nullopt;
  }
  ways.way_out = impl_->only_way_out(start);
  ways.root = ways.way_out ? topology.link(*ways.way_out).to : start;
  const std::uint32_t there = impl_->machine[ways.end.index()];
  const std::shared_ptr<WayExploration> of_root = impl_->exploration(ways.root);
  WayExploration& found = *of_root;
  ways.found_ = of_root;
  const bool is_far = there != kNoMachine && there != impl_->machine[ways.root.index()] &&
                      ++found.far_destinations <= kFewDestinations;
  if (is_far) {
    ways.inside_ = impl_->arrive(found, ways.root, ways.end);
  } else {
    impl_->reach(found, ways.root, ways.end);
  }
  const WayLabel last = ways.label(ways.end);
  if (!last.cost.is_reached) {
    throw ConfigError(ErrorContext{
        "", "cluster '" + topology.name() + "'",
        "no way from '" + topology.node(start).name + "' to '" + topology.node(ways.end).name + "'",
        "a connected graph"});
  }
  ways.width =
      ways.way_out ? std::min(last.width, topology.link(*ways.way_out).bandwidth) : last.width;
  return ways;
}

// A way may also pass through the machine before it comes back to it, so both count.
WayLabel PairWays::label(NodeId vertex) const {
  WayLabel label = found_->labels[vertex];
  const auto arrived = inside_.find(vertex);
  if (arrived != inside_.end()) {
    if (arrived->second.cost < label.cost) {
      label = arrived->second;
    } else if (arrived->second.cost == label.cost) {
      label.width = std::max(label.width, arrived->second.width);
    }
  }
  return label;
}

std::vector<LinkId> PairWays::links_into(NodeId vertex) const {
  const ShortestWays::Impl& search = *search_->impl_;
  std::vector<LinkId> list;
  for (const LinkId id : search.topology.links_into(vertex)) {
    const Link& link = search.topology.link(id);
    const WayLabel before = label(link.from);
    if (link.kind != LinkKind::kShared && before.cost.is_reached &&
        search.extended(search.through(before.cost, link.from, root), link) == label(vertex).cost &&
        std::min(before.width, link.bandwidth) >= width) {
      list.push_back(id);
    }
  }
  return list;
}

}  // namespace rackrail::topology

// Shortest routes, each kept once found.
//
// Model. The cost of a route is (ranks passed through, latency, links), compared in this order; by
// Distance::kHops, latency is that of links inside machines alone. A rank in the middle counts in
// the first place, so a route uses one only where there is no other way, and then as few as
// possible; the machines of a ring or torus thereby reach each other too.
//
// Per root: Dijkstra gives the cost of every vertex, as far as it is needed: it stops near the
// destination and goes on from there when a farther one is asked for. Near means: where no vertex
// that is left could lead to the destination as soon as the best way that is known, given what the
// last links through the destination's machine cost at least. So the insides of other machines at
// the same distance, which are most of a large cluster, are never looked at. An arc (u, v) is tight
// when cost(u) + its own cost = cost(v); the tight arcs form a DAG that holds all shortest routes.
// Vertices leave the heap in a topological order of it, since every arc adds a link; so `width`,
// the best bottleneck among the shortest routes, is found on the way. The root is the source, or
// the switch behind it where there is only one way out: then hosts of one switch share the work.
//
// Per destination: walk back from it along tight arcs that keep its width. Where several remain
// (ECMP), a hash of the two ranks decides, or the source's turn (EqualRoutes::kDealt): numbered by
// rack, then by their number in the machine, then by machine, source s takes route s mod n of the
// first n, and with d the product of the numbers of routes before, route (s/d + s) mod n of n more:
// sources that took the same before differ in s/d or, where they are as many as d, in s, as on a
// leaf whose uplinks lead to few spines by many cables each. Within the machine of the source or
// destination, the number of the rank in its machine does, so that GPUs with several near NICs use
// one each, as collective libraries have it.
//
// Cost: O(E log V) per root for the part that is looked at, O(machine) and O(links · in-degree) per
// destination. Labels take memory by pages, as they are reached; kMostKept bounds what they could
// take.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "topology/queries.hpp"

namespace rackrail::topology {
namespace {

struct Cost {
  bool is_reached = false;
  std::uint32_t ranks = 0;
  std::uint32_t entered = 0;  ///< machines; by hops only
  std::uint32_t links = 0;
  Duration latency;  ///< of those links whose latency counts

  auto key() const { return std::tuple(!is_reached, ranks, entered, latency, links); }
  bool operator==(const Cost& o) const { return key() == o.key(); }
  bool operator<(const Cost& o) const { return key() < o.key(); }
};
Cost operator+(Cost a, const Cost& b) {
  a.is_reached = a.is_reached && b.is_reached;
  a.ranks += b.ranks;
  a.entered += b.entered;
  a.links += b.links;
  a.latency += b.latency;
  return a;
}

struct Label {
  Cost cost;
  Bandwidth width;  // best bottleneck among the shortest routes
};
static_assert(std::is_trivially_copyable_v<Label>);

/// A label for every vertex, all bits zero (not reached) until written to; costs no time where
/// nothing is written: calloc() clears what it had before, pages of the system's are clear.
class Labels {
 public:
  explicit Labels(std::size_t vertices)
      : labels_(static_cast<Label*>(take(vertices * sizeof(Label))),
                Release{vertices * sizeof(Label)}) {}
  Label& operator[](NodeId node) { return labels_.get()[node.index()]; }
  const Label& operator[](NodeId node) const { return labels_.get()[node.index()]; }

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
    void operator()(Label* labels) const {
      if (bytes < kPages) {
        std::free(labels);
      } else {
        munmap(labels, bytes);
      }
    }
  };
  std::unique_ptr<Label, Release> labels_;
};

constexpr std::uint32_t kNoMachine = 0;
// For more than so many destinations it pays to look at everything on the way once.
constexpr int kFewDestinations = 8;
constexpr std::size_t kMostKept = std::size_t{256} << 20U;  // bytes

using Entry = std::pair<Cost, NodeId>;
struct Later {
  bool operator()(const Entry& a, const Entry& b) const {
    return b.first < a.first || (a.first == b.first && b.second < a.second);
  }
};

/// What is known of the ways from one vertex.
struct Exploration {
  explicit Exploration(std::size_t vertices) : labels(vertices) {}
  Labels labels;
  std::priority_queue<Entry, std::vector<Entry>, Later> queue;
  int far_destinations = 0;  ///< asked for so far
};

/// The last links of all ways to a vertex: through its machine, entered over one of `entries`.
struct Approach {
  std::vector<LinkId> entries;
  std::vector<Cost> rest;  ///< by entry: of it and what follows
  Cost least;              ///< of `rest`
};

/// The shortest ways of a pair: from `root` to `end`, with `way_out` before them where `root` is
/// the switch behind the source.
struct Ways {
  NodeId root;
  NodeId end;
  std::optional<LinkId> way_out;
  Bandwidth width;
};

/// Labels of the vertices of one machine.
using MachineLabels = std::unordered_map<NodeId, Label>;

}  // namespace

struct Router::Impl {
  Impl(const Topology& t, Distance by, std::uint64_t of_hash, EqualRoutes choice)
      : topology(t), distance(by), seed(of_hash), equal(choice) {
    local_index.resize(t.rank_count());
    for (const RankGroup& host : ranks_by_host(t)) {
      for (std::size_t i = 0; i < host.ranks.size(); ++i) {
        local_index[host.ranks[i].index()] = i;
      }
    }
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

  /// Of each rank, where routes are dealt out.
  std::size_t turn_of(Rank rank) {
    if (turn.empty()) {
      number_turns();
    }
    return turn[rank.index()];
  }

  void number_turns() {
    turn.resize(topology.rank_count());
    std::vector<std::size_t> host_of(topology.rank_count());
    const std::vector<RankGroup> hosts = ranks_by_host(topology);
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      for (const Rank rank : hosts[h].ranks) {
        host_of[rank.index()] = h;
      }
    }
    std::size_t next = 0;
    for (RankGroup& rack : ranks_by_rack(topology)) {
      std::stable_sort(rack.ranks.begin(), rack.ranks.end(), [&](Rank a, Rank b) {
        return std::pair(local_index[a.index()], host_of[a.index()]) <
               std::pair(local_index[b.index()], host_of[b.index()]);
      });
      for (const Rank rank : rack.ranks) {
        turn[rank.index()] = next++;
      }
    }
  }

  /// Cost of passing through `v`, which is reached at the cost of `at`, on the way from `root`.
  Cost through(const Cost& at, NodeId v, NodeId root) const {
    Cost cost = at;
    cost.ranks += v != root && topology.rank_of(v) ? 1 : 0;
    return cost;
  }
  Cost extended(Cost cost, const Link& link) const {
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

  Exploration& exploration(NodeId root) {
    if (explorations.size() * topology.node_count() * sizeof(Label) > kMostKept) {
      explorations.clear();
    }
    const auto [it, is_new] = explorations.try_emplace(root, topology.node_count());
    if (is_new) {
      Exploration& found = it->second;
      found.labels[root] = {Cost{.is_reached = true},
                            Bandwidth(std::numeric_limits<std::int64_t>::max())};
      found.queue.push({found.labels[root].cost, root});
    }
    return it->second;
  }

  /// Whether the next vertex can be on a way that costs no more than `best`, where the last links
  /// of it cost at least `rest`. (One that is followed by nothing but these need not be expanded.)
  static bool goes_on(const Exploration& found, const Cost& rest, const Cost& best) {
    return !found.queue.empty() && found.queue.top().first + rest < best;
  }

  /// Takes the next vertex from the queue.
  void expand(Exploration& found, NodeId root) const {
    const auto [cost, v] = found.queue.top();
    found.queue.pop();
    if (!(cost == found.labels[v].cost)) {
      return;  // a cheaper way was found since
    }
    const Cost left = through(cost, v, root);
    for (const LinkId id : topology.links_out_of(v)) {
      const Link& link = topology.link(id);
      if (link.kind != LinkKind::kShared &&  // a resource, not a way
          relax(found.labels[link.to], left, found.labels[v].width, link)) {
        found.queue.push({found.labels[link.to].cost, link.to});
      }
    }
  }

  /// The exploration knows all shortest ways to `end` afterwards.
  void reach(Exploration& found, NodeId root, NodeId end) const {
    std::optional<Cost> least_link;
    for (const LinkId id : topology.links_into(end)) {
      const Link& link = topology.link(id);
      if (link.kind != LinkKind::kShared) {
        const Cost cost = extended(Cost{.is_reached = true}, link);
        least_link = std::min(least_link.value_or(cost), cost);
      }
    }
    const auto best = [&] {
      Cost least = found.labels[end].cost;
      for (const LinkId id : topology.links_into(end)) {
        const Link& link = topology.link(id);
        const Cost& cost = found.labels[link.from].cost;
        if (cost.is_reached && link.kind != LinkKind::kShared) {
          least = std::min(least, extended(through(cost, link.from, root), link));
        }
      }
      return least;
    };
    const Cost rest = least_link.value_or(Cost{.is_reached = true});
    for (Cost known = best(); goes_on(found, rest, known); known = best()) {
      expand(found, root);
    }
    for (const LinkId id : topology.links_into(end)) {
      const Link& link = topology.link(id);
      const Label from = found.labels[link.from];
      if (from.cost.is_reached && link.kind != LinkKind::kShared &&
          relax(found.labels[end], through(from.cost, link.from, root), from.width, link)) {
        found.queue.push({found.labels[end].cost, end});
      }
    }
  }

  /// Whether `link` gives a cheaper way to what `known` is the label of.
  bool relax(Label& known, const Cost& left, Bandwidth width, const Link& link) const {
    const Cost next = extended(left, link);
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
    std::unordered_map<NodeId, Cost> to_end = {{end, Cost{.is_reached = true}}};
    std::priority_queue<Entry, std::vector<Entry>, Later> queue;
    queue.push({to_end[end], end});
    while (!queue.empty()) {
      const auto [cost, v] = queue.top();
      queue.pop();
      if (!(cost == to_end[v])) {
        continue;
      }
      const Cost from_v = through(cost, v, end);
      for (const LinkId id : topology.links_into(v)) {
        const Link& link = topology.link(id);
        if (link.kind == LinkKind::kShared) {
          continue;
        }
        const Cost next = extended(from_v, link);
        if (machine[link.from.index()] != machine[end.index()]) {
          found.entries.push_back(id);
          found.rest.push_back(next);
        } else if (Cost& known = to_end[link.from]; next < known || !known.is_reached) {
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
  MachineLabels arrive(Exploration& found, NodeId root, NodeId end) {
    const Approach& last = approach(end);
    const auto best = [&] {
      Cost least;
      for (std::size_t i = 0; i < last.entries.size(); ++i) {
        const NodeId from = topology.link(last.entries[i]).from;
        const Cost& cost = found.labels[from].cost;
        if (cost.is_reached) {
          least = std::min(least, through(cost, from, root) + last.rest[i]);
        }
      }
      return least;
    };
    for (Cost known = best(); goes_on(found, last.least, known); known = best()) {
      expand(found, root);
    }
    MachineLabels inside;
    std::priority_queue<Entry, std::vector<Entry>, Later> queue;
    const auto reach = [&](const Cost& left, Bandwidth width, const Link& link) {
      Label& label = inside[link.to];
      if (relax(label, left, width, link)) {
        queue.push({label.cost, link.to});
      }
    };
    for (const LinkId entry : last.entries) {
      const Link& link = topology.link(entry);
      const Label& from = found.labels[link.from];
      if (from.cost.is_reached) {
        reach(through(from.cost, link.from, root), from.width, link);
      }
    }
    while (!queue.empty()) {
      const auto [cost, v] = queue.top();
      queue.pop();
      const Label label = inside[v];
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

  /// Tight links into v that keep the width, in order of their ids. `label_of` has the labels.
  template <typename LabelOf>
  std::vector<LinkId> candidates(const LabelOf& label_of, NodeId root, NodeId v,
                                 Bandwidth width) const {
    std::vector<LinkId> list;
    for (const LinkId id : topology.links_into(v)) {
      const Link& link = topology.link(id);
      const Label before = label_of(link.from);
      if (link.kind != LinkKind::kShared && before.cost.is_reached &&
          extended(through(before.cost, link.from, root), link) == label_of(v).cost &&
          std::min(before.width, link.bandwidth) >= width) {
        list.push_back(id);
      }
    }
    return list;
  }

  bool all_from_machine(const std::vector<LinkId>& links, Rank rank) const {
    const std::string& machine_of_rank = topology.node(topology.node_of(rank)).host;
    return !machine_of_rank.empty() && std::all_of(links.begin(), links.end(), [&](LinkId id) {
      return topology.node(topology.link(id).from).host == machine_of_rank;
    });
  }

  /// Whether the machine of either end decides between these.
  bool is_inside(const std::vector<LinkId>& links, Rank src, Rank dst) const {
    return all_from_machine(links, dst) || all_from_machine(links, src);
  }

  /// `dealt` is the product of the numbers of routes between which it has chosen before.
  std::size_t choose(const std::vector<LinkId>& links, Rank src, Rank dst, NodeId v, EqualRoutes by,
                     std::size_t& dealt) {
    if (all_from_machine(links, dst)) {
      return local_index[dst.index()] % links.size();
    }
    if (all_from_machine(links, src)) {
      return local_index[src.index()] % links.size();
    }
    if (by == EqualRoutes::kDealt && !topology.rank_of(topology.link(links.front()).from)) {
      const std::size_t own = turn_of(src);
      const std::size_t chosen = (own / dealt + (dealt > 1 ? own : 0)) % links.size();
      dealt *= links.size();
      return chosen;
    }
    const std::uint64_t pair = (std::uint64_t{src.value()} << 32U) | dst.value();
    return random_bits(seed == 0 ? pair : mix64(pair ^ mix64(seed)), v.value()) % links.size();
  }

  /// Calls `use` with what is known of the shortest ways, and with the labels on them; not for a
  /// rank to itself.
  template <typename Use>
  void with_ways(Rank src, Rank dst, const Use& use) {
    const NodeId start = topology.node_of(src);
    const NodeId end = topology.node_of(dst);
    if (start == end) {
      return;
    }
    const std::optional<LinkId> way_out = only_way_out(start);
    const NodeId root = way_out ? topology.link(*way_out).to : start;
    const std::uint32_t there = machine[end.index()];
    Exploration& found = exploration(root);
    const bool is_far = there != kNoMachine && there != machine[root.index()] &&
                        ++found.far_destinations <= kFewDestinations;
    const MachineLabels inside = is_far ? arrive(found, root, end) : MachineLabels();
    if (!is_far) {
      reach(found, root, end);
    }
    // A way may also pass through the machine before it comes back to it, so both count.
    const auto label_of = [&](NodeId v) {
      Label label = found.labels[v];
      const auto arrived = inside.find(v);
      if (arrived != inside.end()) {
        if (arrived->second.cost < label.cost) {
          label = arrived->second;
        } else if (arrived->second.cost == label.cost) {
          label.width = std::max(label.width, arrived->second.width);
        }
      }
      return label;
    };
    if (!label_of(end).cost.is_reached) {
      throw ConfigError(ErrorContext{
          "", "cluster '" + topology.name() + "'",
          "no way from '" + topology.node(start).name + "' to '" + topology.node(end).name + "'",
          "a connected graph"});
    }
    Bandwidth width = label_of(end).width;
    if (way_out) {
      width = std::min(width, topology.link(*way_out).bandwidth);
    }
    use(Ways{root, end, way_out, width}, label_of);
  }

  const Topology& topology;
  const Distance distance;
  const std::uint64_t seed;
  const EqualRoutes equal;
  std::vector<std::size_t> turn;                         // of each rank, once routes are dealt
  std::unordered_map<NodeId, Exploration> explorations;  // by root
  std::unordered_map<NodeId, Approach> approaches;       // by destination
  std::vector<std::uint32_t> machine;                    // by vertex, kNoMachine where none
  std::unordered_map<std::uint64_t, Route> routes;       // by source and destination
  std::vector<std::size_t> local_index;                  // of each rank in its machine
};

Router::Router(const Topology& topology, std::uint64_t seed)
    : Router(topology, Distance::kLatency, seed) {}
Router::Router(const Topology& topology, Distance distance, std::uint64_t seed)
    : impl_(std::make_unique<Impl>(topology, distance, seed, EqualRoutes::kHashed)) {}
Router::Router(const Topology& topology, Distance distance, EqualRoutes equal)
    : impl_(std::make_unique<Impl>(topology, distance, 0, equal)) {}
Router::~Router() = default;
Router::Router(Router&&) noexcept = default;
Router& Router::operator=(Router&&) noexcept = default;

const Route& Router::route(Rank src, Rank dst) {
  const std::uint64_t pair = (std::uint64_t{src.value()} << 32U) | dst.value();
  const auto known = impl_->routes.find(pair);
  if (known != impl_->routes.end()) {
    return known->second;
  }
  Route route;
  impl_->with_ways(src, dst, [&](const Ways& ways, const auto& label_of) {
    std::size_t dealt = 1;
    for (NodeId v = ways.end; v != ways.root;) {
      const std::vector<LinkId> links = impl_->candidates(label_of, ways.root, v, ways.width);
      const LinkId chosen =
          links[links.size() == 1 ? 0 : impl_->choose(links, src, dst, v, impl_->equal, dealt)];
      route.push_back(chosen);
      v = impl_->topology.link(chosen).from;
    }
    if (ways.way_out) {
      route.push_back(*ways.way_out);
    }
    std::reverse(route.begin(), route.end());
  });
  return impl_->routes.emplace(pair, std::move(route)).first->second;
}

std::vector<Route> Router::equal_routes(Rank src, Rank dst, std::size_t most) {
  std::vector<Route> found;
  const Topology& topology = impl_->topology;
  impl_->with_ways(src, dst, [&](const Ways& ways, const auto& label_of) {
    Route backwards;
    const auto walk = [&](const auto& self, NodeId v, std::size_t dealt) -> void {
      if (found.size() == most) {
        return;
      }
      if (v == ways.root) {
        found.emplace_back(backwards.rbegin(), backwards.rend());
        if (ways.way_out) {
          found.back().insert(found.back().begin(), *ways.way_out);
        }
        return;
      }
      const std::vector<LinkId> links = impl_->candidates(label_of, ways.root, v, ways.width);
      const bool is_decided = links.size() == 1 || impl_->is_inside(links, src, dst);
      const std::size_t first =
          links.size() == 1 ? 0 : impl_->choose(links, src, dst, v, EqualRoutes::kDealt, dealt);
      for (std::size_t i = 0; i < (is_decided ? 1 : links.size()); ++i) {
        backwards.push_back(links[(first + i) % links.size()]);
        self(self, topology.link(backwards.back()).from, dealt);
        backwards.pop_back();
      }
    };
    walk(walk, ways.end, 1);
  });
  return found;
}

std::vector<LinkShare> Router::spread(Rank src, Rank dst) {
  std::vector<LinkShare> shares;
  const Topology& topology = impl_->topology;
  impl_->with_ways(src, dst, [&](const Ways& ways, const auto& label_of) {
    if (ways.way_out) {
      shares.push_back({*ways.way_out, 1});
    }
    // Backwards, vertices of the highest cost first: each is met after all that lie behind it.
    struct Vertex {
      std::vector<LinkId> in;
      double routes_behind = 0;
      double routes_before = 0;
    };
    std::map<Entry, Vertex> vertices;
    const auto entry = [&](NodeId v) { return Entry(label_of(v).cost, v); };
    vertices[entry(ways.end)].routes_behind = 1;
    for (auto at = std::prev(vertices.end());; --at) {
      const NodeId v = at->first.second;
      if (v != ways.root) {
        std::vector<LinkId> links = impl_->candidates(label_of, ways.root, v, ways.width);
        if (links.size() > 1 && impl_->is_inside(links, src, dst)) {
          std::size_t dealt = 1;
          links = {links[impl_->choose(links, src, dst, v, impl_->equal, dealt)]};
        }
        for (const LinkId link : links) {
          vertices[entry(topology.link(link).from)].routes_behind += at->second.routes_behind;
        }
        at->second.in = std::move(links);
      }
      if (at == vertices.begin()) {
        break;
      }
    }
    const double all = vertices.begin()->second.routes_behind;
    vertices.begin()->second.routes_before = 1;
    for (auto& [of, vertex] : vertices) {
      for (const LinkId link : vertex.in) {
        const double before = vertices[entry(topology.link(link).from)].routes_before;
        vertex.routes_before += before;
        shares.push_back({link, before * vertex.routes_behind / all});
      }
    }
  });
  return shares;
}

Duration route_latency(const Topology& topology, const Route& route) {
  Duration sum;
  for (const LinkId id : route) {
    sum += topology.link(id).latency;
  }
  return sum;
}

Bandwidth route_bandwidth(const Topology& topology, const Route& route) {
  Bandwidth least = topology.link(route.front()).bandwidth;
  for (const LinkId id : route) {
    const Link& link = topology.link(id);
    least = std::min(least, link.bandwidth);
    if (link.flow_bandwidth > Bandwidth(0)) {
      least = std::min(least, link.flow_bandwidth);
    }
  }
  return least;
}

Staging staging_between(const Topology& topology, Rank src, Rank dst,
                        std::span<const LinkId> links) {
  const Node& from = topology.node(topology.node_of(src));
  const Node& to = topology.node(topology.node_of(dst));
  const bool is_inside = !from.host.empty() && from.host == to.host;
  const bool has_nics = std::any_of(links.begin(), links.end(), [&](LinkId link) {
    return topology.link(link).kind != LinkKind::kNvlink;
  });
  return is_inside || !has_nics ? Staging{} : Staging{from.host_staging, to.host_staging};
}

}  // namespace rackrail::topology

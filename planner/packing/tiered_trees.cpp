#include "planner/packing/tiered_trees.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>

namespace rackrail::planner {

namespace {

constexpr std::uint32_t kNone = 0xffffffff;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

}  // namespace

TieredTrees::TieredTrees(const topology::Topology& topology) : host_of_(topology.rank_count()) {
  std::map<std::string, std::uint32_t> numbers;
  for (std::uint32_t r = 0; r < topology.rank_count(); ++r) {
    const std::string& name = topology.node(topology.node_of(Rank(r))).host;
    const auto host = static_cast<std::uint32_t>(hosts_.size());
    const auto [known, is_new] =
        numbers.emplace(name.empty() ? fmt::format("\n{}", r) : name, host);
    if (is_new) {
      hosts_.emplace_back();
    }
    hosts_[known->second].push_back(r);
    host_of_[r] = known->second;
  }
}

class TieredTrees::Search {
 public:
  Search(const TieredTrees& tiers, const std::vector<PricedArc>& ways)
      : tiers_(tiers),
        ways_(ways),
        way_(tiers.host_of_.size() * tiers.host_of_.size(), kNone),
        entries_(tiers.host_of_.size()) {
    for (std::uint32_t a = 0; a < ways.size(); ++a) {
      std::uint32_t& known = way_[place(ways[a].from, ways[a].to)];
      if (known == kNone || ways[a].price < ways[known].price) {
        known = a;
      }
    }
    for (const auto& members : tiers.hosts_) {
      find_entries(members);
    }
  }

  std::optional<std::vector<std::uint32_t>> run(std::uint32_t root) const {
    std::vector<PricedArc> between;
    std::vector<std::uint32_t> taken;  // the way of each
    for (std::uint32_t from = 0; from < tiers_.hosts_.size(); ++from) {
      for (std::uint32_t to = 0; to < tiers_.hosts_.size(); ++to) {
        const auto [price, way] = from == to ? Between{} : cheapest_between(from, to);
        if (way != kNone) {
          between.push_back({from, to, price});
          taken.push_back(way);
        }
      }
    }
    const std::uint32_t root_host = tiers_.host_of_[root];
    const auto in = cheapest_tree(tiers_.hosts_.size(), root_host, between);
    if (!in || !std::isfinite(entries_[root].price)) {
      return std::nullopt;
    }
    std::vector<std::uint32_t> arcs;
    std::vector<std::uint32_t> queue{root_host};
    add_host(root, arcs);
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (std::uint32_t host = 0; host < tiers_.hosts_.size(); ++host) {
        if (host != root_host && between[(*in)[host]].from == queue[i]) {
          arcs.push_back(taken[(*in)[host]]);
          add_host(ways_[arcs.back()].to, arcs);
          queue.push_back(host);
        }
      }
    }
    return arcs;
  }

 private:
  /// What a host costs that is entered at a rank, and from where the others are reached.
  struct Entry {
    double price = kInfinite;
    std::uint32_t hub = kNone;
  };
  struct Between {
    double price = kInfinite;
    std::uint32_t way = kNone;
  };

  std::size_t place(std::uint32_t from, std::uint32_t to) const {
    return from * tiers_.host_of_.size() + to;
  }

  double price(std::uint32_t from, std::uint32_t to) const {
    const std::uint32_t way = way_[place(from, to)];
    return way == kNone ? kInfinite : ways_[way].price;
  }

  void find_entries(const std::vector<std::uint32_t>& members) {
    for (const std::uint32_t at : members) {
      Entry& entry = entries_[at];
      entry = {star(at, at, members), at};
      for (const std::uint32_t hub : members) {
        if (hub == at) {
          continue;
        }
        const double sum = price(at, hub) + star(hub, at, members);
        if (sum < entry.price * kNearlyCheapest) {
          entry = {sum, hub};
        }
      }
    }
  }

  /// From a rank to all but one.
  double star(std::uint32_t from, std::uint32_t but,
              const std::vector<std::uint32_t>& members) const {
    double sum = 0;
    for (const std::uint32_t to : members) {
      sum += to == from || to == but ? 0 : price(from, to);
    }
    return sum;
  }

  Between cheapest_between(std::uint32_t from_host, std::uint32_t to_host) const {
    Between best;
    for (const std::uint32_t from : tiers_.hosts_[from_host]) {
      for (const std::uint32_t to : tiers_.hosts_[to_host]) {
        const double sum = price(from, to) + entries_[to].price;
        if (sum < best.price) {
          best = {sum, way_[place(from, to)]};
        }
      }
    }
    return best;
  }

  void add_host(std::uint32_t at, std::vector<std::uint32_t>& arcs) const {
    const std::uint32_t hub = entries_[at].hub;
    if (hub != at) {
      arcs.push_back(way_[place(at, hub)]);
    }
    for (const std::uint32_t to : tiers_.hosts_[tiers_.host_of_[at]]) {
      if (to != at && to != hub) {
        arcs.push_back(way_[place(hub, to)]);
      }
    }
  }

  const TieredTrees& tiers_;
  const std::vector<PricedArc>& ways_;
  std::vector<std::uint32_t> way_;  // from rank to rank
  std::vector<Entry> entries_;      // by the rank where the host is entered
};

std::optional<std::vector<std::uint32_t>> TieredTrees::cheapest(
    std::uint32_t root, const std::vector<PricedArc>& ways) const {
  return Search(*this, ways).run(root);
}

}  // namespace rackrail::planner

#include "planner/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "planner/place/blocks.hpp"
#include "planner/place/hosts.hpp"
#include "planner/place/value.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

using topology::Topology;

// A limit of work and not of time, so that every machine finds the same.
constexpr double kMostWork = 1e8;  // links visited; some seconds
constexpr std::size_t kMostChoices = 3000;
constexpr std::size_t kFewestChoices = 60;

ConfigError unplaceable(const Topology& topology, const std::string& found,
                        const std::string& expected) {
  return ConfigError(
      ErrorContext{"", fmt::format("cluster '{}'", topology.name()), found, expected});
}

struct Chosen {
  HostSet hosts;
  ChoiceValue value;
};

class ChoiceSearch {
 public:
  ChoiceSearch(const std::vector<Host>& candidates, HostBlocks& blocks, ChoiceValuer& valuer,
               std::size_t count)
      : candidates_(candidates), blocks_(blocks), valuer_(valuer), count_(count) {
    const double fit = std::floor(kMostWork / std::max(1.0, valuer.work()));
    most_ = std::clamp(
        fit < static_cast<double>(kMostChoices) ? static_cast<std::size_t>(fit) : kMostChoices,
        kFewestChoices, kMostChoices);
  }

  /// Whether every kind of choice was compared.
  bool run() {
    if (const auto all = blocks_.choices(count_, most_)) {
      for (const HostSet& hosts : *all) offer(hosts);
      return true;
    }
    set_kinds();
    for (const HostSet& start : starts()) {
      Chosen local{start, valuer_.value(start)};
      improve(local);
      take(local);
    }
    return false;
  }

  const Chosen& best() const { return *best_; }

 private:
  void offer(HostSet hosts) {
    std::sort(hosts.begin(), hosts.end());
    const ChoiceValue value = valuer_.value(hosts);
    take({std::move(hosts), value});
  }

  void take(const Chosen& chosen) {
    if (!best_ || chosen.value.is_better_than(best_->value) ||
        (!best_->value.is_better_than(chosen.value) && chosen.hosts < best_->hosts)) {
      best_ = chosen;
    }
  }

  /// Hosts that may be exchanged without a difference have the same kind.
  void set_kinds() {
    kind_.resize(candidates_.size());
    std::size_t kinds = 0;
    for (const HostBlocks::Block& block : blocks_.all()) {
      std::map<std::size_t, std::size_t> number;
      bool has_hosts = false;
      for (const std::size_t child : block.children) {
        if (child >= candidates_.size()) continue;
        const auto [it, is_new] = number.emplace(blocks_.all()[child].twins, kinds);
        kinds += is_new ? 1 : 0;
        kind_[child] = it->second;
        has_hosts = true;
      }
      if (has_hosts) groups_.push_back(&block);
    }
  }

  std::vector<HostSet> starts() const {
    const auto first = [&](std::vector<std::size_t> order) {
      order.resize(count_);
      std::sort(order.begin(), order.end());
      return order;
    };
    const auto is_wider = [&](std::size_t a, std::size_t b) {
      return std::min(candidates_[a].out, candidates_[a].in) >
             std::min(candidates_[b].out, candidates_[b].in);
    };
    std::vector<std::size_t> nested = blocks_.root().hosts;
    std::vector<std::size_t> widest = nested;
    std::stable_sort(widest.begin(), widest.end(), is_wider);
    // The largest groups whole; and one host of every group in turn.
    auto groups = groups_;
    std::stable_sort(groups.begin(), groups.end(), [](const auto* a, const auto* b) {
      return a->hosts.size() > b->hosts.size();
    });
    std::vector<std::size_t> packed;
    std::vector<std::size_t> spread;
    for (const auto* group : groups) {
      packed.insert(packed.end(), group->hosts.begin(), group->hosts.end());
    }
    for (std::size_t i = 0; spread.size() < packed.size(); ++i) {
      for (const auto* group : groups) {
        if (i < group->hosts.size()) spread.push_back(group->hosts[i]);
      }
    }
    std::vector<HostSet> starts{first(nested), first(widest)};
    for (auto* order : {&packed, &spread}) {  // a host below two levels of switches is in two
      std::set<std::size_t> seen;
      std::vector<std::size_t> once;
      for (const std::size_t h : *order) {
        if (seen.insert(h).second) once.push_back(h);
      }
      if (once.size() == candidates_.size()) starts.push_back(first(once));
    }
    return starts;
  }

  /// Exchanges one host for one of another kind as long as that is better, the first that is.
  void improve(Chosen& chosen) {
    const std::size_t end = valuer_.computed() + most_ / 4;
    for (bool has_improved = true; has_improved;) {
      has_improved = false;
      std::vector<bool> is_in(candidates_.size());
      for (const std::size_t h : chosen.hosts) is_in[h] = true;
      const auto one_of_each = [&](bool inside) {
        std::map<std::size_t, std::size_t> host_of;
        for (std::size_t h = 0; h < candidates_.size(); ++h) {
          if (is_in[h] == inside) host_of.emplace(kind_[h], h);
        }
        return host_of;
      };
      const auto leaving = one_of_each(true);
      const auto coming = one_of_each(false);
      for (auto out = leaving.begin(); out != leaving.end() && !has_improved; ++out) {
        for (auto in = coming.begin(); in != coming.end() && !has_improved; ++in) {
          if (out->first == in->first) continue;
          if (valuer_.computed() >= end) return;
          HostSet hosts = chosen.hosts;
          std::replace(hosts.begin(), hosts.end(), out->second, in->second);
          std::sort(hosts.begin(), hosts.end());
          const ChoiceValue value = valuer_.value(hosts);
          if (value.is_better_than(chosen.value)) {
            chosen = {std::move(hosts), value};
            has_improved = true;
          }
        }
      }
    }
  }

  const std::vector<Host>& candidates_;
  HostBlocks& blocks_;
  ChoiceValuer& valuer_;
  std::size_t count_;
  std::size_t most_ = 0;  // choices to compare
  std::optional<Chosen> best_;
  std::vector<std::size_t> kind_;                 // by candidate
  std::vector<const HostBlocks::Block*> groups_;  // that hosts are joined to
};

/// The most ranks that `count` hosts have each.
std::size_t most_each(const std::vector<Host>& hosts, std::size_t count) {
  std::vector<std::size_t> ranks;
  for (const Host& host : hosts) ranks.push_back(host.ranks.size());
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  return ranks[count - 1];
}

}  // namespace

Placement place(const Topology& topology, const PlacementOptions& options) {
  const std::vector<Host> all = hosts_of(topology);
  if (options.hosts < 1 || options.hosts > all.size()) {
    throw unplaceable(topology, fmt::format("{} hosts", all.size()),
                      fmt::format("at least the {} that are asked for", options.hosts));
  }
  const std::size_t each = options.gpus_per_host.value_or(most_each(all, options.hosts));
  std::vector<Host> candidates;
  for (const Host& host : all) {
    if (host.ranks.size() >= each) candidates.push_back(host);
  }
  if (each < 1 || candidates.size() < options.hosts) {
    throw unplaceable(topology,
                      fmt::format("{} hosts with {} ranks or more", candidates.size(), each),
                      fmt::format("at least the {} that are asked for", options.hosts));
  }
  if (each * options.hosts < 2) {
    throw unplaceable(topology, "one rank on one host", "at least two ranks to place");
  }
  for (Host& host : candidates) take_ranks(topology, host, each, options.hosts > 1);

  HostBlocks blocks(topology, candidates);
  ChoiceValuer valuer(topology, all, candidates, blocks, options.hosts);
  ChoiceSearch search(candidates, blocks, valuer, options.hosts);
  const bool is_exact = search.run();
  if (!std::isfinite(search.best().value.cost)) {
    throw unplaceable(topology, fmt::format("no {} hosts that reach each other", options.hosts),
                      "a connected choice");
  }
  HostSet order;
  for (const std::size_t h : blocks.root().hosts) {
    const HostSet& hosts = search.best().hosts;
    if (std::binary_search(hosts.begin(), hosts.end(), h)) order.push_back(h);
  }
  Placement placement;
  placement.cluster = valuer.cluster(order);
  for (const std::size_t h : order) {
    PlacedHost placed{candidates[h].name, candidates[h].rack, {}};
    for (const Rank rank : candidates[h].ranks) {
      placed.ranks.push_back(topology.node(topology.node_of(rank)).name);
    }
    placement.hosts.push_back(std::move(placed));
  }
  placement.allgather = topology::allgather_bound(placement.cluster).algbw;
  placement.reducescatter = topology::reducescatter_bound(placement.cluster).algbw;
  placement.allreduce = topology::joint_allreduce_bound(placement.cluster).algbw;
  placement.racks = search.best().value.racks;
  placement.is_exact = is_exact;
  placement.compared = valuer.computed();
  placement.candidates = candidates.size();
  return placement;
}

}  // namespace rackrail::planner

#include "planner/placement/placement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "planner/placement/blocks.hpp"
#include "planner/placement/hosts.hpp"
#include "planner/placement/value.hpp"
#include "topology/queries.hpp"

namespace rackrail::planner {

namespace {

using topology::Topology;

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
    // A limit of work and not of time, so that every machine finds the same.
    constexpr double kMostWork = 1e8;  // links visited; some seconds
    constexpr std::size_t kFewestChoices = 60;
    constexpr std::size_t kMostChoices = 3000;
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
    std::vector<Chosen> local;
    for (HostSet& start : starts()) {
      const ChoiceValue value = valuer_.value(start);
      local.push_back({std::move(start), value});
    }
    std::stable_sort(local.begin(), local.end(), [](const Chosen& a, const Chosen& b) {
      return a.value.is_better_than(b.value);
    });
    constexpr std::size_t kImprovedStarts = 4;
    local.resize(std::min(local.size(), kImprovedStarts));
    for (Chosen& chosen : local) {
      improve(chosen);
      take(chosen);
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

  /// In the order of the blocks; the widest hosts; one host of every group in turn; and for every
  /// group (the largest, if there are many) its widest hosts, filled up with the widest of others.
  std::vector<HostSet> starts() const {
    std::vector<HostSet> starts;
    const auto add = [&](const std::vector<std::size_t>& order) {
      std::vector<bool> is_in(candidates_.size());
      HostSet hosts;
      for (const std::size_t h : order) {  // a host below two levels of switches is in two groups
        if (hosts.size() < count_ && !is_in[h]) hosts.push_back(h);
        is_in[h] = true;
      }
      std::sort(hosts.begin(), hosts.end());
      starts.push_back(std::move(hosts));
    };
    const auto by_width = [&](std::vector<std::size_t> hosts) {
      std::stable_sort(hosts.begin(), hosts.end(), [&](std::size_t a, std::size_t b) {
        return std::min(candidates_[a].out, candidates_[a].in) >
               std::min(candidates_[b].out, candidates_[b].in);
      });
      return hosts;
    };
    const std::vector<std::size_t> widest = by_width(blocks_.root().hosts);
    add(blocks_.root().hosts);
    add(widest);
    auto groups = groups_;
    std::stable_sort(groups.begin(), groups.end(), [](const auto* a, const auto* b) {
      return a->hosts.size() > b->hosts.size();
    });
    std::vector<std::vector<std::size_t>> inside;
    for (const auto* group : groups) inside.push_back(by_width(group->hosts));
    std::vector<std::size_t> in_turn;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      for (const auto& hosts : inside) {
        if (i < hosts.size()) in_turn.push_back(hosts[i]);
      }
    }
    add(in_turn);
    for (std::size_t g = 0; g < std::min(inside.size(), most_ / 4); ++g) {
      std::vector<std::size_t> order = inside[g];
      order.insert(order.end(), widest.begin(), widest.end());
      add(order);
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
  const bool takes_all = options.hosts == all.size() && !options.gpus_per_host;
  const std::size_t each = options.gpus_per_host.value_or(most_each(all, options.hosts));
  std::vector<Host> candidates;
  std::vector<IneligibleHost> ineligible;
  std::size_t most_ranks = 0;  // of a host
  for (const Host& host : all) {
    if (host.ranks.size() >= each) {
      candidates.push_back(host);
    } else {
      ineligible.push_back({host.name, host.ranks.size()});
    }
    most_ranks = std::max(most_ranks, host.ranks.size());
  }
  if (each < 1 || candidates.size() < options.hosts) {
    throw unplaceable(topology,
                      fmt::format("{} hosts with {} ranks or more", candidates.size(), each),
                      fmt::format("at least the {} that are asked for", options.hosts));
  }
  if ((takes_all ? most_ranks : each) * options.hosts < 2) {
    throw unplaceable(topology, "one rank on one host", "at least two ranks to place");
  }
  std::map<std::string, std::size_t> ranks_of;
  std::set<std::string> device_classes;
  for (Host& host : candidates) {
    ranks_of[host.name] = host.ranks.size();
    take_ranks(topology, host, takes_all ? host.ranks.size() : each, options.hosts > 1);
    for (const Rank rank : host.ranks) {
      device_classes.insert(topology.node(topology.node_of(rank)).device_class);
    }
  }

  HostBlocks blocks(topology, candidates);
  ChoiceValuer valuer(topology, all, candidates, blocks, options.hosts);
  ChoiceSearch search(candidates, blocks, valuer, options.hosts);
  const bool is_exact = search.run() || options.hosts == candidates.size();
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
    PlacedHost placed{candidates[h].name,
                      candidates[h].rack,
                      {},
                      ranks_of.at(candidates[h].name) - candidates[h].ranks.size()};
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
  placement.least_ranks = each;
  placement.ineligible = std::move(ineligible);
  placement.device_classes.assign(device_classes.begin(), device_classes.end());
  return placement;
}

}  // namespace rackrail::planner
